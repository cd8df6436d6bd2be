"""`scarlet sweep FILE`: a grid of runs, side by side."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

from rich.live import Live
from rich.table import Table
from typing_extensions import Doc

from scarlet.cli.options import AsJson, Command, options_of, table_in
from scarlet.cli.tables import console, table
from scarlet.errors import ConfigError

if TYPE_CHECKING:  # it loads torch
    from scarlet.experiment.side_by_side import Progress
    from scarlet.records import RunResult

_SHOWN = 12  # runs; what does not fit on a screen cannot be redrawn in place


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """The options of a sweep; those of the runs are in its file."""

    out: Annotated[
        Path | None, Doc("directory for the results; where it holds part of the sweep, that is continued")
    ] = None
    processes: Annotated[int | None, Doc("runs at a time (default: one per core, one on a GPU)")] = None


def main(argv: Sequence[str]) -> int:
    """Run a grid and leave one page about it."""
    about = (
        "Run a grid of options, given as a TOML file: a list is an axis, anything else is the same for all runs. "
        "The same command goes on where it was interrupted."
    )
    words, given = Command("scarlet sweep FILE", about, options_of(SweepOptions, AsJson)).parse(argv)
    if len(words) != 1:
        raise ConfigError(
            f"scarlet sweep takes one FILE before the options, got {len(words)}; see scarlet sweep --help"
        )
    if given.get("out") is None:
        raise ConfigError("out must name a directory, so that the same command can go on with it; add --out DIR")
    file = Path(words[0])
    grid = table_in(file, "FILE")

    from scarlet.experiment.sweep import sweep

    out, as_json = given["out"], bool(given.get("json"))
    with SweepDisplay(quiet=as_json) as display:
        results = sweep(grid, out=out, processes=given.get("processes"), watch=display.watch, where=str(file))
    return finish(display, results, out, as_json=as_json)


def finish(display: SweepDisplay, results: Sequence[RunResult], out: Path, *, as_json: bool) -> int:
    """Print the results of a sweep, and what failed; the exit code."""
    from scarlet.cli.display import show_results

    code = display.exit_code()
    if results:
        show_results(results, out, as_json=as_json, page="index.html")
    return code


class SweepDisplay(ExitStack):
    """A live table on a terminal, with the runs under way and those that ended last; a line for each run elsewhere."""

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__()
        self.runs: Sequence[Progress] = ()
        self._console = console(quiet=quiet)
        live = Live(console=self._console, refresh_per_second=4)
        self._live = self.enter_context(live) if self._console.is_terminal else None
        self._said: set[str] = set()  # runs whose end was printed

    def exit_code(self) -> int:
        """Say which runs failed; the exit code that the states of all runs make."""
        failed = [run for run in self.runs if run.state == "failed"]
        for run in failed:
            print(f"scarlet: {run.name} failed: {run.reason}", file=sys.stderr)
        return 2 if failed else 0 if all(run.state == "finished" for run in self.runs) else 130

    def watch(self, runs: Sequence[Progress], processes: int) -> None:
        if not self.runs:
            self._said = {run.name for run in runs if run.state == "finished"}
        self.runs = runs
        if self._live is not None:
            self._live.update(_table(runs, processes))
            return
        for run in runs:
            if run.state not in ("waiting", "running") and run.name not in self._said:
                self._said.add(run.name)
                line = f"{run.name}: {run.state} after round {run.done} of {run.rounds}; {_heading(runs, processes)}"
                self._console.print(line, highlight=False, soft_wrap=True)


def _table(runs: Sequence[Progress], processes: int) -> Table:
    drawn = table(_heading(runs, processes), ("run", "state", "round", "seconds a round"))
    begun = [run for run in runs if run.state != "waiting"]
    begun.sort(key=lambda run: run.state == "running")
    for run in begun[-_SHOWN:]:
        drawn.add_row(run.name, run.state, f"{run.done}/{run.rounds}", "-" if run.pace is None else f"{run.pace:.2f}")
    return drawn


def _heading(runs: Sequence[Progress], processes: int) -> str:
    ended = sum(run.state == "finished" for run in runs)
    left = seconds_left(runs, processes)
    shown = "" if left is None else f", {int(left) // 3600}:{int(left) // 60 % 60:02d}:{int(left) % 60:02d} left"
    return f"{ended} of {len(runs)} runs finished{shown}"


def seconds_left(runs: Sequence[Progress], processes: int) -> float | None:
    """The time to the end of a sweep: a run that has not begun is taken to be as fast as the others on average."""
    paces = [run.pace for run in runs if run.pace is not None]
    if not paces:
        return None
    usual = fmean(paces)
    left = [(run.rounds - run.done) * (run.pace or usual) for run in runs if run.state in ("waiting", "running")]
    return max([sum(left) / processes, *left], default=0.0)
