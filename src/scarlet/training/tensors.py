"""From arrays to tensors on a device, and from a model's weights back to arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor, nn

from scarlet.arrays import Array, Inputs
from scarlet.data.samples import Labelled
from scarlet.models.registry import Weights
from scarlet.training.engines.memory_format import in_format_of
from scarlet.training.optimisers import Optimisers
from scarlet.training.train import Samples

_OPTIMISERS = "(optimisers)"  # before the names of what optimisers remember; no weight is called so


@dataclass(frozen=True, slots=True)
class TorchState:
    """A model and its optimisers as arrays, and back."""

    model: nn.Module
    optimisers: Optimisers

    def arrays(self) -> dict[str, Array]:
        """All that they remember; a tensor on the CPU is not copied."""
        remembered = {f"{_OPTIMISERS}{name}": array for name, array in self.optimisers.arrays().items()}
        return model_arrays(self.model.state_dict()) | remembered

    def restore(self, arrays: Mapping[str, Array]) -> None:
        self.model.load_state_dict(weights_of(arrays))
        remembered = {name: array for name, array in arrays.items() if name.startswith(_OPTIMISERS)}
        self.optimisers.restore({name.removeprefix(_OPTIMISERS): array for name, array in remembered.items()})


def resident(inputs: Inputs, model: nn.Module, device: str) -> Tensor:
    """The inputs as one tensor on the device, in the model's memory format."""
    return in_format_of(model, torch.from_numpy(inputs).to(device))


def samples(labelled: Labelled, model: nn.Module, device: str) -> Samples:
    """The inputs with their classes, as tensors on the device."""
    return Samples(resident(labelled.inputs, model, device), torch.from_numpy(labelled.labels).to(device))


def weights_digest(weights: Mapping[str, Tensor]) -> bytes:
    """A digest of the names and values of all weights and buffers."""
    content = blake2b(digest_size=16)
    for name, value in sorted(weights.items()):
        content.update(name.encode())
        content.update(value.detach().cpu().contiguous().numpy().tobytes())
    return content.digest()


def model_arrays(weights: Mapping[str, Tensor]) -> dict[str, Array]:
    """A model's weights and buffers as arrays; a tensor on the CPU is not copied."""
    return {name: value.detach().cpu().numpy() for name, value in weights.items()}


def weights_of(arrays: Mapping[str, Array]) -> Weights:
    """A copy of the weights and buffers among a model's arrays."""
    return {
        name: torch.from_numpy(np.array(array)) for name, array in arrays.items() if not name.startswith(_OPTIMISERS)
    }
