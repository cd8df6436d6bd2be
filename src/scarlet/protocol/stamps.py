"""What nobody needs to be told: which samples a round draws, which of them hit, and which are requested.

The draws follow from the seed, and the stamps of the server's cache follow from the draws. So every client keeps those
stamps, beside the entries that it really holds, and replays the rounds that it missed. Only exceptions must be named: a
round that was closed at a later attempt, or in which some samples were not answered. A checksum of the stamps tells a
client whether it came to the right ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from scarlet.arrays import Index, Labels
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.cache import ABSENT, CachePolicy, CacheTable, OutOfStep
from scarlet.protocol.messages import Exceptional, History, Stamps, Sync
from scarlet.rng import stream

Select = Callable[[np.random.Generator, int, int], Index]  # (generator, |P|, |P^t|) -> I^t

KEPT_ROUNDS = 256  # exceptions older than this are forgotten
_FARTHEST = 4096  # rounds that a client replays; one that missed more is sent the stamps
_NOTHING = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Draws:
    """How the samples and the stamps of a round follow from what server and clients agreed on."""

    agreement: Agreement
    select: Select
    policy: CachePolicy

    def index(self, round: int, attempt: int) -> Index:
        """I^t: the samples that an attempt at a round draws."""
        agreement = self.agreement
        rng = stream(agreement.seed, "server", round=round, attempt=attempt, purpose="select")
        return self.select(rng, agreement.public_size, agreement.public_per_round)

    def request(self, stamps: Stamps, round: int, attempt: int) -> Index:
        """I_req^t, given the stamps as of the end of the round before."""
        return self.policy.request(_table(stamps), self.index(round, attempt), round)

    def play(self, stamps: Stamps, round: int, attempt: int, dropped: Index) -> Sync:
        """Bring the stamps over a round; the round's sync, with labels of no class."""
        policy, index, table = self.policy.stamping, self.index(round, attempt), _table(stamps)
        request = policy.request(table, index, round)
        answered = request[~np.isin(request, dropped, assume_unique=True)]
        return policy.commit(table, Labels(answered, np.empty((len(answered), 0), np.float32)), index, round)


@dataclass(slots=True)
class StampHistory:
    """What the server keeps so that clients can derive the stamps of its cache."""

    before: Stamps  # i32[P]: the stamps as of the end of the round before the closed one
    applied: npt.NDArray[np.int32]  # i32[K]: the last round whose sync each client is known to have applied; -1: none
    exceptions: list[Exceptional] = field(default_factory=list)  # of the last rounds, the closed one included
    forgotten: int = 0  # exceptions up to this round are no longer kept

    @classmethod
    def empty(cls, public_size: int, clients: int) -> StampHistory:
        return cls(no_stamps(public_size), np.zeros(clients, np.int32))

    def add(self, sync: Sync) -> None:
        """Remember a round if it was an exception."""
        if sync.attempt or len(sync.dropped):
            self.exceptions.append(Exceptional(sync.round, sync.attempt, sync.dropped))
        while self.exceptions and self.exceptions[0].round <= sync.round - KEPT_ROUNDS:
            self.forgotten = self.exceptions.pop(0).round

    def needed(self, client: int, until: int) -> tuple[int, tuple[Exceptional, ...]] | None:
        """After which round a client needs exceptions named, and those; None if it needs the stamps themselves."""
        after = int(self.applied[client])
        if after < self.forgotten or after < 0:
            return None
        return after, tuple(each for each in self.exceptions if after < each.round <= until)


@dataclass(slots=True)
class StampReplay:
    """A client's copy of the stamps of the server's cache, as of the end of a round and of the round before it."""

    stamps: Stamps
    before: Stamps
    round: int = 0

    @classmethod
    def empty(cls, public_size: int) -> StampReplay:
        return cls(no_stamps(public_size), no_stamps(public_size))

    def until(self, draws: Draws, round: int, history: History | None) -> Stamps:
        """A copy of the stamps as of the end of a round; OutOfStep where they cannot be derived.

        `history` is what the server has to say of the rounds that this client missed, if anything.
        """
        if history is not None and history.stamps is not None:
            return history.stamps.copy()
        if round == self.round:
            return self.stamps.copy()
        if round == self.round - 1:
            return self.before.copy()
        after = 0 if history is None else history.after
        if not after <= self.round < round <= self.round + _FARTHEST:
            raise OutOfStep(f"the stamps of round {round} cannot be derived from those of round {self.round}")
        exceptions = {each.round: each for each in history.exceptions} if history is not None else {}
        stamps = self.stamps.copy()
        for missed in range(self.round + 1, round + 1):
            exception = exceptions.get(missed, Exceptional(missed, 0, _NOTHING))
            draws.play(stamps, missed, exception.attempt, exception.dropped)
        return stamps


def no_stamps(public_size: int) -> Stamps:
    """The stamps of an empty cache."""
    return np.full(public_size, ABSENT, np.int32)


def checksum(stamps: Stamps) -> int:
    """CRC-32 of the stamps, as little-endian words of 32 bits."""
    return crc32(stamps.astype("<i4", copy=False).tobytes())


def _table(stamps: Stamps) -> CacheTable:
    return CacheTable(np.empty((len(stamps), 0), np.float32), stamps)
