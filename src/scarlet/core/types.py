"""What server and client say to each other: plain arrays and numbers, easy to encode, store and compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b
from typing import Literal

import numpy as np
import numpy.typing as npt

Index = npt.NDArray[np.int64]
Values = npt.NDArray[np.float32]
Attack = Literal["flip", "random"]  # what a hostile client does to its soft-labels

DIGEST_BYTES = 8
NO_LABELS_YET = bytes(DIGEST_BYTES)  # the digest before the first round


@dataclass(frozen=True, slots=True)
class Labels:
    """Soft-labels of some public samples."""

    index: Index  # i64[n], ascending
    value: Values  # f32[n, N], each row a distribution

    def digest(self) -> bytes:
        """A fingerprint of the values, and of the samples that they belong to."""
        content = blake2b(self.index.astype("<i8").tobytes(), digest_size=DIGEST_BYTES)
        content.update(self.value.astype("<f4").tobytes())
        return content.digest()


class Signal(IntEnum):
    """What became of a sample's cache entry in a round (gamma of Algorithm 2)."""

    CACHED = 0  # a hit: both sides reuse what they hold
    NEWLY_CACHED = 1  # a fresh label, stored
    EXPIRED = 2  # a fresh label, used once; the old entry is deleted


@dataclass(frozen=True, slots=True)
class Sync:
    """What a client must know of a finished round to rebuild its soft-labels and its cache."""

    round: int
    index: Index  # i64[n], ascending: I^t less the samples that nobody answered
    signal: npt.NDArray[np.int64] | None  # i64[n]; None: the method keeps no cache and every label is fresh
    fresh: Values  # f32[m, N]: the labels of the samples that are not CACHED, in the order of index
    dropped: Index  # i64[d]: requested samples that nobody answered; they have no cache entry any more


@dataclass(frozen=True, slots=True)
class Broadcast:
    """What the server sends to every client of a round."""

    round: int
    attempt: int
    request: Index  # i64[r], ascending: I_req^t
    sync: Sync | None  # of the round before; None in the first round
    digest: bytes  # of the labels taught in the round before
    public: bytes  # the fingerprint of the public set, which everybody must hold alike


@dataclass(frozen=True, slots=True)
class CatchUp:
    """What the server sends to one client beside the broadcast: cached labels of the round before that it lacks."""

    round: int
    attempt: int
    client: int
    reset: bool  # the client must empty its cache first; the labels are then all that the round before reuses
    labels: Labels


@dataclass(frozen=True, slots=True)
class Uplink:
    """A client's soft-labels of the requested samples."""

    round: int
    attempt: int
    client: int
    labels: Labels


@dataclass(frozen=True, slots=True)
class Resync:
    """A client's word that its cache differs from the server's; it has not trained."""

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


Message = Broadcast | CatchUp | Uplink | Resync | Report


@dataclass(frozen=True, slots=True)
class Job:
    """What a client has to do in a round: learn from the teacher, then from its own data, then answer."""

    client: int
    round: int
    attempt: int
    teacher: Labels
    request: Index
    downlink: bytes = b""  # a hash of the downlink that it came from


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a job."""

    value: Values  # f32[r, N]: soft-labels of the requested samples
    metrics: Mapping[str, float]
