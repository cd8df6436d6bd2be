"""`scarlet report DIR...`: one page about runs that have been made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typing_extensions import Doc

from scarlet.cli.options import Command, options_of
from scarlet.errors import ConfigError, DataError

if TYPE_CHECKING:
    from scarlet.records import RunResult


@dataclass(frozen=True, slots=True)
class Output:
    """Where to write."""

    out: Annotated[Path, Doc("the page to write; an existing file is replaced")] = Path("report.html")


def main(argv: Sequence[str]) -> int:
    """Write the page."""
    about = "One page about finished or interrupted runs; DIR is the directory of a run or of a comparison."
    words, given = Command("scarlet report DIR...", about, options_of(Output)).parse(argv)
    if not words:
        raise ConfigError("scarlet report takes the directories of runs before the options, got none")

    from scarlet.experiment.run_directory import read_run
    from scarlet.report.page import write_report

    runs = [read_run(directory) for word in words for directory in _runs(Path(word))]
    _check_data(runs)
    path = given.get("out", Output().out)
    write_report(runs, path)
    print(f"report: {path}")
    return 0


def _check_data(runs: Sequence[RunResult]) -> None:
    """Raise DataError where runs have different private datasets: their accuracies say nothing about each other."""
    firsts = {str(run.config.get("private")): run for run in reversed(runs)}
    if len(firsts) > 1:
        named = " and ".join(f"{name} in {run.directory}" for name, run in reversed(firsts.items()))
        raise DataError(f"the runs have different private datasets, {named}; make a report of each by itself")


def _runs(directory: Path) -> list[Path]:
    """The run in a directory, or the runs of the comparison in it."""
    inner = sorted(path.parent for path in directory.glob("*/config.json"))
    return inner if inner and not (directory / "config.json").exists() else [directory]
