"""Chains of convolutions, with batch norm and ReLU or without, that are trained and run by native.c.

For small convolutions that is quicker than torch, because an image stays in the nearest caches from one layer to the
next. `core.native_library` compiles it; processes are handed the result.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules import module
from torch.nn.modules.conv import _ConvNd

from scarlet.training.native_library import loaded

_LANES = 16  # channels are a multiple of it
_LARGEST = 1 << 16  # weights of a convolution: those of more do not stay near the processor


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

    @property
    def averages(self) -> tuple[Tensor | None, ...]:
        """What the norm remembers of the batches that it saw: their mean and variance."""
        return (None, None) if self.norm is None else (self.norm.running_mean, self.norm.running_var)

    @property
    def settings(self) -> tuple[object, ...]:
        """Where its tensors are and how, and what else may be set otherwise at any time."""
        tensors = (
            each if each is None else (each.data_ptr(), each.shape, each.stride(), each.dtype, each.device)
            for each in (*self.parameters, *self.averages)
        )
        layer, norm = self.convolution, self.norm
        of_norm = () if norm is None else (norm.momentum, norm.eps)
        return (*tensors, layer.kernel_size, layer.stride, layer.padding, *of_norm, self.relu is None)


Chain: TypeAlias = tuple[Stage, ...]


def quicken(model: nn.Module, binary: bytes) -> None:
    """Let a compiled library run the chains of convolutions in each nn.Sequential of a model that is channels-last."""
    _Quick.library = loaded(binary)
    for layer in list(model.modules()):
        if type(layer) is nn.Sequential:
            layer.__class__ = _Quick


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
        norm = rest.pop(0) if rest and type(rest[0]) is nn.BatchNorm2d and _usual_norm(rest[0], layer) else None
        relu = rest.pop(0) if rest and type(rest[0]) is nn.ReLU and not _watched(rest[0]) else None
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
        and layer.padding[0] == layer.padding[1] >= 0
        and layer.stride[0] == layer.stride[1] > 0
        and min(layer.kernel_size) > 0
        and not _watched(layer)
    )


def _usual_norm(layer: nn.BatchNorm2d, after: nn.Conv2d) -> bool:
    return (
        layer.num_features == after.out_channels
        and layer.affine
        and layer.track_running_stats
        and layer.momentum is not None
        and not _watched(layer)
    )


def _watched(layer: nn.Module) -> bool:
    """Whether somebody wants to know when a layer is run, or to change what it gives."""
    return bool(
        layer._forward_hooks
        or layer._forward_pre_hooks
        or layer._backward_hooks
        or layer._backward_pre_hooks
        or "forward" in layer.__dict__
        or module._has_any_global_hook()  # type: ignore[no-untyped-call]
    )


class _Struct(ctypes.Structure):
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


@dataclass(frozen=True, slots=True)
class _Layout:
    """How images of one size go through a chain, as long as that is what it was."""

    settings: tuple[object, ...]
    structs: ctypes.Array[_Struct]
    outputs: tuple[int, ...]  # numbers that each stage makes of an image
    shape: tuple[int, int, int]  # of what the last one makes


class _Quick(nn.Sequential):
    """An nn.Sequential whose chains are run by the library; by torch where that cannot."""

    library: ClassVar[ctypes.CDLL | None] = None  # None: no model of this process was quickened

    def forward(self, input: Tensor) -> Tensor:
        x = input
        for at, part in enumerate(parts_of(self)):
            if not isinstance(part, tuple):
                x = part(x)
            elif not _serves(part, x) or (layout := self._layout(at, part, x)) is None:
                for stage in part:
                    for layer in stage.layers:
                        x = layer(x)
            elif part[0].convolution.training:
                parameters = (each for stage in part for each in stage.parameters)
                x = _Trained.apply(x, layout, *parameters)  # type: ignore[no-untyped-call]
                for stage in part:
                    if stage.norm is not None and stage.norm.num_batches_tracked is not None:
                        stage.norm.num_batches_tracked.add_(1)
            else:
                x = _run(layout, x.contiguous(memory_format=torch.channels_last), training=False)[0]
        return x

    def _layout(self, at: int, chain: Chain, x: Tensor) -> _Layout | None:
        settings = tuple(setting for stage in chain for setting in stage.settings)
        found = self._known.get((at, x.shape[1:]))
        if found is None or found.settings != settings:
            found = self._known[at, x.shape[1:]] = _laid_out(chain, x, settings)
        return found

    @property
    def _known(self) -> dict[tuple[int, torch.Size], _Layout | None]:
        """Layouts, by the place of the chain and the size of an image."""
        return _layouts.setdefault(self, {})


_layouts: WeakKeyDictionary[_Quick, dict[tuple[int, torch.Size], _Layout | None]] = WeakKeyDictionary()


def _serves(chain: Chain, x: Tensor) -> bool:
    """Whether the library can do it: images as floats on a CPU, layers that all are trained or run, nothing unusual."""
    training, gradients = chain[0].convolution.training, torch.is_grad_enabled()
    return (
        _Quick.library is not None
        and x.dtype == torch.float32
        and x.device.type == "cpu"
        and x.dim() == 4
        and x.numel() > 0
        and len(x) > training  # torch decides what to do with a single image
        and training >= gradients
        and not (gradients and x.requires_grad and x.shape[1] % _LANES)
        and all(stage.norm is None or stage.norm.training == training for stage in chain)
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and torch._C._functorch.peek_interpreter_stack() is None
    )


def _laid_out(chain: Chain, x: Tensor, settings: tuple[object, ...]) -> _Layout | None:
    """None if torch would refuse such images, or the chain's numbers are not floats in order."""
    structs, outputs = (_Struct * len(chain))(), []
    _, channels, height, width = x.shape
    for struct, stage in zip(structs, chain, strict=True):
        layer, norm = stage.convolution, stage.norm
        if layer.in_channels != channels or not _is_in_order(stage):
            return None
        struct.height, struct.width, struct.channels = height, width, channels
        struct.filters, (struct.kernel_height, struct.kernel_width) = layer.out_channels, layer.kernel_size
        struct.stride, struct.padding = layer.stride[0], int(layer.padding[0])
        struct.relu, struct.norm = stage.relu is not None, norm is not None
        struct.weight, struct.bias, struct.gamma, struct.beta = map(_pointer, stage.parameters)
        struct.running_mean, struct.running_variance = map(_pointer, stage.averages)
        if norm is not None:
            struct.momentum, struct.epsilon = norm.momentum, norm.eps
        channels = layer.out_channels
        height = (height + 2 * struct.padding - struct.kernel_height) // struct.stride + 1
        width = (width + 2 * struct.padding - struct.kernel_width) // struct.stride + 1
        if height < 1 or width < 1:
            return None
        outputs.append(channels * height * width)
    return _Layout(settings, structs, tuple(outputs), (channels, height, width))


