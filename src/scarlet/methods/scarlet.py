"""SCARLET: soft-label caching and sharpening (the paper's Algorithms 1 and 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from typing_extensions import Doc

from scarlet.methods.parts.aggregate import power
from scarlet.methods.parts.robust import Average, average
from scarlet.protocol.cache import Duration, OnExpiry
from scarlet.protocol.downlink.shared import Shared
from scarlet.protocol.method import Method


@dataclass(frozen=True, slots=True)
class ScarletConfig:
    """What SCARLET adds to the options of every method."""

    beta: Annotated[float, Doc("sharpness of Enhanced ERA; 1 leaves the mean as it is")] = 1.5
    cache_duration: Annotated[int, Doc("D, the rounds that a cached label serves; 0 never hits")] = 30
    average: Annotated[Average, Doc("of the clients' labels; median and trimmed withstand false ones")] = "mean"
    trim: Annotated[float, Doc("share that the trimmed mean leaves out at either end")] = 0.2
    on_expiry: Annotated[OnExpiry, Doc("refresh an expired entry, or delete it as the paper does")] = "refresh"

    def __post_init__(self) -> None:
        scarlet(self)


def scarlet(config: ScarletConfig) -> Method:
    """Synchronised soft-label caching with Enhanced ERA (Algorithms 1 and 2).

    cache_duration=0 and beta=1 give plain averaging without a cache.
    """
    return Method(
        aggregate=average(config.average, config.trim, then=power(config.beta)),
        downlink=Shared(Duration(config.cache_duration, config.on_expiry)),
    )
