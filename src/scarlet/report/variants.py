"""Which runs belong together: the same method under the same options, whatever the seed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scarlet.config import NOT_IDENTIFYING
from scarlet.errors import DataError
from scarlet.records import RunResult

NOT_COMPARED = frozenset({"seed", *NOT_IDENTIFYING})  # options in which runs that are averaged may differ


@dataclass(frozen=True, slots=True)
class Variant:
    """A method under one set of options, with one run for each seed."""

    title: str  # of its method
    marks: str  # what tells it from other variants of the method; empty where there is no other
    runs: tuple[RunResult, ...]

    @property
    def name(self) -> str:
        return f"{self.title} ({self.marks})" if self.marks else self.title

    @property
    def method(self) -> str:
        return self.runs[0].method


def group(runs: Sequence[RunResult]) -> tuple[Variant, ...]:
    """Gather runs that differ only in their seed; a method's variants are named by the options that differ."""
    if not runs:
        raise DataError("no run to report; give the directory of at least one run")
    gathered: dict[str, list[RunResult]] = {}
    for run in runs:
        gathered.setdefault(_options(run), []).append(run)
    firsts = [members[0] for members in gathered.values()]
    for members in gathered.values():
        twice = [seed for seed, count in Counter(run.seed for run in members).items() if count > 1]
        if twice:
            name = f"{members[0].method} with seed {twice[0]}"
            raise DataError(f"{name} is given twice with the same options; give it once")
    return tuple(Variant(members[0].title, _marks(members[0], firsts), tuple(members)) for members in gathered.values())


def distinct(runs: Sequence[RunResult]) -> list[RunResult]:
    """The runs but for those that repeat an earlier one, with the same method, options and seed."""
    first: dict[tuple[str, object], RunResult] = {}
    for run in runs:
        first.setdefault((_options(run), run.seed), run)
    return list(first.values())


def _options(run: RunResult) -> str:
    """What runs that are averaged have in common."""
    options = {option: value for option, value in run.config.items() if option not in NOT_COMPARED}
    return json.dumps([run.method, options], sort_keys=True)


def text(value: object) -> str:
    """An option's value as a reader would write it."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)


def differing(configs: Sequence[Mapping[str, object]]) -> list[str]:
    """The compared options that do not have the same value everywhere."""
    options = sorted({option for config in configs for option in config} - NOT_COMPARED)
    return [option for option in options if len({_value(config, option) for config in configs}) > 1]


def _value(config: Mapping[str, object], option: str) -> str | None:
    return json.dumps(config[option], sort_keys=True) if option in config else None


def _marks(run: RunResult, others: Sequence[RunResult]) -> str:
    apart = differing([other.config for other in others if other.method == run.method])
    return ", ".join(f"{option}={text(run.config.get(option))}" for option in apart)
