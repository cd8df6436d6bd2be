"""How models are laid out in memory and trained, which decides how quickly."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from scarlet.core.batched import why_not
from scarlet.core.types import EngineName
from scarlet.errors import ConfigError

_WIDE = 32  # input channels of a convolution; measured: cnn (16) loses by channels-last, cnn32 and resnet20 (64) win
_MMAP_THRESHOLD, _TRIM_THRESHOLD, _TOP_PAD = -3, -1, -2  # mallopt(3)


@dataclass(frozen=True, slots=True)
class Engine:
    """What was chosen, and why."""

    name: Literal["contiguous", "channels-last", "batched"]
    why: str

    def applied_to(self, factory: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
        """A factory of models that are laid out in this way."""
        return _LaidOut(factory) if self.name == "channels-last" else factory


def choose(
    name: EngineName, factory: Callable[[], nn.Module], device: str = "cpu", shape: tuple[int, ...] = (1, 28, 28)
) -> Engine:
    """The engine of that name for images of that shape.

    auto decides by the model and the kind of device alone, so that a run gives the same bits every time.
    """
    if name == "batched":
        obstacle = why_not(factory, shape)
        if obstacle is not None:
            raise ConfigError(f"engine must not be batched for a model that cannot be stacked ({obstacle}); use auto")
    if name != "auto":
        return Engine(name, "as asked")
    if torch.device(device).type == "cpu":
        return _laid_out_by_width(factory)
    obstacle = why_not(factory, shape)
    if obstacle is None:
        return Engine("batched", f"clients are trained together on {device}")
    layout = _laid_out_by_width(factory)
    return Engine(layout.name, f"the model cannot be stacked ({obstacle}); {layout.why}")


def _laid_out_by_width(factory: Callable[[], nn.Module]) -> Engine:
    widest = max((each.in_channels for each in factory().modules() if isinstance(each, nn.Conv2d)), default=0)
    if widest >= _WIDE:
        return Engine("channels-last", f"it pays from {_WIDE} input channels on, and a convolution has {widest}")
    return Engine("contiguous", f"channels-last pays from {_WIDE} input channels on, and none has more than {widest}")


@dataclass(frozen=True, slots=True)
class _LaidOut:
    """A factory that can be sent to another process."""

    factory: Callable[[], nn.Module]

    def __call__(self) -> nn.Module:
        return self.factory().to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


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
