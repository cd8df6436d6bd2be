"""How a model is laid out in memory and run."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from scarlet.training.native import quicken

_MMAP_THRESHOLD, _TRIM_THRESHOLD, _TOP_PAD, _MXFAST = -3, -1, -2, 1  # mallopt(3)


@dataclass(slots=True)
class Compilation:
    """Whether models of one kind are compiled in this process."""

    refused: bool = False  # they turned out to be of a kind that cannot be


@dataclass(frozen=True, slots=True)
class Made:
    """A factory of models, laid out and run as wanted, that can be sent to another process."""

    factory: Callable[[], nn.Module]
    channels_last: bool
    compilation: Compilation | None  # None: they are run as they are
    library: bytes | None = field(default=None, repr=False)  # runs their convolutions (`core.native`); None: torch

    def __call__(self) -> nn.Module:
        model = self.factory()
        if self.channels_last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            for layer in model.modules():
                if isinstance(layer, nn.Flatten) and self.library is None:  # the library does so by itself
                    layer.register_forward_pre_hook(_lay_gradient_out)
        if self.library is not None:
            quicken(model, self.library)
        if self.compilation is not None:
            _compilations[model] = self.compilation
        return model


def _lay_gradient_out(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Let what comes back to a flattened image be laid out as the image: a ReLU that meets both is ten times slower."""
    (images,) = inputs
    if images.requires_grad and images.dim() == 4 and not torch.compiler.is_compiling():
        images.register_hook(_laid_out)  # type: ignore[no-untyped-call]


def _laid_out(gradient: Tensor) -> Tensor:
    return gradient.contiguous(memory_format=torch.channels_last)


_compilations: WeakKeyDictionary[nn.Module, Compilation] = WeakKeyDictionary()


def forward(model: nn.Module, images: Tensor, usual: int) -> Tensor:
    """A model's scores. What is compiled is so for batches of the usual size; each other size would cost as much again.

    All models of a process share what was compiled: the model is an argument, and its weights are read anew each time.
    """
    compilation = _compilations.get(model)
    if compilation is None or compilation.refused or len(images) != usual:
        scores: Tensor = model(images)
        return scores
    try:
        return _compiled()(model, images)
    except torch._dynamo.exc.TorchDynamoException as error:
        compilation.refused = True
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


def laid_out_for(model: nn.Module, images: Tensor) -> Tensor:
    """Images that lie in memory as those that a model computes with, so that no batch of them has to be turned."""
    return images.contiguous(memory_format=torch.channels_last if has_channels_last(model) else torch.contiguous_format)


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
    mallopt(_MXFAST, 0)  # small pieces that are set aside are put in order whenever a large one is freed
