"""The runs of a comparison or a sweep, as a file in its directory lists them, so that it can be resumed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scarlet.config import Config
from scarlet.errors import ConfigError
from scarlet.experiment.config_json import flatten, identifying, unflatten
from scarlet.experiment.run_directory import write_json
from scarlet.records import RunResult

# Options of None which config.json has as what they came to.
_OPEN = ("public", "public_size", "public_per_round", "samples_per_client", "model")
_REMEDY = "restore it; for a sweep, remove it and give the command of the sweep again, which keeps finished runs"


@dataclass(frozen=True, slots=True)
class Planned:
    """One run of several, in a directory of that name."""

    directory: str
    method: object
    config: Config

    def identity(self) -> dict[str, Any]:
        """The options that make it what it is, as a JSON file has them."""
        found: dict[str, Any] = json.loads(json.dumps(identifying(flatten(self.method, self.config))))
        return found

    def fixed_in(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Of what the config.json of a run says, the options that do not follow from data or from other options."""
        now = self.identity()
        follow = {"min_answers", *(name for name in _OPEN if now[name] is None)}
        if now["engine"] == "auto":
            follow.add("engine")
        if config.get("public_size") is None:  # nothing public is used
            follow |= {"public", "public_size", "public_per_round"}
        if ":" in self.config.private:  # such data may be split among clients already
            follow |= {"clients", "samples_per_client"}
        return {name: config[name] for name in now.keys() - follow if name in config}


def same_twice(runs: Sequence[Planned]) -> tuple[str, str] | None:
    """The names of two runs with the same options, if there are any."""
    known: dict[str, str] = {}
    for each in runs:
        other = known.setdefault(json.dumps(each.identity(), sort_keys=True), each.directory)
        if other != each.directory:
            return other, each.directory
    return None


def write_plan(path: Path, runs: Sequence[Planned], more: Mapping[str, object] | None = None) -> None:
    """List the runs in a file; `more` are entries that each of them has beside its options."""
    table = [{"directory": each.directory, **flatten(each.method, each.config), **(more or {})} for each in runs]
    write_json(path, {"runs": table})


def read_plan(path: Path, changed: Mapping[str, object] | None = None) -> list[Planned]:
    """The runs that a file lists, with some of their options changed."""
    try:
        runs = [
            (str(table["directory"]), {**table, **(changed or {})}) for table in json.loads(path.read_text())["runs"]
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); {_REMEDY}") from None
    if not runs:
        raise ConfigError(f"{path} lists no run; {_REMEDY}")
    return [Planned(directory, *unflatten(table, str(path))) for directory, table in runs]


def write_summaries(results: Sequence[RunResult], out: Path) -> None:
    """Write the summaries of all runs into one file."""
    write_json(out / "summary.json", {"runs": [_summary(result) for result in results]})


def _summary(result: RunResult) -> dict[str, object]:
    assert result.directory is not None
    named = {"method": result.method, "title": result.title, "seed": result.seed, "directory": result.directory.name}
    return {**named, **result.summary}
