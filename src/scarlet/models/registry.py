"""The models by name, and the weights that everybody starts from."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from scarlet.errors import unknown
from scarlet.models.cnn import cnn, cnn32
from scarlet.models.resnet import resnet18, resnet20, resnet32
from scarlet.rng import stream

ModelFactory = Callable[[], nn.Module]
Weights = dict[str, Tensor]

MODELS: dict[str, Callable[[int, int, int], nn.Module]] = {
    "cnn": cnn,
    "cnn32": cnn32,
    "resnet18": resnet18,
    "resnet20": resnet20,
    "resnet32": resnet32,
}


def model_factory(name: str, classes: int, shape: tuple[int, int, int]) -> ModelFactory:
    """What makes a model of that name for images of that shape (channels, height, width)."""
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    return partial(MODELS[name], classes, shape[0], shape[1])


def initial_weights(factory: ModelFactory, seed: int) -> Weights:
    """The weights that the server and all clients start from."""
    # Layers initialise themselves from torch's global generator, so it is set for the length of this call only.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(stream(seed, "model", purpose="initial weights").integers(2**63)))
        return factory().state_dict()
