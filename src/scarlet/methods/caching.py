"""The options of a cache, for every method that can do with or without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from typing_extensions import Doc

from scarlet.protocol.cache import CachePolicy, OnExpiry, caching


@dataclass(frozen=True, slots=True)
class Caching:
    """What caching adds to the options of a method."""

    cache_duration: Annotated[int, Doc("D, the rounds that a cached label serves; 0: no cache")] = 0
    on_expiry: Annotated[OnExpiry, Doc("refresh an expired entry, or delete it as the paper does")] = "refresh"

    @property
    def policy(self) -> CachePolicy:
        """The cache that the options ask for."""
        return caching(self.cache_duration, self.on_expiry)
