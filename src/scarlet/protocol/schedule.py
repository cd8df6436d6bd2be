"""What nobody needs to be told: which samples a round draws, which of them hit, and which are asked for.

The draws follow from the seed, and the stamps of the server's cache follow from the draws. So every client keeps those
stamps, beside the entries that it really holds, and replays the rounds that it missed. Only exceptions must be named: a
round that was closed at a later attempt, or in which some samples were not answered. A checksum of the stamps tells a
client whether it came to the right ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from zlib_ng.zlib_ng import crc32

from scarlet.errors import MessageError
from scarlet.protocol.cache import ABSENT, CacheTable, Delta, NoCache
from scarlet.protocol.federation import Federation
from scarlet.protocol.method import Method
from scarlet.protocol.types import History, Index, Labels, Stamps, Sync
from scarlet.rng import stream

_NOTHING = np.empty(0, np.int64)
_FARTHEST = 4096  # rounds that a client works out for itself; one that missed more is sent the stamps


class OutOfStep(MessageError):
    """A message is well formed, but this client does not know enough to read it."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How draws and stamps follow from what server and clients agreed on."""

    method: Method
    federation: Federation

    @property
    def keep_stamps(self) -> bool:
        """Whether a round depends on earlier ones: without a cache every sample is asked for, whatever happened."""
        return not isinstance(self.method.cache, NoCache)

    def index(self, round: int, attempt: int) -> Index:
        """I^t: the samples that an attempt at a round draws."""
        if self.method.exchange != "labels":
            return _NOTHING
        federation = self.federation
        rng = stream(federation.seed, "server", round=round, attempt=attempt, purpose="select")
        return self.method.select(rng, federation.public_size, federation.public_per_round)

    def request(self, stamps: Stamps, round: int, attempt: int) -> Index:
        """I_req^t, given the stamps as of the end of the round before."""
        return self.method.cache.request(_table(stamps), self.index(round, attempt), round)

    def play(self, stamps: Stamps, round: int, attempt: int, dropped: Index) -> Sync:
        """Bring the stamps over a round; the round's sync, with labels of no class."""
        # Whether a fresh label is the one that was held makes no difference to its stamp.
        policy = self.method.cache.policy if isinstance(self.method.cache, Delta) else self.method.cache
        index, table = self.index(round, attempt), _table(stamps)
        request = policy.request(table, index, round)
        answered = request[~np.isin(request, dropped, assume_unique=True)]
        return policy.commit(table, Labels(answered, np.empty((len(answered), 0), np.float32)), index, round)


@dataclass(slots=True)
class Schedule:
    """The stamps of the server's cache as of the end of a round, and as of the end of the round before it."""

    stamps: Stamps
    before: Stamps
    round: int = 0

    @classmethod
    def empty(cls, public_size: int) -> Schedule:
        return cls(np.full(public_size, ABSENT, np.int32), np.full(public_size, ABSENT, np.int32))

    def until(self, rules: Rules, round: int, history: History | None) -> Stamps:
        """A copy of the stamps as of the end of a round; OutOfStep where they cannot be worked out.

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
            raise OutOfStep(f"the stamps of round {round} cannot be worked out from those of round {self.round}")
        odd = {each.round: each for each in history.exceptions} if history is not None else {}
        stamps = self.stamps.copy()
        for missed in range(self.round + 1, round + 1):
            if missed in odd:
                rules.play(stamps, missed, odd[missed].attempt, odd[missed].dropped)
            else:
                rules.play(stamps, missed, 0, _NOTHING)
        return stamps


@dataclass(slots=True)
class Known:
    """What a side knows of a round beside the message that it reads or writes."""

    rules: Rules
    request: Index = field(default_factory=lambda: _NOTHING)  # of the round under way
    schedule: Schedule | None = None  # a client's
    history: History | None = None
    after: Schedule | None = None  # what reading a broadcast makes of the schedule
    _request_bytes: bytes | None = None

    @property
    def request_bytes(self) -> bytes:
        """The request as little-endian words of 64 bits."""
        if self._request_bytes is None:
            self._request_bytes = self.request.astype("<i8", copy=False).tobytes()
        return self._request_bytes

    def before(self, round: int, expected: int) -> Stamps:
        """A copy of the stamps that a round's sync begins with; OutOfStep if their checksum is not the server's."""
        if self.schedule is None:
            raise MessageError("a broadcast is for clients")
        stamps = self.schedule.until(self.rules, round - 1, self.history)
        if checksum(stamps) != expected:
            raise OutOfStep(f"the stamps of round {round - 1} are not those of the server")
        return stamps


def checksum(stamps: Stamps) -> int:
    """CRC-32 of the stamps, as little-endian words of 32 bits."""
    return crc32(stamps.astype("<i4", copy=False).tobytes())


def _table(stamps: Stamps) -> CacheTable:
    return CacheTable(np.empty((len(stamps), 0), np.float32), stamps)
