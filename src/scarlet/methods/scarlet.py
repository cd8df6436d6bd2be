"""SCARLET: soft-label caching and sharpening (the paper's Algorithms 1 and 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from typing_extensions import Doc

from scarlet.methods.caching import Expiry
from scarlet.methods.parts.robust import Average, Trim, average
from scarlet.methods.parts.sharpening import Beta, Rho, enhanced_era
from scarlet.protocol.cache import Duration
from scarlet.protocol.downlink.shared import Shared
from scarlet.protocol.method import Method


@dataclass(frozen=True, slots=True)
class ScarletConfig:
    """The options of SCARLET."""

    beta: Beta = 1.5
    rho: Rho = 0.25
    cache_duration: Annotated[int, Doc("D, rounds for which a cached soft-label is reused; 0: never")] = 30
    average: Average = "mean"
    trim: Trim = 0.2
    on_expiry: Expiry = "refresh"

    def __post_init__(self) -> None:
        scarlet(self)


def scarlet(config: ScarletConfig) -> Method:
    """Synchronised soft-label caching with Enhanced ERA (Algorithms 1 and 2).

    cache_duration=0 and beta=1 give plain averaging without a cache.
    """
    return Method(
        aggregate=average(config.average, config.trim, then=enhanced_era(config.beta, config.rho)),
        downlink=Shared(Duration(config.cache_duration, config.on_expiry)),
    )
