"""What nobody needs to be told: which samples a round draws, which of them hit, and which are asked for.

The draws follow from the seed, and the stamps of the server's cache follow from the draws. So every client keeps the
stamps, beside the entries that it really holds, and replays the rounds that it missed. Only exceptions must be named: a
round that was closed at a later attempt, or in which some samples were not answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scarlet.core.cache import ABSENT, CacheTable, Delta
from scarlet.core.method import Method
from scarlet.core.rng import stream
from scarlet.core.types import Index, Labels, Sync
from scarlet.errors import MessageError

Stamps = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Exceptional:
    """A round that did not go as the seed alone would have it."""

    round: int
    attempt: int
    dropped: Index  # samples that were asked for and not answered


@dataclass(frozen=True, slots=True)
class Rules:
    """What server and clients agree on, as far as draws and stamps depend on it."""

    method: Method
    seed: int
    public_size: int
    public_per_round: int

    def index(self, round: int, attempt: int) -> Index:
        """I^t: the samples that an attempt at a round draws."""
        if self.method.exchange != "labels":
            return np.empty(0, np.int64)
        rng = stream(self.seed, "server", round=round, attempt=attempt, purpose="select")
        return self.method.select(rng, self.public_size, self.public_per_round)

    def request(self, stamp: Stamps, round: int, attempt: int) -> Index:
        """I_req^t."""
        return self.method.cache.request(_table(stamp), self.index(round, attempt), round)

    def play(self, stamp: Stamps, round: int, attempt: int, dropped: Index) -> Sync:
        """Bring the stamps over a round; the round's sync, with labels of no class."""
        policy = self.method.cache.policy if isinstance(self.method.cache, Delta) else self.method.cache
        index, table = self.index(round, attempt), _table(stamp)
        request = policy.request(table, index, round)
        answered = request[~np.isin(request, dropped, assume_unique=True)]
        return policy.commit(table, Labels(answered, np.empty((len(answered), 0), np.float32)), index, round)


@dataclass(slots=True)
class Schedule:
    """The stamps of the server's cache as of a round, and as of the round before it."""

    stamp: Stamps  # i32[P]
    before: Stamps  # i32[P]
    round: int = 0

    @classmethod
    def empty(cls, public_size: int) -> Schedule:
        return cls(*(np.full(public_size, ABSENT, np.int32) for _ in range(2)))

    def until(self, rules: Rules, round: int, exceptions: Sequence[Exceptional]) -> Stamps:
        """A copy of the stamps as of the end of a round; MessageError if that is too long ago."""
        if round == self.round - 1:
            return self.before.copy()
        if round < self.round:
            raise MessageError(f"the stamps of round {round} are no longer known in round {self.round}")
        stamp = self.stamp.copy()
        known = {each.round: each for each in exceptions}
        for missed in range(self.round + 1, round + 1):
            odd = known.get(missed)
            nothing = np.empty(0, np.int64)
            rules.play(stamp, missed, odd.attempt if odd else 0, odd.dropped if odd else nothing)
        return stamp

    def advance(self, before: Stamps, stamp: Stamps, round: int) -> None:
        """Go on to the end of a round."""
        self.before, self.stamp, self.round = before, stamp, round


def _table(stamp: Stamps) -> CacheTable:
    return CacheTable(np.empty((len(stamp), 0), np.float32), stamp)
