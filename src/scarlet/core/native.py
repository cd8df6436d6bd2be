"""Chains of convolutions, with batch norm and ReLU or without, that are trained and run by native.c.

For small convolutions that is quicker than torch, because an image stays in the nearest caches from one layer to the
next. The C code is compiled once, and processes are handed the result.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.conv import _ConvNd

_SOURCE = Path(__file__).with_suffix(".c")
_FLAGS = {"AVX512": ("-mavx512f",), "AVX2": ("-mavx2", "-mfma")}  # by what torch finds that the processor has
_LANES = 16  # channels are a multiple of it
_LARGEST = 1 << 16  # weights of a convolution: those of more do not stay near the processor


@cache
def compiled() -> bytes | None:
    """A shared library for this machine; None if its processor is another, or no C compiler makes one."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    capability = torch.backends.cpu.get_cpu_capability()
    if compiler is None or capability not in _FLAGS:
        return None
    flags = ["-O2", "-fno-math-errno", "-shared", "-fPIC", *_FLAGS[capability]]
    name = hashlib.sha256("\0".join([*flags, _SOURCE.read_text()]).encode()).hexdigest()
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "scarlet", f"{name}.so")
    try:
        binary = kept.read_bytes()
        _loaded(binary)
        return binary
    except OSError:
        pass
    try:
        with TemporaryDirectory(prefix="scarlet-") as folder:
            file = Path(folder, "native.so")
            subprocess.run([compiler, *flags, "-o", file, _SOURCE, "-lm"], check=True, capture_output=True)
            binary = file.read_bytes()
        _loaded(binary)
    except (OSError, subprocess.SubprocessError):
        return None
    _keep(binary, kept)
    return binary