def _is_in_order(stage: Stage) -> bool:
    """Whether a stage's tensors are all there, floats on a CPU, and of the shape that its layers say."""
    layer = stage.convolution
    weight, bias, *of_norm = (*stage.parameters, *stage.averages)
    vectors = [*([] if bias is None else [bias]), *([] if stage.norm is None else of_norm)]
    return _is_plain(weight, (layer.out_channels, layer.in_channels, *layer.kernel_size), torch.channels_last) and all(
        _is_plain(each, (layer.out_channels,), torch.contiguous_format) for each in vectors
    )


def _is_plain(tensor: Tensor | None, shape: tuple[int, ...], layout: torch.memory_format) -> bool:
    return (
        tensor is not None
        and tensor.shape == shape
        and tensor.dtype == torch.float32
        and tensor.device.type == "cpu"
        and tensor.is_contiguous(memory_format=layout)
    )


def _run(layout: _Layout, x: Tensor, *, training: bool) -> tuple[Tensor, Tensor, Tensor]:
    """What a chain gives, and what is kept for the gradients: what convolutions gave, and the moments."""
    copies = len(x) if training else 1
    raw = x.new_empty(copies * sum(layout.outputs))
    moments = x.new_zeros(4 * sum(struct.filters for struct in layout.structs))
    structs = _filled(layout, raw, moments, copies)
    y = torch.empty((len(x), *layout.shape), dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    assert _Quick.library is not None
    if _Quick.library.scarlet_forward(structs, len(structs), x.data_ptr(), len(x), y.data_ptr(), training):
        raise MemoryError("no memory for a batch")
    return y, raw, moments


def _filled(layout: _Layout, raw: Tensor, moments: Tensor, copies: int) -> ctypes.Array[_Struct]:
    structs = type(layout.structs).from_buffer_copy(layout.structs)
    at_raw, at_moments = raw.data_ptr(), moments.data_ptr()
    for struct, outputs in zip(structs, layout.outputs, strict=True):
        row = struct.filters * moments.element_size()
        struct.raw, struct.mean, struct.inverse = at_raw, at_moments, at_moments + row
        struct.scale, struct.shift = at_moments + 2 * row, at_moments + 3 * row
        at_raw, at_moments = at_raw + copies * outputs * raw.element_size(), at_moments + 4 * row
    return structs


class _Trained(torch.autograd.Function):
    """A chain in training."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layout: _Layout, *parameters: Tensor | None) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        y, raw, moments = _run(layout, x, training=True)
        ctx.save_for_backward(x, raw, moments, *parameters)
        ctx.layout = layout
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_y: Tensor) -> tuple[Tensor | None, ...]:
        x, raw, moments, *parameters = ctx.saved_tensors
        of_y = of_y.contiguous(memory_format=torch.channels_last)
        of_x = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        weights = [each.contiguous(memory_format=torch.channels_last) for each in parameters[::4]]  # wherever they are
        found = [None if each is None else torch.empty_like(each) for each in parameters]
        found[::4] = map(torch.empty_like, weights)
        structs = _filled(ctx.layout, raw, moments, len(x))
        pointers = iter([_pointer(each) for each in found])
        for struct, weight in zip(structs, weights, strict=True):
            struct.weight = _pointer(weight)
            struct.of_weight, struct.of_bias, struct.of_gamma, struct.of_beta = (next(pointers) for _ in range(4))
        assert _Quick.library is not None
        failed = _Quick.library.scarlet_backward(
            structs, len(structs), x.data_ptr(), len(x), of_y.data_ptr(), _pointer(of_x)
        )
        if failed:
            raise MemoryError("no memory for the gradients of a batch")
        return of_x, None, *found


def _pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
