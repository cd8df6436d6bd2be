"""FLOPs of a model: multiply-adds are counted, by hooks on its convolutions and linear layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_FLOPS_PER_MULTIPLY_ADD = 6  # 2 in the forward pass, and twice as many in the backward pass


def step_flops(model: nn.Module, image: Tensor) -> int:
    """FLOPs of the multiply-adds in a training step on one image, f32[1, C, H, W]."""
    return _FLOPS_PER_MULTIPLY_ADD * multiply_adds(model, image)


def multiply_adds(model: nn.Module, image: Tensor) -> int:
    """Multiply-adds of convolutions and linear layers in the forward pass of one image, f32[1, C, H, W]."""
    total = 0

    def count(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal total
        assert isinstance(module, nn.Conv2d | nn.Linear)
        total += output.numel() * module.weight[0].numel()  # each output is a sum over one filter

    layers = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    model.eval()
    with torch.inference_mode():
        model(image)
    for hook in hooks:
        hook.remove()
    return total
