"""A small network and images that are easy to learn."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor, nn

from scarlet.arrays import Index, Labels
from scarlet.data.sites import Augment
from scarlet.training import train
from scarlet.training.train import Samples, Training

CLASSES = 3
TRAINING = Training(
    local_epochs=2,
    distil_epochs=2,
    lr=0.1,
    distil_lr=0.05,
    batch_size=8,
    augment=Augment(padding=0, flip=False),
    seed=5,
)
NO_LABELS = Labels(np.empty(0, np.int64), np.empty((0, CLASSES), np.float32))


def network(seed: int = 1) -> nn.Module:
    """A small network with batch norm, with the same weights for the same seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, CLASSES)
        )


def easy(count: int) -> Samples:
    """Images of 6x6 bytes whose class is the band of rows that is bright."""
    rng = np.random.default_rng(0)
    labels = np.arange(count) % CLASSES
    images = rng.integers(0, 100, (count, 1, 6, 6), np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[:, 2 * label : 2 * label + 2] += 120
    return Samples(torch.from_numpy(images), torch.from_numpy(labels))


def teacher(index: Index) -> Labels:
    """Soft-labels drawn at random, some of them with an entry of exactly 0."""
    value = np.random.default_rng(9).dirichlet(np.ones(CLASSES), len(index)).astype(np.float32)
    value[:3] = np.eye(CLASSES)[0]
    return Labels(index, value)


def fit(model: nn.Module, samples: Samples, training: Training, rng: np.random.Generator) -> float:
    """Train a model with new optimisers."""
    return train.fit(training.optimisers(model), samples, training, rng)


def distil(
    model: nn.Module,
    public: Tensor,
    labels: Labels,
    training: Training,
    rng: np.random.Generator,
    weight: float = 1.0,
) -> float:
    """Distil labels into a model with new optimisers."""
    return train.distil(training.optimisers(model), public, labels, training, rng, weight)


def weights(model: nn.Module) -> dict[str, Tensor]:
    return copy.deepcopy(model.state_dict())


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)
