"""Whether a claim holds: differences over paired seeds, with their intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy.stats import t as student

HOLDS, FAILS, UNCLEAR = "The claim holds", "The claim does not hold", "These data cannot tell"
VERDICTS = {True: "yes", False: "no", None: "cannot tell"}
POINT = 0.01  # of accuracy
Parts = Mapping[str, bool | None]  # the parts of a claim by name: holds, does not hold, or None: the data cannot tell


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and the half-width of its 95 % interval over seeds; of one seed there is none."""

    mean: float
    half: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        if len(values) < 2:
            return cls(values[0] if values else math.nan, math.inf, len(values))
        half = float(student.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
        return cls(fmean(values), half, len(values))

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half

    def points(self) -> str:
        """A change, in points of accuracy."""
        return f"{100 * self.mean:+.1f}{self._spread} points{self._seeds}"

    def beside(self, other: str) -> str:
        """How far one is above or below another."""
        direction = "apart from" if abs(self.mean) < 0.0005 else "below" if self.mean < 0 else "above"
        return f"{100 * abs(self.mean):.1f}{self._spread} points {direction} {other}{self._seeds}"

    def percent(self) -> str:
        """A quotient, in percent."""
        return f"{100 * self.mean:.0f}{'' if self.count < 2 else f' ± {100 * self.half:.0f}'} %"

    @property
    def _spread(self) -> str:
        return "" if self.count < 2 else f" ± {100 * self.half:.1f}"

    @property
    def _seeds(self) -> str:
        return " (1 seed)" if self.count == 1 else f" ({self.count} seeds)"


def mean(scores: Mapping[int, float]) -> float:
    """Over seeds; NaN where there is none."""
    return fmean(scores.values()) if scores else math.nan


def ratio(own: Mapping[int, float], other: Mapping[int, float]) -> Interval:
    """The quotient under the seeds that both have."""
    return Interval.of([own[seed] / other[seed] for seed in sorted(own.keys() & other.keys()) if other[seed]])


def paired(own: Mapping[int, float], other: Mapping[int, float]) -> Interval:
    """The difference under the seeds that both have."""
    return Interval.of([own[seed] - other[seed] for seed in sorted(own.keys() & other.keys())])


def is_more(difference: Interval, than: float = 0.0) -> bool | None:
    """Whether a difference is more than a bound for certain; None: its interval does not tell."""
    return True if difference.low > than else False if difference.high < than else None


def all_hold(parts: Iterable[bool | None]) -> bool | None:
    """Whether all parts of a claim hold."""
    found = list(parts)
    return False if False in found else None if None in found or not found else True


def opening(parts: Parts) -> str:
    """How a sentence about the claim begins; of a claim with several parts it names those that do not hold."""
    holds = all_hold(parts.values())
    if holds:
        return HOLDS
    named = ", ".join(name for name, part in parts.items() if part is holds)
    return (FAILS if holds is False else UNCLEAR) + (f" ({named})" if len(parts) > 1 else "")
