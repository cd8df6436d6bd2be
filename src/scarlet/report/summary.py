"""The numbers of the summary table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np

from scarlet.records import LAST_ROUNDS, RunResult
from scarlet.report.curves import MEGABYTE, curve, measured
from scarlet.report.variants import Variant

TARGET_STEP = 0.05


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds, and their sample standard deviation if there is more than one."""

    mean: float
    deviation: float | None

    def __format__(self, spec: str) -> str:
        return f"{self.mean:{spec}}" + ("" if self.deviation is None else f" ± {self.deviation:{spec}}")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; None where a method has no such number."""

    name: str
    seeds: int
    server_accuracy: Estimate | None
    client_accuracy: Estimate | None
    megabytes_up: float | None
    megabytes_down: float | None
    megabytes: float | None
    megabytes_to_target: float | None
    hit_ratio: float | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """All lines, and the server accuracy that every method with a server model reaches."""

    rows: tuple[Row, ...]
    target: float | None


@dataclass(frozen=True, slots=True)
class Step:
    """A round in which a variant's mean server accuracy was higher than in all before, and the traffic up to there."""

    accuracy: float
    round: int
    megabytes: float


def summarise(variants: Sequence[Variant]) -> Summary:
    """Reduce each variant to its line of the table."""
    target = common_target(variants)
    return Summary(rows=tuple(_row(variant, target) for variant in variants), target=target)


def common_target(variants: Sequence[Variant]) -> float | None:
    """The largest multiple of 0.05 that every method's mean server accuracy reaches; None if that is 0."""
    curves = [curve(variant.runs, "server_accuracy").mean for variant in variants]
    best = [float(np.nanmax(mean)) for mean in curves if np.isfinite(mean).any()]
    # The small term keeps 0.6, which is not a whole number of binary 0.05, from falling to 0.55.
    steps = math.floor(min(best, default=0.0) / TARGET_STEP + 1e-9)
    return steps * TARGET_STEP if steps > 0 else None


def steps(variant: Variant) -> list[Step]:
    """What each server accuracy costs: the first step that is as high."""
    server, found, best = curve(variant.runs, "server_accuracy"), list[Step](), -math.inf
    for accuracy, round, megabytes in zip(server.mean, server.rounds, server.megabytes, strict=True):
        if accuracy > best:
            best = float(accuracy)
            found.append(Step(best, int(round), float(megabytes)))
    return found


def last_rounds(run: RunResult, key: str) -> float | None:
    """The mean of the last rounds in which the quantity was measured."""
    return _mean(_values(run, key)[-LAST_ROUNDS:])


def over_seeds(variant: Variant, reduce: Callable[[RunResult], float | None]) -> Estimate | None:
    """Reduce each run to a number, then average those that have one."""
    found = [value for value in map(reduce, variant.runs) if value is not None]
    if not found:
        return None
    return Estimate(fmean(found), stdev(found) if len(found) > 1 else None)


def _row(variant: Variant, target: float | None) -> Row:
    def mean(reduce: Callable[[RunResult], float | None]) -> float | None:
        estimate = over_seeds(variant, reduce)
        return None if estimate is None else estimate.mean

    return Row(
        name=variant.name,
        seeds=len(variant.runs),
        server_accuracy=over_seeds(variant, lambda run: last_rounds(run, "server_accuracy")),
        client_accuracy=over_seeds(variant, lambda run: last_rounds(run, "client_accuracy")),
        megabytes_up=mean(lambda run: _total(run, "uplink_bytes", MEGABYTE)),
        megabytes_down=mean(lambda run: _total(run, "downlink_bytes", MEGABYTE)),
        megabytes=mean(_megabytes),
        megabytes_to_target=None if target is None else _megabytes_to(variant, target),
        hit_ratio=mean(lambda run: last_rounds(run, "cache_hit_ratio")),
        seconds=mean(lambda run: _total(run, "seconds")),
    )


def _megabytes_to(variant: Variant, target: float) -> float | None:
    """The mean traffic up to the first round in which the mean server accuracy is at the target."""
    return next((step.megabytes for step in steps(variant) if step.accuracy >= target - 1e-9), None)


def _megabytes(run: RunResult) -> float | None:
    cumulative = _values(run, "cumulative_bytes")
    return cumulative[-1] / MEGABYTE if cumulative else None


def _total(run: RunResult, key: str, unit: float = 1.0) -> float | None:
    values = _values(run, key)
    return sum(values) / unit if values else None


def _values(run: RunResult, key: str) -> list[float]:
    return [value for record in run.records if (value := measured(record, key)) is not None]


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
