"""FedAvg: averaging of models (McMahan et al., AISTATS 2017). The classic reference for bytes and accuracy."""

from __future__ import annotations

from dataclasses import dataclass

from scarlet.methods.parts.mean import mean
from scarlet.protocol.method import Method, nothing
from scarlet.protocol.uplink.weights import Weights


@dataclass(frozen=True, slots=True)
class FedavgConfig:
    """FedAvg has no options of its own."""


def fedavg(config: FedavgConfig) -> Method:
    """Clients train the server's model on their own data; it becomes their mean, weighted by samples."""
    return Method(aggregate=mean(), select=nothing, uplink=Weights())
