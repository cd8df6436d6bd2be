"""A network for rows of a table."""

from __future__ import annotations

import math

from torch import nn


def mlp(classes: int, shape: tuple[int, ...]) -> nn.Module:
    """Two hidden layers of 64, whatever the shape of the inputs: it is flattened first."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(shape), 64),
        nn.ReLU(inplace=True),
        nn.Linear(64, 64),
        nn.ReLU(inplace=True),
        nn.Linear(64, classes),
    )