def _keep(binary: bytes, file: Path) -> None:
    """Spare the next run three seconds, if there is a place for it."""
    unfinished = file.with_suffix(f".{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_bytes(binary)
        unfinished.replace(file)
    except OSError:
        unfinished.unlink(missing_ok=True)


@cache
def _loaded(binary: bytes) -> ctypes.CDLL:
    with TemporaryDirectory(prefix="scarlet-") as folder:
        file = Path(folder, "native.so")
        file.write_bytes(binary)
        library = ctypes.CDLL(str(file))
    pointer, whole = ctypes.c_void_p, ctypes.c_long
    library.scarlet_forward.argtypes = [pointer, whole, pointer, whole, pointer, ctypes.c_int]
    library.scarlet_backward.argtypes = [pointer, whole, pointer, whole, pointer, pointer]
    return library


@dataclass(frozen=True, slots=True)
class Stage:
    """A convolution and what follows it."""

    convolution: nn.Conv2d
    norm: nn.BatchNorm2d | None
    relu: nn.ReLU | None

    @property
    def layers(self) -> tuple[nn.Module, ...]:
        """Those that there are, in their order."""
        return tuple(layer for layer in (self.convolution, self.norm, self.relu) if layer is not None)

    @property
    def parameters(self) -> tuple[Tensor | None, ...]:
        """What is trained: weight and bias of the convolution and of the norm."""
        norm = self.norm
        own = self.convolution.weight, self.convolution.bias
        return (*own, None, None) if norm is None else (*own, norm.weight, norm.bias)


Chain: TypeAlias = tuple[Stage, ...]


def quicken(model: nn.Module, binary: bytes) -> None:
    """Let a compiled library run the chains of convolutions in each nn.Sequential of a model that is channels-last."""
    _Quick.library = _loaded(binary)
    for layer in list(model.modules()):
        if type(layer) is nn.Sequential:
            layer.__class__ = _Quick
            cast(_Quick, layer).parts = parts_of(layer)


def why_not(model: nn.Module) -> str | None:
    """Why a model would gain nothing, None if it would: all its convolutions are small and in chains."""
    chained = {
        stage.convolution
        for layer in model.modules()
        if type(layer) is nn.Sequential
        for part in parts_of(layer)
        if isinstance(part, tuple)
        for stage in part
    }
    convolutions = [layer for layer in model.modules() if isinstance(layer, _ConvNd)]
    if not convolutions:
        return "it has no convolutions"
    if not chained.issuperset(convolutions):
        return "not all of its convolutions are usual ones of 16, 32, ... filters in an nn.Sequential"
    if (largest := max(layer.weight.numel() for layer in convolutions)) > _LARGEST:
        return f"a convolution has {largest} weights, more than {_LARGEST}"
    return None


def parts_of(layers: Iterable[nn.Module]) -> list[nn.Module | Chain]:
    """Layers in their order, those that make up a chain put together."""
    parts: list[nn.Module | Chain] = []
    rest = list(layers)
    while rest:
        layer = rest.pop(0)
        if not (type(layer) is nn.Conv2d and _usual(layer)):
            parts.append(layer)
            continue
        norm = rest.pop(0) if rest and type(rest[0]) is nn.BatchNorm2d and _usual_norm(rest[0]) else None
        relu = rest.pop(0) if rest and type(rest[0]) is nn.ReLU else None
        stage = Stage(layer, cast(nn.BatchNorm2d | None, norm), cast(nn.ReLU | None, relu))
        if parts and isinstance(before := parts[-1], tuple):
            parts[-1] = (*before, stage)
        else:
            parts.append((stage,))
    return parts


def _usual(layer: nn.Conv2d) -> bool:
    return (
        layer.out_channels % _LANES == 0
        and layer.groups == 1
        and layer.dilation == (1, 1)
        and layer.padding_mode == "zeros"
        and not isinstance(layer.padding, str)
        and layer.padding[0] == layer.padding[1]
        and layer.stride[0] == layer.stride[1]
    )


def _usual_norm(layer: nn.BatchNorm2d) -> bool:
    return layer.affine and layer.track_running_stats and layer.momentum is not None


class _Quick(nn.Sequential):
    """An nn.Sequential whose chains are run by the library; by torch where that cannot."""

    library: ClassVar[ctypes.CDLL]
    parts: list[nn.Module | Chain]

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            if not isinstance(part, tuple):
                x = part(x)
            elif not _serves(part, x):
                for stage in part:
                    for layer in stage.layers:
                        x = layer(x)
            elif part[0].convolution.training:
                parameters = (each for stage in part for each in stage.parameters)
                x = _Trained.apply(x, part, *parameters)  # type: ignore[no-untyped-call]
            else:
                x = _run(part, x, training=False)[0]
        return x


def _serves(chain: Chain, x: Tensor) -> bool:
    """Whether the library can do it: floats on a CPU, layers as they were made, and a batch that torch takes, too."""
    training = chain[0].convolution.training
    channels, height, width = x.shape[1:] if x.dim() == 4 else (0, 0, 0)
    gradient_of_x = x.requires_grad and torch.is_grad_enabled()
    if (
        x.dtype != torch.float32
        or x.device.type != "cpu"
        or not (training or not torch.is_grad_enabled())
        or (gradient_of_x and channels % _LANES)
        or torch.compiler.is_compiling()
    ):
        return False
    for stage in chain:
        layer = stage.convolution
        if layer.in_channels != channels or any(_changed(each, training) for each in stage.layers):
            return False
        channels = layer.out_channels
        height, width = _size_after(layer, height, width)
        if height < 1 or width < 1 or (training and stage.norm is not None and len(x) * height * width < 2):
            return False
    return len(x) > 0


def _changed(layer: nn.Module, training: bool) -> bool:
    """Whether a layer is not in the chain's mode, is watched by somebody, or has other numbers than floats in order."""
    return bool(
        layer.training != training
        or layer._forward_hooks
        or layer._forward_pre_hooks
        or layer._backward_hooks
        or layer._backward_pre_hooks
        or any(
            each.dtype != torch.float32
            or not each.is_contiguous(memory_format=torch.channels_last if each.dim() == 4 else torch.contiguous_format)
            for each in layer.parameters(recurse=False)
        )
    )


def _size_after(layer: nn.Conv2d, height: int, width: int) -> tuple[int, int]:
    (down, along), padding, stride = layer.kernel_size, int(layer.padding[0]), layer.stride[0]
    return (height + 2 * padding - down) // stride + 1, (width + 2 * padding - along) // stride + 1


class _Layout(ctypes.Structure):
    """`struct stage` of native.c."""

    _fields_: ClassVar = [
        *((name, ctypes.c_long) for name in ("height", "width", "channels")),
        *((name, ctypes.c_long) for name in ("filters", "kernel_height", "kernel_width", "stride", "padding")),
        *((name, ctypes.c_long) for name in ("relu", "norm")),
        *((name, ctypes.c_double) for name in ("momentum", "epsilon")),
        *((name, ctypes.c_void_p) for name in ("weight", "bias", "gamma", "beta")),
        *((name, ctypes.c_void_p) for name in ("running_mean", "running_variance")),
        *((name, ctypes.c_void_p) for name in ("raw", "mean", "inverse", "scale", "shift")),
        *((name, ctypes.c_void_p) for name in ("of_weight", "of_bias", "of_gamma", "of_beta")),
    ]


class _Trained(torch.autograd.Function):
    """A chain in training."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, chain: Chain, *parameters: Tensor | None) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        y, ctx.stages, ctx.kept = _run(chain, x, training=True)
        ctx.save_for_backward(x, *parameters)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_y: Tensor) -> tuple[Tensor | None, ...]:
        x, *parameters = ctx.saved_tensors
        of_y = of_y.contiguous(memory_format=torch.channels_last)
        of_x = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        found = [None if each is None else torch.empty_like(each) for each in parameters]
        for at, stage in enumerate(ctx.stages):
            stage.of_weight, stage.of_bias, stage.of_gamma, stage.of_beta = map(_pointer, found[4 * at : 4 * at + 4])
        failed = _Quick.library.scarlet_backward(
            ctx.stages, len(ctx.stages), x.data_ptr(), len(x), of_y.data_ptr(), _pointer(of_x)
        )
        if failed:
            raise MemoryError("no memory for the gradients of a batch")
        return of_x, None, *found


def _run(chain: Chain, x: Tensor, *, training: bool) -> tuple[Tensor, ctypes.Array[_Layout], list[Tensor]]:
    """What a chain gives; how it was done, and the tensors that refers to, for the gradients."""
    x = x.contiguous(memory_format=torch.channels_last)
    stages = (_Layout * len(chain))()
    kept: list[Tensor] = []
    images, channels, height, width = x.shape
    for stage, each in zip(stages, chain, strict=True):
        layer, norm = each.convolution, each.norm
        stage.height, stage.width, stage.channels = height, width, channels
        stage.filters, (stage.kernel_height, stage.kernel_width) = layer.out_channels, layer.kernel_size
        stage.stride, stage.padding = layer.stride[0], int(layer.padding[0])
        stage.relu, stage.norm = each.relu is not None, norm is not None
        stage.weight, stage.bias, stage.gamma, stage.beta = map(_pointer, each.parameters)
        if norm is not None:
            stage.momentum, stage.epsilon = norm.momentum, norm.eps
            stage.running_mean, stage.running_variance = _pointer(norm.running_mean), _pointer(norm.running_var)
            if training and norm.num_batches_tracked is not None:
                norm.num_batches_tracked.add_(1)
        channels, (height, width) = layer.out_channels, _size_after(layer, height, width)
        raw, moments = x.new_empty(images if training else 1, height, width, channels), x.new_zeros(4, channels)
        stage.raw = raw.data_ptr()
        stage.mean, stage.inverse, stage.scale, stage.shift = (row.data_ptr() for row in moments)
        kept += raw, moments
    y = torch.empty((images, channels, height, width), memory_format=torch.channels_last)
    if _Quick.library.scarlet_forward(stages, len(stages), x.data_ptr(), images, y.data_ptr(), training):
        raise MemoryError("no memory for a batch")
    return y, stages, kept


def _pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
