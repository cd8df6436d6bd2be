"""The synchronised soft-label cache (Algorithm 2), vectorised over samples.

A policy decides on the server; `store` carries its decisions out, the same code on the server and on every client, so
the two sides cannot come to differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np

from scarlet.arrays import Index, Labels, Mask, Values
from scarlet.errors import ConfigError, MessageError
from scarlet.protocol.messages import Signal, Stamps, Sync

OnExpiry = Literal["delete", "refresh"]
ABSENT = -1
# An enum's attributes are slow to look up.
_CACHED, _NEWLY_CACHED, _EXPIRED, _UNCHANGED = (int(signal) for signal in Signal)


class OutOfStep(MessageError):
    """A message is well formed, but this client does not know enough to read it."""


@dataclass(slots=True)
class CacheTable:
    """One entry for each public sample, or none."""

    value: Values  # f32[P, N], or f32[P, C, N] where a sample has several teachers
    stamp: Stamps  # i32[P]: the round in which the entry was stored, or ABSENT

    @classmethod
    def empty(cls, size: int, *label: int) -> CacheTable:
        """`label` is the shape of a label: N, or C and N."""
        return cls(np.zeros((size, *label), np.float32), np.full(size, ABSENT, np.int32))


class CachePolicy(Protocol):
    """Decides which samples are asked for, and what becomes of the labels that were fetched."""

    @property
    def duration(self) -> int:
        """D: an entry that is older never hits."""

    @property
    def caches(self) -> bool:
        """Whether a round depends on earlier ones; without a cache every sample is requested, whatever happened."""

    @property
    def stamping(self) -> CachePolicy:
        """The policy that decides on stamps alone, which clients replay: it may not look at what labels say."""

    def request(self, table: CacheTable, index: Index, round: int) -> Index:
        """The samples of `index` that clients must label in this round (I_req)."""

    def commit(self, table: CacheTable, fresh: Labels, index: Index, round: int) -> Sync:
        """Take in the labels of the requested samples that were answered (UpdateGlobalCache)."""


@dataclass(frozen=True, slots=True)
class Duration:
    """Entries live for `duration` (D) rounds after they were stored.

    `delete` is the paper's Algorithm 2: an expired entry is deleted, and its sample's next sighting is a second miss.
    `refresh` stores the fresh label, which was transmitted anyway. duration=0 never hits.
    """

    duration: int
    on_expiry: OnExpiry = "delete"
    caches: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.duration < 0:
            raise ConfigError(f"cache_duration must be 0 or more, got {self.duration}; use 0 to switch caching off")
        if self.on_expiry not in ("delete", "refresh"):
            raise ConfigError(f"on_expiry must be delete or refresh, got {self.on_expiry!r}; delete is the paper's")

    @property
    def stamping(self) -> CachePolicy:
        return self

    def hits(self, table: CacheTable, index: Index, round: int) -> Mask:
        """The one rule of expiry: an entry serves while its age is at most D."""
        stamp = table.stamp[index]
        hit: Mask = (stamp != ABSENT) & (round - stamp <= self.duration)
        return hit

    def request(self, table: CacheTable, index: Index, round: int) -> Index:
        return index[~self.hits(table, index, round)]

    def commit(self, table: CacheTable, fresh: Labels, index: Index, round: int) -> Sync:
        hit = self.hits(table, index, round)
        answered = member(index, fresh.index, len(table.stamp)) | hit
        dropped = index[~answered]
        index, hit = index[answered], hit[answered]
        signal = np.where(hit, _CACHED, _NEWLY_CACHED)
        if self.on_expiry == "delete":
            signal[~hit & (table.stamp[index] != ABSENT)] = _EXPIRED
        sync = Sync(round, index, signal, fresh.value, dropped)
        store(table, sync)
        return sync


@dataclass(frozen=True, slots=True)
class NoCache:
    """Every sample is asked for in every round, and no signal is sent."""

    duration: ClassVar[int] = 0
    caches: ClassVar[bool] = False

    @property
    def stamping(self) -> CachePolicy:
        return self

    def request(self, table: CacheTable, index: Index, round: int) -> Index:
        return index

    def commit(self, table: CacheTable, fresh: Labels, index: Index, round: int) -> Sync:
        dropped = index[~member(index, fresh.index, len(table.stamp))]
        return Sync(round, fresh.index, None, fresh.value, dropped)


def recall(table: CacheTable, sync: Sync) -> Labels:
    """The soft-labels of a round: the fresh ones and, for the hits, those in the table.

    With `store`, this is UpdateLocalCache. Hits are not changed by `store`, so the order of the two does not matter.
    """
    if sync.signal is None:
        return Labels(sync.index, sync.fresh)
    mask = sync.held
    held = sync.index[mask]
    missing = held[table.stamp[held] == ABSENT]
    if len(missing):
        raise OutOfStep(
            f"round {sync.round} reuses {len(missing)} samples that are not in the cache, first {missing[0]}"
        )
    value = np.empty((len(sync.index), *table.value.shape[1:]), np.float32)
    value[mask] = table.value[held]
    value[~mask] = sync.fresh
    return Labels(sync.index, value)


def store(table: CacheTable, sync: Sync) -> None:
    """Write a round's changes into a table. Doing it twice is harmless."""
    if sync.signal is None:
        return
    stored = sync.signal == _NEWLY_CACHED
    table.value[sync.index[stored]] = sync.fresh[stored[~sync.held]]
    table.stamp[sync.index[stored | (sync.signal == _UNCHANGED)]] = sync.round
    table.stamp[sync.index[sync.signal == _EXPIRED]] = ABSENT
    table.stamp[sync.dropped] = ABSENT


def member(index: Index, members: Index, size: int) -> Mask:
    """Which of some samples are among others, all of them below `size`."""
    mask = np.zeros(size, np.bool_)
    mask[members] = True
    return mask[index]
