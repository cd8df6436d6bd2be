"""The models by name, and the weights that everybody starts from."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from scarlet.errors import ConfigError, unknown
from scarlet.models.cnn import cnn, cnn32
from scarlet.models.mlp import mlp
from scarlet.models.resnet import resnet18, resnet20, resnet32
from scarlet.rng import stream

ModelFactory = Callable[[], nn.Module]
Weights = dict[str, Tensor]

MODELS: dict[str, Callable[[int, Any], nn.Module]] = {  # (classes, shape of an input) -> a model
    "cnn": cnn,
    "cnn32": cnn32,
    "mlp": mlp,
    "resnet18": resnet18,
    "resnet20": resnet20,
    "resnet32": resnet32,
}
_ANY_SHAPE = ("mlp",)  # the others are for images [C, H, W]


def model_factory(name: str, classes: int, shape: tuple[int, ...]) -> ModelFactory:
    """What makes a model of that name for inputs of that shape."""
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    if len(shape) != 3 and name not in _ANY_SHAPE:
        raise ConfigError(
            f"model {name} takes images [C, H, W], and the inputs have shape {list(shape)}; "
            f"use {' or '.join(_ANY_SHAPE)}, or a model of your own from Python"
        )
    return partial(MODELS[name], classes, shape)


def usual_model(shape: tuple[int, ...]) -> str | None:
    """The model for data of one's own where none is named; None: there is none for inputs of that shape."""
    return {1: "mlp", 3: "cnn32"}.get(len(shape))


def initial_weights(factory: ModelFactory, seed: int) -> Weights:
    """The weights that the server and all clients of one architecture start from."""
    # Layers initialise themselves from torch's global generator, so it is set for the length of this call only.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(stream(seed, "model", purpose="initial weights").integers(2**63)))
        return factory().state_dict()
