"""Small convolutional networks, quick enough to learn something on two CPU cores."""

from __future__ import annotations

from torch import nn


def cnn(classes: int, channels: int = 1, size: int = 28) -> nn.Module:
    """The embedded default's network: two convolutions of stride 2 and two linear layers."""
    side = -(-size // 4)
    return nn.Sequential(
        nn.Conv2d(channels, 16, 5, stride=2, padding=2),
        nn.ReLU(inplace=True),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(32 * side * side, 64),
        nn.ReLU(inplace=True),
        nn.Linear(64, classes),
    )


def cnn32(classes: int, channels: int = 3, size: int = 32) -> nn.Module:
    """Three 3x3 convolutions of stride 2 (to 32, 64 and 64 channels) with batch norm and ReLU, then linear."""
    side = -(-size // 8)
    layers: list[nn.Module] = []
    for width_in, width_out in ((channels, 32), (32, 64), (64, 64)):
        convolution = nn.Conv2d(width_in, width_out, 3, stride=2, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(width_out), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * side * side, classes))
