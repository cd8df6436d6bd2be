"""Which way of training models is the quickest."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import nn

from scarlet.errors import ConfigError
from scarlet.protocol.types import EngineName
from scarlet.training import native, native_library
from scarlet.training.batched import why_not
from scarlet.training.flops import step_flops
from scarlet.training.runtime import Compilation, Made

_WIDE = 32  # input channels of a convolution; measured: cnn (16) loses by channels-last, cnn32 and resnet20 (64) win
_LARGE = (
    1e8  # operations of a training step on one image: resnet20 (2.5e8) wins by being compiled, cnn32 (1.2e7) does not
)
_LONG = 1e15  # operations of all clients in a run: some three hours of one core, of which it saves minutes


@dataclass(frozen=True, slots=True)
class Plan:
    """What an engine is chosen for."""

    image: tuple[int, ...]  # its shape, [C, H, W]
    images: int = 0  # that all clients train on, in all rounds
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class Engine:
    """What was chosen, and why."""

    name: Literal["contiguous", "channels-last", "native", "compiled", "batched"]
    why: str
    channels_last: bool = False
    library: bytes | None = field(default=None, repr=False)  # of native models

    def applied_to(self, factory: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
        """A factory of models that are laid out and run in this way."""
        return Made(factory, self.channels_last, Compilation() if self.name == "compiled" else None, self.library)


def choose(name: EngineName, factory: Callable[[], nn.Module], plan: Plan) -> Engine:
    """The engine of that name.

    auto decides by the model, the kind of device, the plan and whether there is a compiler, never by a stopwatch, so
    that a run gives the same bits every time on such a machine.
    """
    on_a_cpu = torch.device(plan.device).type == "cpu"
    obstacle = why_not(factory, plan.image) if name == "batched" or (name == "auto" and not on_a_cpu) else None
    match name:
        case "auto" if on_a_cpu:
            return _quickest_on_a_cpu(factory, plan)
        case "auto" if obstacle is None:
            return Engine("batched", f"clients are trained together on {plan.device}")
        case "auto":
            layout = _by_width(factory())
            return Engine(layout.name, f"the model cannot be stacked ({obstacle}); {layout.why}", layout.channels_last)
        case "batched" if obstacle is not None:
            raise ConfigError(f"engine must not be batched for a model that cannot be stacked ({obstacle}); use auto")
        case "native" if (obstacle := _why_not_native(factory(), plan)) is not None:
            raise ConfigError(f"engine must not be native here ({obstacle}); use another, or auto")
        case "native":
            return Engine(name, "as asked", True, native_library.compiled())
        case "compiled":
            return Engine(name, "as asked", _by_width(factory()).channels_last)
        case _:
            return Engine(name, "as asked", name == "channels-last")


def _quickest_on_a_cpu(factory: Callable[[], nn.Module], plan: Plan) -> Engine:
    model = factory()
    if _why_not_native(model, plan) is None:
        return Engine("native", "all convolutions are small and one after another", True, native_library.compiled())
    layout = _by_width(model)
    if not layout.channels_last or not shutil.which("g++"):
        return layout
    step = step_flops(model, torch.zeros(1, *plan.image))
    if step < _LARGE or plan.images * step < _LONG:
        return layout
    return Engine("compiled", f"it pays from {_LONG:.0e} operations on, and these are {plan.images * step:.0e}", True)


def _why_not_native(model: nn.Module, plan: Plan) -> str | None:
    """Why a model's convolutions cannot or should not be run by compiled C; None if they should."""
    if torch.device(plan.device).type != "cpu":
        return f"the device is {plan.device}"
    if (obstacle := native.why_not(model)) is not None:
        return obstacle
    return "no C compiler makes its library for a processor with AVX2" if native_library.compiled() is None else None


def _by_width(model: nn.Module) -> Engine:
    widest = max((each.in_channels for each in model.modules() if isinstance(each, nn.Conv2d)), default=0)
    if widest >= _WIDE:
        return Engine("channels-last", f"it pays from {_WIDE} input channels on, and a convolution has {widest}", True)
    return Engine("contiguous", f"channels-last pays from {_WIDE} input channels on, and none has more than {widest}")
