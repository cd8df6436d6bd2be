"""DS-FL: distillation-based semi-supervised federated learning (Itahara et al., IEEE TMC 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from typing_extensions import Doc

from scarlet.methods.parts.aggregate import era
from scarlet.methods.parts.robust import Average, average
from scarlet.protocol.method import Method


@dataclass(frozen=True, slots=True)
class DsflConfig:
    """What DS-FL adds to the options of every method."""

    temperature: Annotated[float, Doc("T of ERA; smaller is sharper, and more classes need a smaller one")] = 0.1
    average: Annotated[Average, Doc("of the clients' labels; median and trimmed withstand false ones")] = "mean"
    trim: Annotated[float, Doc("share that the trimmed mean leaves out at either end")] = 0.2

    def __post_init__(self) -> None:
        dsfl(self)


def dsfl(config: DsflConfig) -> Method:
    """Every sample of the round is labelled by everyone, averaged, and sharpened by a softmax over probabilities."""
    return Method(aggregate=average(config.average, config.trim, then=era(config.temperature)))
