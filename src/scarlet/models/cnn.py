"""Small convolutional networks, quick enough to learn something on two CPU cores."""

from __future__ import annotations

from torch import nn


def cnn(classes: int, shape: tuple[int, int, int] = (1, 28, 28)) -> nn.Module:
    """The embedded default's network: two convolutions of stride 2 and two linear layers."""
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 16, 5, stride=2, padding=2),
        nn.ReLU(inplace=True),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(32 * -(-height // 4) * -(-width // 4), 64),
        nn.ReLU(inplace=True),
        nn.Linear(64, classes),
    )


def cnn32(classes: int, shape: tuple[int, int, int] = (3, 32, 32)) -> nn.Module:
    """Three 3x3 convolutions of stride 2 (to 32, 64 and 64 channels) with batch norm and ReLU, then linear."""
    channels, height, width = shape
    layers: list[nn.Module] = []
    for width_in, width_out in ((channels, 32), (32, 64), (64, 64)):
        convolution = nn.Conv2d(width_in, width_out, 3, stride=2, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(width_out), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * -(-height // 8) * -(-width // 8), classes))
