"""An engine is an execution backend: it sets the memory format of models, and how their training is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from torch import nn

from scarlet.training.engines.compiled import Compilation, enable_compilation
from scarlet.training.engines.memory_format import to_channels_last
from scarlet.training.engines.names import EngineName

_WIDE = 32  # input channels; measured: channels-last is slower for cnn (16), faster for cnn32 and resnet20 (64)


@dataclass(frozen=True, slots=True)
class Engine:
    """The engine of a run, and the reason why it was chosen."""

    name: Literal["contiguous", "channels-last", "compiled", "batched"]
    reason: str
    channels_last: bool = False

    def applied_to(self, factory: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
        """A factory of the same models under this engine; it can be pickled if `factory` can."""
        return partial(_made, factory, self.channels_last, Compilation() if self.name == "compiled" else None)


def _made(factory: Callable[[], nn.Module], channels_last: bool, compilation: Compilation | None) -> nn.Module:
    model = factory()
    if channels_last:
        model = to_channels_last(model)
    if compilation is not None:
        enable_compilation(model, compilation)
    return model


def choose(name: EngineName, factory: Callable[[], nn.Module]) -> Engine:
    """The engine of that name for the models of a factory.

    `auto` trains client after client in the memory format that suits the model's widest convolution. It looks at
    nothing but the model, so a run takes the same engine on every machine. `compiled` and `batched` are opt-in;
    `batched` has not been tried on a GPU.
    """
    match name:
        case "auto":
            return _by_width(factory())
        case "compiled":
            return Engine(name, "as asked", _by_width(factory()).channels_last)
        case _:
            return Engine(name, "as asked", name == "channels-last")


def _by_width(model: nn.Module) -> Engine:
    widest = max((layer.in_channels for layer in model.modules() if isinstance(layer, nn.Conv2d)), default=0)
    reason = f"the widest convolution has {widest} input channels; channels-last is faster from {_WIDE} on"
    return Engine("channels-last", reason, True) if widest >= _WIDE else Engine("contiguous", reason)
