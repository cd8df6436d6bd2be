"""`scarlet bench`: rounds timed against other ways of running them, and against the machine's own limit."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated

from typing_extensions import Doc

from benchmarks.works import NAMES, chosen
from scarlet.cli.main import no_positionals
from scarlet.cli.options import options_of, parse, split
from scarlet.config import check_at_least, check_engine
from scarlet.errors import ConfigError
from scarlet.protocol.types import EngineName


@dataclass(frozen=True, slots=True)
class BenchConfig:
    """What to time, and how often."""

    work: Annotated[str | None, Doc(f"works, with commas between; None: all ({', '.join(NAMES)})")] = None
    repeats: Annotated[int, Doc("how often each contestant runs, in turn with the others")] = 3
    rounds: Annotated[int, Doc("measured rounds of each run, after one round of warm-up")] = 3
    data_dir: Annotated[Path | None, Doc("where CIFAR-10 and CIFAR-100 lie; None: leave out what needs them")] = None
    flower_env: Annotated[Path | None, Doc("environment with Flower, made if it is not there; None: in ~/.cache")] = (
        None
    )
    engine: Annotated[
        EngineName, Doc("how our models are laid out and run, but for what is measured of the server")
    ] = "auto"
    results: Annotated[Path | None, Doc("also update this file, such as benchmarks/RESULTS.md")] = None

    def __post_init__(self) -> None:
        chosen(self.work)
        check_at_least("repeats", self.repeats, 1)
        check_at_least("rounds", self.rounds, 1)
        check_engine(self.engine)
        if self.results is not None and self.results.is_dir():
            raise ConfigError(f"results must be a file, got the folder {self.results}; such as benchmarks/RESULTS.md")


def main(argv: Sequence[str]) -> int:
    """Run the races, and print what they came to."""
    words, rest = split(argv)
    no_positionals("bench", words)
    about = (
        "Rounds timed against other ways of running them; the contestants take turns. The share of the limit is the "
        "training FLOPs of a round / (its seconds x the FLOPS at which two cores multiply matrices)."
    )
    config = BenchConfig(**parse("scarlet bench", about, options_of(BenchConfig), rest))
    _run(config, shlex.join(["scarlet", "bench", *argv]))
    return 0


def _run(config: BenchConfig, command: str) -> None:
    from benchmarks.limit import Gauge
    from benchmarks.races import races, run_race
    from benchmarks.results import COLUMNS, Circumstances, cells, machine, section, update, versions
    from scarlet.cli.tables import console, table

    where = Circumstances(str(date.today()), command, config.repeats, config.rounds, versions(), machine())
    drawn = table(f"{where.machine}, {where.date}", COLUMNS, left=COLUMNS[:2])
    sections: dict[str, str] = {}
    with Gauge() as gauge:
        for race in races(chosen(config.work), config.rounds, config.data_dir, config.flower_env, config.engine):
            run_race(race, config.repeats, gauge)
            for row in race.rows():
                drawn.add_row(*cells(row))
            drawn.add_section()
            sections[race.work] = section(race, where)
            if config.results is not None:
                update(config.results, sections)
    if sections:
        console().print(drawn)
