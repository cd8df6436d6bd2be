"""`python -m benchmarks`: rounds timed against other implementations, and against the machine's peak FLOPS."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import NoReturn, get_args

from rich.console import Console
from rich.table import Table

from benchmarks.workloads import NAMES, chosen
from scarlet.errors import ConfigError, ScarletError
from scarlet.training.engines.names import EngineName

_ABOUT = (
    "Time the rounds of several implementations, which take turns. The share of peak is the training FLOPs of a round "
    "/ (its seconds x the FLOPS at which two cores multiply matrices)."
)
_WIDTH_WITHOUT_TERMINAL = 120


@dataclass(frozen=True, slots=True)
class Options:
    """What to time, and how often."""

    work: str | None = None
    repeats: int = 3
    rounds: int = 3
    data_dir: Path | None = None
    flower_env: Path | None = None
    engine: EngineName = "auto"
    results: Path | None = None

    def __post_init__(self) -> None:
        chosen(self.work)
        for name in ("repeats", "rounds"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be 1 or more, got {getattr(self, name)}")
        if self.results is not None and self.results.is_dir():
            raise ConfigError(f"results must be a file, got the folder {self.results}; such as benchmarks/RESULTS.md")

    @property
    def command(self) -> str:
        """The command line for the record: paths of this machine are replaced by names."""
        given = {
            "--work": self.work,
            "--repeats": str(self.repeats),
            "--rounds": str(self.rounds),
            "--data-dir": None if self.data_dir is None else "DIR",
            "--flower-env": None if self.flower_env is None else "ENV",
            "--engine": None if self.engine == "auto" else self.engine,
        }
        words = [word for name, value in given.items() if value is not None for word in (name, value)]
        return shlex.join(["python", "-m", "benchmarks", *words])


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def parsed(arguments: Sequence[str]) -> Options:
    """The options; ConfigError for a mistake in them."""
    parser = _Parser("python -m benchmarks", description=_ABOUT, allow_abbrev=False)
    parser.add_argument("--work", help=f"workloads, separated by commas (default: all: {', '.join(NAMES)})")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each implementation (default: 3)")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds of each run, after one of warm-up")
    parser.add_argument("--data-dir", type=Path, help="directory of CIFAR-10 and CIFAR-100; else they are skipped")
    parser.add_argument("--flower-env", type=Path, help="virtual environment with Flower; it is made if it is missing")
    parser.add_argument("--engine", choices=get_args(EngineName), default="auto", help="our engine (default: auto)")
    parser.add_argument("--results", type=Path, help="also update this file, such as benchmarks/RESULTS.md")
    return Options(**vars(parser.parse_args(arguments)))


def main(arguments: Sequence[str]) -> int:
    """Run the comparisons and print their results; the exit code is 0, or 2 for a mistake in the options."""
    try:
        _run(parsed(arguments))
    except ScarletError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    return 0


def _run(options: Options) -> None:
    from benchmarks.comparisons import comparisons, run_comparison
    from benchmarks.peak import PeakFlops
    from benchmarks.results import COLUMNS, Circumstances, cells, machine, section, update, versions

    where = Circumstances(str(date.today()), options.command, options.repeats, options.rounds, versions(), machine())
    table = Table(title=f"{where.machine}, {where.date}", title_justify="left")
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in COLUMNS[:2] else "right")
    sections: dict[str, str] = {}
    with PeakFlops() as peak:
        for comparison in comparisons(
            chosen(options.work), options.rounds, options.data_dir, options.flower_env, options.engine
        ):
            run_comparison(comparison, options.repeats, peak)
            for row in comparison.rows():
                table.add_row(*cells(row))
            table.add_section()
            sections[comparison.workload] = section(comparison, where)
            if options.results is not None:
                update(options.results, sections)
    if sections:
        console = Console()
        (console if console.is_terminal else Console(width=_WIDTH_WITHOUT_TERMINAL)).print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
