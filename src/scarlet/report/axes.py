"""The options that vary in a grid of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scarlet.records import RunResult
from scarlet.report.variants import NOT_COMPARED, text

WITHOUT = "–"  # the value of an option that a run does not have


@dataclass(frozen=True, slots=True)
class Axis:
    """An option that varies, and its values in order."""

    option: str
    values: tuple[str, ...]

    def value(self, run: RunResult) -> str:
        return _value(run, self.option)

    def position(self, run: RunResult) -> int:
        return self.values.index(self.value(run))


def axes(runs: Sequence[RunResult]) -> tuple[Axis, ...]:
    """The method, if there are several, and each option that takes several values under one method.

    An option that only follows another, as a model follows its dataset, is left out.
    """
    found: dict[tuple[int, ...], Axis] = {}
    options = dict.fromkeys(option for run in runs for option in run.config)
    for option in ("method", *(option for option in options if option not in NOT_COMPARED)):
        values = [_value(run, option) for run in runs]
        under = {(run.method, value) for run, value in zip(runs, values, strict=True) if option in run.config}
        several = len(under) > (1 if option == "method" else len({method for method, _ in under}))
        split = tuple(values.index(value) for value in values)  # how the option divides the runs
        if several and split not in found:
            found[split] = Axis(option, _ordered(runs, option))
    return tuple(found.values())


def _value(run: RunResult, option: str) -> str:
    if option == "method":
        return run.title
    return text(run.config[option]) if option in run.config else WITHOUT


def _ordered(runs: Sequence[RunResult], option: str) -> tuple[str, ...]:
    """Numbers by their size, then words as they come, then nothing."""

    def rank(run: RunResult) -> tuple[int, float]:
        value = run.config.get(option)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return 0, value
        return (1, 0) if option in run.config else (2, 0)

    return tuple(dict.fromkeys(_value(run, option) for run in sorted(runs, key=rank)))
