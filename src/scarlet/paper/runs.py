"""The runs that figures are made of; runs that several figures share are done once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scarlet.config import Config
from scarlet.experiment.config_json import flatten
from scarlet.experiment.planned import Planned
from scarlet.methods.registry import entry
from scarlet.paper.scale import Scale
from scarlet.presets import apply
from scarlet.records import RunResult
from scarlet.report.summary import last_rounds

_ALWAYS_NAMED = ("alpha", "beta", "preset")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A method under some options, once for each seed."""

    method: str
    seeds: Sequence[int]
    options: Mapping[str, Any]

    def planned(self, scale: Scale, data_dir: Path | None) -> list[Planned]:
        """Its runs."""
        where, found = {} if data_dir is None else {"data_dir": data_dir}, []
        for seed in self.seeds:
            method, config = self._completed(scale, {**self.options, **where, "seed": seed})
            found.append(Planned(self.name(scale, seed), method, config))
        return found

    def name(self, scale: Scale, seed: int) -> str:
        """The name of a run; an option that the scale has anyway is left out, so that figures share the run."""
        named = {option: value for option, value in self.options.items() if option in _ALWAYS_NAMED}
        there = flatten(*self._completed(scale, named))
        marks = [
            f"{option.replace('_', '-')}{value}"
            for option, value in sorted(self.options.items())
            if option in named or there[option] != value
        ]
        return "-".join([self.method, *marks, f"seed{seed}"])

    def _completed(self, scale: Scale, options: Mapping[str, Any]) -> tuple[object, Config]:
        """The options of the method and of the run, with those of the scale and of its preset."""
        given = {**scale.base, **scale.own.get(self.method, {}), **options}
        preset = given.pop("preset", None) or scale.preset(given["alpha"])
        config, (method,) = apply(preset, given, [entry(self.method)])
        return method, replace(config, workers=1)


class Runs:
    """The runs that there are of a scale, by name."""

    def __init__(self, scale: Scale, found: Iterable[RunResult]) -> None:
        self._scale = scale
        self._found = {run.directory.name: run for run in found if run.directory is not None}

    def of(self, wanted: Wanted) -> dict[int, RunResult]:
        """By seed, as far as they are there."""
        named = {seed: self._found.get(wanted.name(self._scale, seed)) for seed in wanted.seeds}
        return {seed: run for seed, run in named.items() if run is not None and run.records}

    def lacks(self, wanted: Iterable[Wanted]) -> bool:
        """Whether some of these runs are not there."""
        return any(len(self.of(each)) < len(each.seeds) for each in wanted)

    def score(self, wanted: Wanted, reduce: Callable[[RunResult], float | None]) -> dict[int, float]:
        """A number of each run, by seed."""
        reduced = {seed: reduce(run) for seed, run in self.of(wanted).items()}
        return {seed: value for seed, value in reduced.items() if value is not None}


def server(run: RunResult) -> float | None:
    """Server accuracy at the end."""
    return last_rounds(run, "server_accuracy")


def clients(run: RunResult) -> float | None:
    """Mean client accuracy at the end."""
    return last_rounds(run, "client_accuracy")


def megabytes(run: RunResult) -> float:
    """Traffic of the whole run, both directions, all clients."""
    return run.records[-1].cumulative_bytes / 1e6
