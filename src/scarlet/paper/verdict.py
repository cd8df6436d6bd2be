"""Whether a claim holds: differences over paired seeds, with their intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy.stats import t as student

HOLDS, FAILS, UNCLEAR = "The claim holds", "The claim does not hold", "These data cannot tell"


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
        """In points of accuracy."""
        seeds = "1 seed" if self.count == 1 else f"{self.count} seeds"
        spread = "" if self.count < 2 else f" ± {100 * self.half:.1f}"
        return f"{100 * self.mean:+.1f}{spread} points ({seeds})"


def mean(scores: Mapping[int, float]) -> float:
    """Over seeds; NaN where there is none."""
    return fmean(scores.values()) if scores else math.nan


def paired(own: Mapping[int, float], other: Mapping[int, float]) -> Interval:
    """The difference under the seeds that both have."""
    return Interval.of([own[seed] - other[seed] for seed in sorted(own.keys() & other.keys())])


def is_more(difference: Interval, than: float = 0.0) -> bool | None:
    """Whether a difference is more than a bound for certain; None: its interval does not tell."""
    return True if difference.low > than else False if difference.high < than else None


def all_hold(parts: Sequence[bool | None]) -> bool | None:
    """Whether all parts of a claim hold."""
    return False if False in parts else None if None in parts or not parts else True


def opening(holds: bool | None) -> str:
    """How a sentence about the claim begins."""
    return UNCLEAR if holds is None else HOLDS if holds else FAILS
