"""What every method's server and clients say to each other: plain arrays and numbers.

What only one uplink or downlink says is in its own file. Whatever has a round, an attempt and a client is a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from scarlet.arrays import DIGEST_BYTES, Index, Labels, Mask, Values

Stamps = npt.NDArray[np.int32]  # [P]: the round in which each cache entry was stored, or -1

NO_LABELS_YET = bytes(DIGEST_BYTES)  # the digest before the first round
EVERYBODY = 2**32 - 1  # stands for a client's number in what is sent to all of them
LAST_ROUND = 2**31 - 1  # stamps are 32 bits wide


class Message(Protocol):
    """Belongs to an attempt at a round, and to the client that sends or receives it."""

    @property
    def round(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def client(self) -> int: ...


class Signal(IntEnum):
    """What became of a sample's cache entry in a round (gamma of Algorithm 2)."""

    CACHED = 0  # a hit: both sides reuse what they hold
    NEWLY_CACHED = 1  # a fresh label, stored
    EXPIRED = 2  # a fresh label, used once; the old entry is deleted
    UNCHANGED = 3  # a fresh label that is the one held already: stored anew, but not sent


_CACHED, _UNCHANGED = int(Signal.CACHED), int(Signal.UNCHANGED)  # an enum's attributes are slow to look up


@dataclass(frozen=True, slots=True)
class Sync:
    """What a client must know of a finished round to rebuild its soft-labels and its cache."""

    round: int
    index: Index  # i64[n], ascending: I^t less the samples that nobody answered
    signal: npt.NDArray[np.int64] | None  # i64[n]; None: the method keeps no cache and every label is fresh
    fresh: Values  # f32[m, N] or f32[m, C, N]: the labels of the samples that nobody holds, in the order of index
    dropped: Index  # i64[d]: requested samples that nobody answered; they have no cache entry any more
    attempt: int = 0  # at which the round was closed

    @property
    def held(self) -> Mask:
        """bool[n]: which labels everybody holds already, so that they are not in `fresh`."""
        if self.signal is None:
            return np.zeros(len(self.index), np.bool_)
        mask: Mask = (self.signal == _CACHED) | (self.signal == _UNCHANGED)
        return mask


@dataclass(frozen=True, slots=True)
class Broadcast:
    """What the server sends to every client of a round."""

    round: int
    attempt: int
    request: Index  # i64[r], ascending: I_req^t
    sync: Sync | None  # of the round before; None in the first round, or where each client is taught by itself
    digest: bytes  # of the labels taught in the round before
    agreement: bytes  # a digest of what everybody agreed on, the public dataset included
    stamps: int = 0  # a checksum of the stamps that the sync begins with, where clients derive them
    client: int = EVERYBODY


@dataclass(frozen=True, slots=True)
class CatchUp:
    """What the server sends to one client beside the broadcast: cached labels of the round before that it lacks."""

    round: int
    attempt: int
    client: int
    reset: bool  # the client must empty its cache first; the labels are then all that the round before reuses
    labels: Labels


@dataclass(frozen=True, slots=True)
class Exceptional:
    """A round that did not go as the seed alone would have it: a later attempt, or samples that nobody answered."""

    round: int
    attempt: int
    dropped: Index  # i64[d]


@dataclass(frozen=True, slots=True)
class History:
    """What one client must know to derive the stamps of the server's cache two rounds ago."""

    round: int
    attempt: int
    client: int
    after: int  # the exceptions are all of those after this round
    exceptions: tuple[Exceptional, ...]
    stamps: Stamps | None  # i32[P]: the stamps themselves, for a client that cannot derive them


@dataclass(frozen=True, slots=True)
class Resync:
    """What a client sends instead of an answer if its cache differs from the server's; it has not trained."""

    round: int
    attempt: int
    client: int


@dataclass(frozen=True, slots=True)
class Report:
    """A client's metrics: for the people who watch, never part of a method's bytes."""

    round: int
    attempt: int
    client: int
    metrics: Mapping[str, float]
