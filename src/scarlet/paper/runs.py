"""The runs that figures are made of; runs that several figures share are done once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scarlet.experiment.planned import Planned
from scarlet.methods.registry import entry
from scarlet.paper.scale import Scale
from scarlet.presets import apply
from scarlet.records import RunResult
from scarlet.report.summary import last_rounds


@dataclass(frozen=True, slots=True)
class Wanted:
    """A method under some options, once for each seed."""

    method: str
    seeds: Sequence[int]
    options: Mapping[str, Any]

    def planned(self, scale: Scale, data_dir: Path | None) -> list[Planned]:
        """Its runs."""
        method, found = entry(self.method), []
        own = scale.own.get(self.method, {})
        given = {**scale.base, **own, **({} if data_dir is None else {"data_dir": data_dir}), **self.options}
        preset = given.pop("preset", None) or scale.preset(given["alpha"])
        for seed in self.seeds:
            config, (own,) = apply(preset, {**given, "seed": seed}, [method])
            found.append(Planned(self.name(seed), own, replace(config, workers=1)))
        return found

    def name(self, seed: int) -> str:
        """The name of a run; the same run has the same name in every figure."""
        marks = [f"{name.replace('_', '-')}{value}" for name, value in sorted(self.options.items())]
        return "-".join([self.method, *marks, f"seed{seed}"])


class Runs:
    """The runs that there are, by name."""

    def __init__(self, found: Iterable[RunResult]) -> None:
        self._found = {run.directory.name: run for run in found if run.directory is not None}

    def of(self, wanted: Wanted) -> dict[int, RunResult]:
        """By seed, as far as they are there."""
        named = {seed: self._found.get(wanted.name(seed)) for seed in wanted.seeds}
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
