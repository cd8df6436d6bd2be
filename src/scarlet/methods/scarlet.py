"""SCARLET: soft-label caching and sharpening (the paper's Algorithms 1 and 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from typing_extensions import Doc

from scarlet.errors import ConfigError
from scarlet.methods.caching import Expiry
from scarlet.methods.parts.robust import Average, Trim, average
from scarlet.methods.parts.sharpening import Adaptive, Power
from scarlet.protocol.cache import Duration
from scarlet.protocol.downlink.shared import Shared
from scarlet.protocol.method import Method


@dataclass(frozen=True, slots=True)
class ScarletConfig:
    """The options of SCARLET."""

    beta: Annotated[
        float | Literal["auto"],
        Doc(
            "exponent of Enhanced ERA; larger sharpens the mean soft-labels more, 1 leaves them unchanged; auto: the "
            "server chooses one for each round, from how far the clients disagree"
        ),
    ] = 1.5
    rho: Annotated[
        float, Doc("with --beta auto: fraction of the clients' disagreement that sharpening removes; 0: none")
    ] = 0.5
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
    adaptive = Adaptive(config.rho)  # checked even where it is not used
    if isinstance(config.beta, str) and config.beta != "auto":
        raise ConfigError(f"beta must be a number or auto, got {config.beta!r}; use 1 to leave the mean as it is")
    sharpen = adaptive if config.beta == "auto" else Power(config.beta)
    return Method(
        aggregate=average(config.average, config.trim, then=sharpen),
        downlink=Shared(Duration(config.cache_duration, config.on_expiry)),
    )
