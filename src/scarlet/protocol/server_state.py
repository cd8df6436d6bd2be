"""What the server of a federation remembers from one round to the next: plain arrays and numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from scarlet.protocol.cache import ABSENT, CacheTable
from scarlet.protocol.delta import Memory
from scarlet.protocol.holdings import Holdings
from scarlet.protocol.types import NO_LABELS_YET, Exceptional, Index, Labels, Stamps, Sync, Values

KEPT_ROUNDS = 256  # exceptions older than this are forgotten


@dataclass(slots=True)
class Progress:
    """What the server keeps so that clients can work out the stamps of its cache."""

    before: Stamps  # i32[P]: the stamps as of the end of the round before the closed one
    applied: npt.NDArray[np.int32]  # i32[K]: the last round whose sync each client is known to have applied; -1: none
    exceptions: list[Exceptional] = field(default_factory=list)  # of the last rounds, the closed one included
    forgotten: int = 0  # exceptions up to this round are no longer kept

    @classmethod
    def empty(cls, public_size: int, clients: int) -> Progress:
        return cls(np.full(public_size, ABSENT, np.int32), np.zeros(clients, np.int32))

    def note(self, sync: Sync) -> None:
        """Take down a round if it was an exception."""
        if sync.attempt or len(sync.dropped):
            self.exceptions.append(Exceptional(sync.round, sync.attempt, sync.dropped))
        while self.exceptions and self.exceptions[0].round <= sync.round - KEPT_ROUNDS:
            self.forgotten = self.exceptions.pop(0).round

    def history(self, client: int, until: int) -> tuple[int, tuple[Exceptional, ...]] | None:
        """After which round a client needs exceptions named, and those; None if it needs the stamps themselves."""
        after = int(self.applied[client])
        if after < self.forgotten or after < 0:
            return None
        return after, tuple(each for each in self.exceptions if after < each.round <= until)


@dataclass(slots=True)
class Lessons:
    """What each client is to be taught of the last round, where each has a teacher of its own."""

    index: Index  # i64[n]
    value: Values  # f32[n, C + 1, N]: the teachers, and at last their plain mean
    clients: Index  # i64[A]: who answered, ascending
    choice: npt.NDArray[np.int32]  # i32[A, n]: the teacher of each; whoever did not answer is taught the mean
    drawn: int  # the attempt at which the round was closed

    def of(self, client: int) -> Labels:
        row = np.flatnonzero(self.clients == client)
        chosen = self.choice[row[0]] if len(row) else self.value.shape[1] - 1
        return Labels(self.index, self.value[np.arange(len(self.index)), chosen])


@dataclass(slots=True)
class ServerState:
    """All that the server remembers from one round to the next: plain arrays and numbers."""

    cache: CacheTable
    holdings: Holdings
    target: Values | None = None  # f32[P, N]: what its model learned of each cached sample, if not what was taught
    accepted: dict[int, Memory] | None = None  # under delta coding: the last labels of each client that gave any
    lessons: Lessons | None = None
    progress: Progress | None = None  # where the codec leaves out what clients can work out
    round: int = 0  # the last round that was closed
    attempt: int = 0  # how often the round after it has failed
    sync: Sync | None = None  # of the closed round
    digest: bytes = NO_LABELS_YET  # of the labels taught in it
