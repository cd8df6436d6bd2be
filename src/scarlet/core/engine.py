"""How a model is laid out and run, which decides how quickly it trains."""

from __future__ import annotations

import ctypes
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal
from weakref import WeakSet

import torch
from torch import Tensor, nn

from scarlet.core.flops import step_flops
from scarlet.core.types import EngineName

_WIDE = 32  # input channels of a convolution; measured: cnn (16) loses by channels-last, cnn32 and resnet20 (64) win
_WORTH_COMPILING = 1e15  # floating-point operations: some three hours of one core, of which it saves a twelfth
_MMAP_THRESHOLD, _TRIM_THRESHOLD, _TOP_PAD = -3, -1, -2  # mallopt(3)


@dataclass(frozen=True, slots=True)
class Plan:
    """What an engine is chosen for."""

    image: tuple[int, ...]  # its shape, [C, H, W]
    images: int = 0  # that all clients train on, in all rounds


@dataclass(frozen=True, slots=True)
class Engine:
    """What was chosen, and why."""

    name: Literal["contiguous", "channels-last", "compiled"]
    why: str
    channels_last: bool

    def applied_to(self, factory: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
        """A factory of models that are laid out and run in this way."""
        return _Made(factory, self.channels_last, self.name == "compiled")


def choose(name: EngineName, factory: Callable[[], nn.Module], plan: Plan) -> Engine:
    """The engine of that name; auto decides by the model and the plan alone, so that a run gives the same bits."""
    model = factory()
    widest = max((each.in_channels for each in model.modules() if isinstance(each, nn.Conv2d)), default=0)
    if name == "compiled":
        return Engine(name, "as asked", widest >= _WIDE)
    if name != "auto":
        return Engine(name, "as asked", name == "channels-last")
    if widest < _WIDE:
        why = f"channels-last pays from {_WIDE} input channels on, and none has more than {widest}"
        return Engine("contiguous", why, channels_last=False)
    flops = plan.images * step_flops(model, torch.zeros(1, *plan.image))
    if flops >= _WORTH_COMPILING and shutil.which("g++"):
        return Engine("compiled", f"it pays from {_WORTH_COMPILING:.0e} operations on, and these are {flops:.0e}", True)
    return Engine("channels-last", f"it pays from {_WIDE} input channels on, and a convolution has {widest}", True)


@dataclass(frozen=True, slots=True)
class _Made:
    """A factory that can be sent to another process."""

    factory: Callable[[], nn.Module]
    channels_last: bool
    compiled: bool

    def __call__(self) -> nn.Module:
        model = self.factory()
        if self.channels_last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            for layer in model.modules():
                if isinstance(layer, nn.Flatten):
                    layer.register_forward_pre_hook(_lay_gradient_out)
        if self.compiled:
            _to_be_compiled.add(model)
        return model


def _lay_gradient_out(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Let what comes back to a flattened image be laid out as the image: a ReLU that meets both is ten times slower."""
    (images,) = inputs
    if images.requires_grad and images.dim() == 4 and not torch.compiler.is_compiling():
        images.register_hook(_laid_out)  # type: ignore[no-untyped-call]


def _laid_out(gradient: Tensor) -> Tensor:
    return gradient.contiguous(memory_format=torch.channels_last)


_to_be_compiled: WeakSet[nn.Module] = WeakSet()


def forward(model: nn.Module, images: Tensor, usual: int) -> Tensor:
    """A model's scores. What is compiled is so for batches of the usual size; each other size would cost as much again.

    All models of a process share what was compiled: the model is an argument, and its weights are read anew each time.
    """
    if len(images) != usual or model not in _to_be_compiled:
        scores: Tensor = model(images)
        return scores
    try:
        return _compiled()(model, images)
    except torch._dynamo.exc.TorchDynamoException as error:
        _to_be_compiled.clear()
        reason = str(error).strip().partition("\n")[0]
        print(f"scarlet: this model cannot be compiled ({reason}); going on without", file=sys.stderr)
        return forward(model, images, usual)


@cache
def _compiled() -> Callable[[nn.Module, Tensor], Tensor]:
    torch._inductor.config.compile_threads = 1  # other processes do the same at the same time
    return torch.compile(lambda model, images: model(images), dynamic=False, fullgraph=True)


def has_channels_last(model: nn.Module) -> bool:
    """Whether a model is laid out in that way; where a layout could be either, it says nothing."""
    return any(
        not weight.is_contiguous() and weight.is_contiguous(memory_format=torch.channels_last)
        for weight in model.parameters()
        if weight.dim() == 4
    )


def keep_freed_memory() -> None:
    """Let this process keep what it frees, up to 32 MB a piece, for the next batch.

    Otherwise glibc hands the larger pieces back to the system after every batch, and each page of them is zeroed and
    mapped anew: 80,000 page faults for 500 images of resnet20, a tenth of the time. Elsewhere than on glibc nothing
    happens.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_MMAP_THRESHOLD, 32 << 20)
    mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)
    mallopt(_TOP_PAD, 64 << 20)
