"""Residual networks (He et al., 2016): the CIFAR family of depth 6n+2, and ResNet-18 for 64-pixel images."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class _Block(nn.Module):
    """Two 3x3 convolutions and a shortcut.

    Where the shape changes, the shortcut either has no parameters (every other pixel, new channels zero: option A of
    the original) or is a 1x1 convolution with batch norm (option B).
    """

    def __init__(self, width_in: int, width: int, stride: int, *, projection: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.stride = stride
        self.new_channels = width - width_in
        self.shortcut: nn.Module | None = None
        if projection and (stride > 1 or width != width_in):
            project = nn.Conv2d(width_in, width, 1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(project, nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        if self.shortcut is not None:
            return functional.relu(y + self.shortcut(x), inplace=True)
        if self.stride > 1 or self.new_channels:
            before = self.new_channels // 2
            x = functional.pad(
                x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, before, self.new_channels - before)
            )
        return functional.relu(y + x, inplace=True)


class ResNet(nn.Module):
    """A 3x3 stem, then stages of blocks that each halve the image and widen it, then global average pooling."""

    def __init__(self, classes: int, channels: int, widths: tuple[int, ...], blocks: int, *, projection: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, widths[0], 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(widths[0])
        stages: list[nn.Module] = []
        width_in = widths[0]
        for stage, width in enumerate(widths):
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                stages.append(_Block(width_in, width, stride, projection=projection))
                width_in = width
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(width_in, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(functional.relu(self.bn(self.conv(x)), inplace=True))
        pooled: Tensor = self.head(torch.mean(x, dim=(2, 3)))
        return pooled


def resnet20(classes: int, shape: tuple[int, int, int] = (3, 32, 32)) -> nn.Module:
    """ResNet-20 for 32-pixel images, shortcuts without parameters: 0.27 M parameters with ten classes."""
    return ResNet(classes, shape[0], (16, 32, 64), 3, projection=False)


def resnet32(classes: int, shape: tuple[int, int, int] = (3, 32, 32)) -> nn.Module:
    """ResNet-32 for 32-pixel images, shortcuts without parameters: 0.46 M parameters with ten classes."""
    return ResNet(classes, shape[0], (16, 32, 64), 5, projection=False)


def resnet18(classes: int, shape: tuple[int, int, int] = (3, 64, 64)) -> nn.Module:
    """ResNet-18 with a 3x3 stem and no pooling before the first stage, as suits 64-pixel images: 11.2 M parameters."""
    return ResNet(classes, shape[0], (64, 128, 256, 512), 2, projection=True)
