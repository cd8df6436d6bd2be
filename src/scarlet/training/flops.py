"""How much a model computes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_OF_A_STEP = 6  # for each multiply-add of a forward pass: 2, and twice as many again in the backward pass


def step_flops(model: nn.Module, image: Tensor) -> int:
    """Floating-point operations of a training step on one image, f32[1, C, H, W], as far as they multiply and add."""
    return _OF_A_STEP * multiply_adds(model, image)


def multiply_adds(model: nn.Module, image: Tensor) -> int:
    """Multiply-adds of convolutions and linear layers in one forward pass of one image, f32[1, C, H, W]."""
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
