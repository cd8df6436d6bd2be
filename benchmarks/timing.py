"""The timings of implementations that run the same workload in turn, and the ratios between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks.peak import CORES
from scarlet.errors import ScarletError


class Unavailable(ScarletError):
    """An implementation cannot run here; the comparison continues without it."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The time of one round, or of one step of it."""

    seconds: float
    compute: float = 0.0  # processor seconds of training, prediction and evaluation, of all clients and the server

    @property
    def overhead(self) -> float:
        """Wall time beyond that of two cores that compute without idling: seconds - compute / 2."""
        return self.seconds - self.compute / CORES


@dataclass(frozen=True, slots=True)
class Implementation:
    """One way to run a workload; `run` returns the timings of one run."""

    name: str
    run: Callable[[], Sequence[Timing]]


@dataclass(slots=True)
class Comparison:
    """The implementations of a workload and their timings; the first implementation is the baseline."""

    workload: str
    about: str
    implementations: Sequence[Implementation]
    measure: Callable[[Timing], float] = lambda timing: timing.seconds
    flops: float | None = None  # of a round's training
    seconds: dict[str, list[float]] = field(default_factory=dict)  # for each repeat the median of its timings
    peaks: list[float] = field(default_factory=list)  # for each repeat, FLOPS of two cores

    def repeat(self, peak: float) -> list[Unavailable]:
        """Run each implementation once, in an order that rotates; those that are unavailable are removed."""
        first = len(self.peaks) % len(self.implementations)
        reasons = []
        for implementation in (*self.implementations[first:], *self.implementations[:first]):
            try:
                seconds = median(map(self.measure, implementation.run()))
            except Unavailable as reason:
                self.implementations = [each for each in self.implementations if each is not implementation]
                reasons.append(reason)
            else:
                self.seconds.setdefault(implementation.name, []).append(seconds)
        self.peaks.append(peak)
        return reasons

    def rows(self) -> list[Row]:
        """The medians and ratios, in the order of the implementations."""
        return [self._row(implementation.name) for implementation in self.implementations]

    def _row(self, name: str) -> Row:
        own, baseline = self.seconds[name], self.seconds[self.implementations[0].name]
        ratios = [theirs / mine for theirs, mine in zip(baseline, own, strict=True)]
        share = None
        if self.flops is not None:
            share = median(self.flops / (seconds * peak) for seconds, peak in zip(own, self.peaks, strict=True))
        return Row(self.workload, name, median(own), median(ratios), min(ratios), max(ratios), share)


@dataclass(frozen=True, slots=True)
class Row:
    """One implementation's line in the table."""

    workload: str
    implementation: str
    seconds: float
    speedup: float  # over the baseline: the median of the repeats' ratios
    lowest: float  # of these ratios
    highest: float
    share: float | None  # of the machine's peak FLOPS
