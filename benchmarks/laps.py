"""What contestants hand in, how they take turns, and what their times come to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks.limit import CORES
from scarlet.errors import ScarletError


class Withdrawn(ScarletError):
    """A contestant cannot take part; the race goes on without it."""


@dataclass(frozen=True, slots=True)
class Lap:
    """One round, or one step of it."""

    seconds: float
    compute: float = 0.0  # seconds of training, prediction and evaluation, all clients and the server together

    @property
    def overhead(self) -> float:
        """Seconds beyond what two cores need that never idle: wall time - compute / 2."""
        return self.seconds - self.compute / CORES


@dataclass(frozen=True, slots=True)
class Contestant:
    """Somebody who can do the work."""

    name: str
    laps: Callable[[], Sequence[Lap]]


@dataclass(slots=True)
class Race:
    """A work, its contestants and their times; the first contestant is the one that the others are compared with."""

    work: str
    about: str
    contestants: Sequence[Contestant]
    measure: Callable[[Lap], float] = lambda lap: lap.seconds
    flops: float | None = None  # of a round's training
    times: dict[str, list[float]] = field(default_factory=dict)  # for each repeat the median of its laps
    limits: list[float] = field(default_factory=list)  # for each repeat, FLOPS of two cores

    def repeat(self, limit: float) -> list[Withdrawn]:
        """Let each contestant run once, each time in another order; those that give up are out."""
        turn = len(self.limits) % len(self.contestants)
        reasons = []
        for contestant in (*self.contestants[turn:], *self.contestants[:turn]):
            try:
                taken = median(map(self.measure, contestant.laps()))
            except Withdrawn as reason:
                self.contestants = [each for each in self.contestants if each is not contestant]
                reasons.append(reason)
            else:
                self.times.setdefault(contestant.name, []).append(taken)
        self.limits.append(limit)
        return reasons

    def rows(self) -> list[Row]:
        """What the times come to, in the order of the contestants."""
        return [self._row(contestant.name) for contestant in self.contestants]

    def _row(self, name: str) -> Row:
        times, first = self.times[name], self.times[self.contestants[0].name]
        ratios = [theirs / mine for theirs, mine in zip(first, times, strict=True)]
        share = None
        if self.flops is not None:
            share = median(self.flops / (taken * limit) for taken, limit in zip(times, self.limits, strict=True))
        return Row(self.work, name, median(times), median(ratios), min(ratios), max(ratios), share)


@dataclass(frozen=True, slots=True)
class Row:
    """One contestant's line in the table."""

    work: str
    contestant: str
    seconds: float
    ratio: float  # how many times as fast as the first contestant: the median of the repeats
    slowest: float  # the smallest of them
    fastest: float
    share: float | None  # of the machine's limit
