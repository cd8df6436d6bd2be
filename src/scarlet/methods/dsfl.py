"""DS-FL: distillation-based semi-supervised federated learning (Itahara et al., IEEE TMC 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from typing_extensions import Doc

from scarlet.methods.parts.robust import Average, Trim, average
from scarlet.methods.parts.sharpening import era
from scarlet.protocol.method import Method


@dataclass(frozen=True, slots=True)
class DsflConfig:
    """The options of DS-FL."""

    temperature: Annotated[
        float,
        Doc("temperature T of ERA; smaller sharpens the mean soft-labels more, and more classes need a smaller T"),
    ] = 0.1
    average: Average = "mean"
    trim: Trim = 0.2

    def __post_init__(self) -> None:
        dsfl(self)


def dsfl(config: DsflConfig) -> Method:
    """Every sample of the round is labelled by everyone, averaged, and sharpened by a softmax over probabilities."""
    return Method(aggregate=average(config.average, config.trim, then=era(config.temperature)))
