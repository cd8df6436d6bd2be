"""torch Datasets: whatever has __getitem__ and __len__, with a transform for training and an optimiser of your choice.

python examples/datasets.py
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import scarlet


class Digits:
    """Handwritten digits of one writer, as torchvision's datasets have them: pairs (image, label)."""

    def __init__(self, first: int, last: int) -> None:
        self.images, self.labels = (array[first:last] for array in (load_digits().images, load_digits().target))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.tensor(self.images[index] / 8 - 1, dtype=torch.float32)[None], int(self.labels[index])


def jitter(batch: Tensor) -> Tensor:
    return batch + 0.1 * torch.randn_like(batch)


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(576, 64), nn.ReLU(), nn.Linear(64, 10))


sites = [scarlet.Site(train=Digits(first, first + 200), test=Digits(1000, 1200)) for first in range(0, 1000, 200)]
config = scarlet.Config(rounds=15, lr=0.002, distil_lr=0.002)
options = {"model": network, "augment": jitter, "optimizer": torch.optim.AdamW}
result = scarlet.run(scarlet.ScarletConfig(), config, sites=sites, public=Digits(1200, 1797), **options)
print(f"server {result.summary['server_accuracy']:.3f}, clients {result.summary['client_accuracy']:.3f}")
print(result.client_model(3))
