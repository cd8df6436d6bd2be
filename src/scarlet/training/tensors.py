"""From arrays to tensors on a device, and from a model's weights back to arrays."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor, nn

from scarlet.arrays import Array, Images, Index
from scarlet.models.registry import Weights
from scarlet.training.engines.memory_format import in_format_of
from scarlet.training.train import Samples


def resident(images: Images, model: nn.Module, device: str) -> Tensor:
    """The images as one tensor on the device, in the model's memory format."""
    return in_format_of(model, torch.from_numpy(images).to(device))


def samples(images: Images, labels: Index, model: nn.Module, device: str) -> Samples:
    """The images with their classes, as tensors on the device."""
    return Samples(resident(images, model, device), torch.from_numpy(labels).to(device))


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
    """A copy of the weights and buffers: the inverse of `model_arrays`."""
    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
