"""The memory format of models and images: contiguous, or channels-last, which is faster for wide convolutions."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def to_channels_last(model: nn.Module) -> nn.Module:
    """The same model with its weights, and the gradients of its activations, in channels-last format."""
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for layer in model.modules():
        if isinstance(layer, nn.Flatten):
            layer.register_forward_pre_hook(_convert_gradient)
    return model


def has_channels_last(model: nn.Module) -> bool:
    """Whether a model has weights in channels-last format; a weight that fits both formats does not count."""
    return any(
        not weight.is_contiguous() and weight.is_contiguous(memory_format=torch.channels_last)
        for weight in model.parameters()
        if weight.dim() == 4
    )


def in_format_of(model: nn.Module, inputs: Tensor) -> Tensor:
    """The inputs in the model's memory format, so that no batch of them has to be converted."""
    images = inputs.dim() == 4
    channels_last = images and has_channels_last(model)
    return inputs.contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)


def _convert_gradient(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Convert the gradient of a flattened activation to channels-last: a ReLU that meets both formats is 10x slower."""
    (images,) = inputs
    if images.requires_grad and images.dim() == 4 and not torch.compiler.is_compiling():
        images.register_hook(_converted)  # type: ignore[no-untyped-call]


def _converted(gradient: Tensor) -> Tensor:
    return gradient.contiguous(memory_format=torch.channels_last)
