"""What server and client say to each other: plain arrays and numbers, easy to encode, store and compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from hashlib import blake2b
from typing import Literal

import numpy as np
import numpy.typing as npt

Index = npt.NDArray[np.int64]
Values = npt.NDArray[np.float32]
Stamps = npt.NDArray[np.int32]  # [P]: the round in which each cache entry was stored, or -1
Images = npt.NDArray[np.uint8] | npt.NDArray[np.float32]  # [n, C, H, W]
Attack = Literal["flip", "random"]  # what a hostile client does to its soft-labels
EngineName = Literal["auto", "contiguous", "channels-last", "native", "compiled", "batched"]

DIGEST_BYTES = 8
NO_LABELS_YET = bytes(DIGEST_BYTES)  # the digest before the first round
NOTHING = bytes(DIGEST_BYTES)  # the name of no answer
EVERYBODY = 2**32 - 1  # stands for a client's number in what is sent to all of them


@dataclass(frozen=True, slots=True)
class Labels:
    """Soft-labels of some public samples."""

    index: Index  # i64[n], ascending
    value: Values  # f32[n, N], each row a distribution; or f32[n, C, N] where a sample has several teachers

    def digest(self) -> bytes:
        """A fingerprint of the values, and of the samples that they belong to."""
        content = blake2b(self.index.astype("<i8").tobytes(), digest_size=DIGEST_BYTES)
        content.update(self.value.astype("<f4", copy=False).tobytes())
        return content.digest()


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
    def held(self) -> npt.NDArray[np.bool_]:
        """bool[n]: which labels everybody holds already, so that they are not in `fresh`."""
        if self.signal is None:
            return np.zeros(len(self.index), np.bool_)
        mask: npt.NDArray[np.bool_] = (self.signal == _CACHED) | (self.signal == _UNCHANGED)
        return mask


@dataclass(frozen=True, slots=True)
class Broadcast:
    """What the server sends to every client of a round."""

    round: int
    attempt: int
    request: Index  # i64[r], ascending: I_req^t
    sync: Sync | None  # of the round before; None in the first round, or where each client is taught by itself
    digest: bytes  # of the labels taught in the round before
    public: bytes  # the fingerprint of the public set, which everybody must hold alike
    stamps: int = 0  # a checksum of the stamps that the sync begins with, where clients work them out


@dataclass(frozen=True, slots=True)
class CatchUp:
    """What the server sends to one client beside the broadcast: cached labels of the round before that it lacks."""

    round: int
    attempt: int
    client: int
    reset: bool  # the client must empty its cache first; the labels are then all that the round before reuses
    labels: Labels


@dataclass(frozen=True, slots=True)
class Lesson:
    """What the server teaches one client where each is taught by a teacher of its own."""

    round: int
    attempt: int
    client: int
    labels: Labels
    drawn: int = 0  # the attempt at which the round before, whose labels they are, was closed


@dataclass(frozen=True, slots=True)
class Exceptional:
    """A round that did not go as the seed alone would have it: a later attempt, or samples that nobody answered."""

    round: int
    attempt: int
    dropped: Index  # i64[d]


@dataclass(frozen=True, slots=True)
class History:
    """What one client must know to work out the stamps of the server's cache two rounds ago."""

    round: int
    attempt: int
    client: int
    after: int  # the exceptions are all of those after this round
    exceptions: tuple[Exceptional, ...]
    stamps: Stamps | None  # i32[P]: the stamps themselves, for a client that cannot work them out


@dataclass(frozen=True, slots=True)
class Accepted:
    """What the server sends to one client under delta coding: the name of its last answer that was accepted."""

    round: int
    attempt: int
    client: int
    name: bytes  # NOTHING if there was none


@dataclass(frozen=True, slots=True)
class Uplink:
    """A client's soft-labels of the requested samples."""

    round: int
    attempt: int
    client: int
    labels: Labels
    same: Index = field(default_factory=lambda: np.empty(0, np.int64))  # samples whose label is as last accepted
    base: bytes = NOTHING  # the name of the accepted answer that `same` refers to; NOTHING: forget what was accepted


@dataclass(frozen=True, slots=True)
class Parameters:
    """A model's weights and buffers: the server's to everybody, or a client's to the server."""

    round: int
    attempt: int
    client: int  # the sender, or EVERYBODY
    samples: int  # that the client trained on: its weight in the mean
    value: Values  # f32[M]


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


Message = Broadcast | CatchUp | Lesson | Accepted | History | Uplink | Parameters | Resync | Report


@dataclass(frozen=True, slots=True)
class Job:
    """What a client has to do in a round: learn from the teacher, then from its own data, then answer."""

    client: int
    round: int
    attempt: int
    teacher: Labels
    request: Index
    parameters: Values | None = None  # f32[M]: to begin with, where weights are exchanged
    downlink: bytes = b""  # a hash of the downlink that it came from


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a job."""

    value: Values  # f32[r, N]: soft-labels of the requested samples
    metrics: Mapping[str, float]
    samples: int = 0  # that the client trained on
    parameters: Values | None = None  # f32[M]: of its model, where weights are exchanged
