"""The options of a soft-label cache, for every method that works with and without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from typing_extensions import Doc

from scarlet.protocol.cache import CachePolicy, Duration, NoCache, OnExpiry

Expiry = Annotated[
    OnExpiry, Doc("new label of a sample whose cache entry expired: refresh caches it, delete (the paper) does not")
]


@dataclass(frozen=True, slots=True)
class Caching:
    """The options that caching adds to a method."""

    cache_duration: Annotated[int, Doc("D, rounds for which a cached soft-label is reused; 0: no cache")] = 0
    on_expiry: Expiry = "refresh"

    @property
    def policy(self) -> CachePolicy:
        """The cache that the options ask for; without one, no signals are sent."""
        return Duration(self.cache_duration, self.on_expiry) if self.cache_duration else NoCache()
