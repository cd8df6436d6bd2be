"""Centralized: one client that holds everybody's data. What collaboration could reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from typing_extensions import Doc

from scarlet.errors import ConfigError
from scarlet.methods.parts.mean import mean
from scarlet.protocol.method import Method, nothing


@dataclass(frozen=True, slots=True)
class CentralizedConfig:
    """The options of Centralized."""

    central_lr: Annotated[
        float | None, Doc("SGD learning rate of the one model; the paper uses 0.01 (default: --lr)")
    ] = None

    def __post_init__(self) -> None:
        if self.central_lr is not None and not (np.isfinite(self.central_lr) and self.central_lr > 0):
            raise ConfigError(f"central_lr must be more than 0, got {self.central_lr}; leave it out to use lr")


def centralized(config: CentralizedConfig) -> Method:
    """Individual training of one client that holds the images of all, and is tested on the whole test split."""
    return Method(aggregate=mean(), select=nothing, server_learns=False, pooled=True, local_lr=config.central_lr)
