"""Which implementations are compared on which workload."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks import flower, server_step
from benchmarks.ours import ours
from benchmarks.peak import PeakFlops, training_flops
from benchmarks.plain import plain
from benchmarks.timing import Comparison, Implementation, Timing, Unavailable
from benchmarks.workloads import OVERHEAD, SERVER, TRAINING, Workload
from scarlet.experiment.federation import prepare
from scarlet.methods.dsfl import DsflConfig
from scarlet.methods.scarlet import ScarletConfig
from scarlet.training.engines.names import EngineName

CODECS = ("reference", "compact")
_STEPS = 5  # of the server, in one repeat


def comparisons(
    names: Sequence[str], rounds: int, data_dir: Path | None, flower_env: Path | None, engine: EngineName = "auto"
) -> Iterator[Comparison]:
    """The comparisons on some workloads; one that cannot run is skipped, with a line that says why."""
    embedded = next(workload for workload in TRAINING if workload.name == "embedded")
    workloads = {each.name: each if engine == "auto" else each.under(engine) for each in TRAINING}
    for name in names:
        if name == SERVER:
            yield _server()
        elif name == OVERHEAD:
            yield _overhead(embedded, rounds, flower_env)
        elif workloads[name].needs_files and data_dir is None:
            _say(f"{name} is skipped: it needs CIFAR-10 and CIFAR-100; give their directory with --data-dir")
        else:
            yield _training(workloads[name], rounds, data_dir)


def _training(workload: Workload, rounds: int, data_dir: Path | None) -> Comparison:
    config, options = workload.at(data_dir, rounds), ScarletConfig()
    implementations = [Implementation("plain", partial(plain, options, config))]
    implementations += [Implementation(f"ours, {codec}", partial(ours, options, config, codec)) for codec in CODECS]
    return Comparison(workload.name, workload.about, implementations, flops=training_flops(prepare(config)))


def _server() -> Comparison:
    options, given = ScarletConfig(), server_step.answers()
    implementations = [
        Implementation("plain", _several(partial(server_step.plain_step, options, given))),
        Implementation("a bare loop", _several(partial(server_step.bare_step, options, given))),
    ]
    for codec in CODECS:
        step = partial(server_step.ours_step, options, given, codec)
        implementations.append(Implementation(f"ours, {codec}", _several(step)))
    return Comparison(SERVER, server_step.ABOUT, implementations)


def _overhead(workload: Workload, rounds: int, flower_env: Path | None) -> Comparison:
    config, implementations = workload.at(None, rounds), []
    try:
        python = flower.environment(flower_env or flower.default_environment())
        flower.check(python)
        implementations.append(Implementation("flower", partial(flower.flower, python, config)))
    except Unavailable as reason:
        _say(f"{reason}; continuing without it")
    implementations += [
        Implementation(f"ours, {codec}", partial(ours, DsflConfig(), config, codec)) for codec in CODECS
    ]
    about = (
        "per-round overhead of DS-FL on the embedded default: wall time - processor seconds of training, prediction "
        "and evaluation / 2"
    )
    return Comparison(OVERHEAD, about, implementations, measure=lambda timing: timing.overhead)


def _several(step: Callable[[], Timing]) -> Callable[[], list[Timing]]:
    return lambda: [step() for _ in range(_STEPS)]


def run_comparison(comparison: Comparison, repeats: int, peak: PeakFlops) -> None:
    """Run the implementations in turn; the peak FLOPS are measured before each repeat."""
    for number in range(1, repeats + 1):
        flops = peak.measure()
        _say(f"{comparison.workload}: repeat {number} of {repeats}, two cores multiply at {flops / 1e9:.0f} GFLOPS")
        for reason in comparison.repeat(flops):
            _say(f"{reason}; continuing without it")


def _say(line: str) -> None:
    print(f"benchmarks: {line}", file=sys.stderr)
