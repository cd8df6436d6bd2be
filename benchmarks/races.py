"""The races: which contestants meet over which work."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks import flower, server_step
from benchmarks.laps import Contestant, Lap, Race, Withdrawn
from benchmarks.limit import Gauge, training_flops
from benchmarks.ours import ours
from benchmarks.plain import plain
from benchmarks.works import OVERHEAD, SERVER, TRAINING, Work
from scarlet.experiment.problem import prepare
from scarlet.methods.dsfl import DsflConfig
from scarlet.methods.scarlet import ScarletConfig
from scarlet.protocol.types import EngineName

CODECS = ("reference", "compact")
_STEPS = 5  # of the server, in one repeat


def races(
    names: Sequence[str], rounds: int, data_dir: Path | None, flower_env: Path | None, engine: EngineName = "auto"
) -> Iterator[Race]:
    """The races over some works; what cannot be run is left out, with a line that says why."""
    embedded = next(work for work in TRAINING if work.name == "embedded")
    works = {work.name: work if engine == "auto" else work.under(engine) for work in TRAINING}
    for name in names:
        if name == SERVER:
            yield _server()
        elif name == OVERHEAD:
            yield _overhead(embedded, rounds, flower_env)
        elif works[name].needs_files and data_dir is None:
            _say(f"{name} is left out: it needs CIFAR-10 and CIFAR-100; name their folder with --data-dir")
        else:
            yield _training(works[name], rounds, data_dir)


def _training(work: Work, rounds: int, data_dir: Path | None) -> Race:
    config, options = work.at(data_dir, rounds), ScarletConfig()
    contestants = [Contestant("plain", partial(plain, options, config))]
    contestants += [Contestant(f"ours, {codec}", partial(ours, options, config, codec)) for codec in CODECS]
    return Race(work.name, work.about, contestants, flops=training_flops(prepare(config)))


def _server() -> Race:
    options, given = ScarletConfig(), server_step.answers()
    contestants = [
        Contestant("plain", _several(partial(server_step.plain_step, options, given))),
        Contestant("a bare loop", _several(partial(server_step.bare_step, options, given))),
    ]
    for codec in CODECS:
        step = partial(server_step.ours_step, options, given, codec)
        contestants.append(Contestant(f"ours, {codec}", _several(step)))
    return Race(SERVER, server_step.ABOUT, contestants)


def _overhead(work: Work, rounds: int, flower_env: Path | None) -> Race:
    config, contestants = work.at(None, rounds), []
    try:
        python = flower.environment(flower_env or flower.default_environment())
        flower.check(python)
        contestants.append(Contestant("flower", partial(flower.flower, python, config)))
    except Withdrawn as reason:
        _say(f"{reason}; going on without it")
    contestants += [Contestant(f"ours, {codec}", partial(ours, DsflConfig(), config, codec)) for codec in CODECS]
    about = "overhead of a round of DS-FL, embedded default: wall time - (training, prediction, evaluation) / 2"
    return Race(OVERHEAD, about, contestants, measure=lambda lap: lap.overhead)


def _several(step: Callable[[], Lap]) -> Callable[[], list[Lap]]:
    return lambda: [step() for _ in range(_STEPS)]


def run_race(race: Race, repeats: int, gauge: Gauge) -> None:
    """Let the contestants of a race run in turn, the machine's limit measured before each repeat."""
    for number in range(1, repeats + 1):
        limit = gauge.flops()
        _say(f"{race.work}: repeat {number} of {repeats}, two cores multiply at {limit / 1e9:.0f} GFLOPS")
        for reason in race.repeat(limit):
            _say(f"{reason}; going on without it")


def _say(line: str) -> None:
    print(f"scarlet: {line}", file=sys.stderr)
