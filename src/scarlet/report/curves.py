"""How a quantity develops over the rounds: mean and spread over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scarlet.records import RoundRecord, RunResult

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
MEGABYTE = 1e6
_KEPT = ("server_accuracy", "client_accuracy", "cumulative_bytes")  # what a model and a ledger have after the end too


@dataclass(frozen=True, slots=True)
class Curve:
    """A quantity at each round, averaged over the seeds that have it there; NaN where none has."""

    rounds: Integers  # [T]
    megabytes: Floats  # [T], cumulative traffic averaged over seeds
    mean: Floats  # [T]
    low: Floats  # [T], mean minus one standard deviation; the smaller of two seeds; the value of one
    high: Floats  # [T]

    def stretches(self) -> list[Integers]:
        """Positions with a value, cut where the pause is longer than usual.

        A run evaluated every fifth round is one line; one value missing where each round has one is a gap.
        """
        known = np.flatnonzero(np.isfinite(self.mean))
        if len(known) < 2:
            return [known] if len(known) else []
        pause = np.diff(self.rounds[known])
        return np.split(known, np.flatnonzero(pause > np.median(pause)) + 1)


def measured(record: RoundRecord, quantity: str) -> float | None:
    """A quantity of a round; None where it was not measured, or is not finite."""
    value: float | None = getattr(record, quantity)
    return value if value is not None and math.isfinite(value) else None


def curve(runs: Sequence[RunResult], quantity: str) -> Curve:
    """Align the runs by round and average over seeds; a run that ended early keeps its last values."""
    rounds = sorted({record.round for run in runs for record in run.records})
    value = _aligned(runs, quantity, rounds)
    mean = _mean(value)
    seeds = np.isfinite(value).sum(axis=0)
    deviation = np.sqrt(_divide(np.nansum((value - mean) ** 2, axis=0), seeds - 1))
    return Curve(
        rounds=np.array(rounds, dtype=np.int64),
        megabytes=_mean(_aligned(runs, "cumulative_bytes", rounds)) / MEGABYTE,
        mean=mean,
        # Two seeds have no meaningful deviation, so the band shows both.
        low=np.where(seeds > 2, mean - deviation, np.fmin.reduce(value, axis=0)),
        high=np.where(seeds > 2, mean + deviation, np.fmax.reduce(value, axis=0)),
    )


def _aligned(runs: Sequence[RunResult], quantity: str, rounds: Sequence[int]) -> Floats:
    position = {number: column for column, number in enumerate(rounds)}
    value = np.full((len(runs), len(rounds)), np.nan)
    for row, run in enumerate(runs):
        for record in run.records:
            found = measured(record, quantity)
            if found is not None:
                value[row, position[record.round]] = found
    known = np.isfinite(value)
    for row, run in enumerate(runs):
        if not run.interrupted and known[row].any() and quantity in _KEPT:
            later = np.array(rounds) > run.records[-1].round
            value[row, later & known.any(axis=0)] = value[row, known[row]][-1]
    return value


def _mean(value: Floats) -> Floats:
    return _divide(np.nansum(value, axis=0), np.isfinite(value).sum(axis=0))


def _divide(total: Floats, count: Integers) -> Floats:
    """The quotient, NaN where nothing was counted."""
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
