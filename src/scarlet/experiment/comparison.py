"""Several methods under several seeds; the methods of a seed share their data, draws and initial weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from scarlet.config import Config
from scarlet.data.sites import Augment, Scale, Site
from scarlet.errors import ConfigError
from scarlet.experiment.federation import prepare
from scarlet.experiment.given import NOTHING_GIVEN, Given
from scarlet.experiment.locked import locked
from scarlet.experiment.pages import write_page
from scarlet.experiment.planned import Planned, write_plan, write_summaries
from scarlet.experiment.round_log import Watcher
from scarlet.experiment.run import run_with
from scarlet.experiment.run_directory import check_free, complete, finished, make
from scarlet.experiment.stopping import check_rules
from scarlet.experiment.tracking import check_track, tracked
from scarlet.methods.registry import check_method, entry_of
from scarlet.models.registry import ModelFactory
from scarlet.records import RunResult
from scarlet.training.optimisers import MakeOptimizer, MakeSchedule

PLAN = "comparison.json"  # the runs of a comparison, so that it can be resumed


def compare(
    methods: Sequence[object],
    config: Config,
    *,
    seeds: Sequence[int] = (0,),
    sites: Sequence[Site] | None = None,
    public: Any = None,
    test: Any = None,
    model: ModelFactory | str | None = None,
    server_model: ModelFactory | str | None = None,
    classes: int | None = None,
    augment: Augment | Scale | None = None,
    scale: Scale | None = None,
    optimizer: MakeOptimizer | None = None,
    schedule: MakeSchedule | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    watchers: Sequence[Watcher] = (),
    track: str | Sequence[str] = (),
) -> list[RunResult]:
    """Run each method under each seed; `methods` are config objects. Ctrl-C ends it with the results so far.

    With `out`, it holds a directory for each run, a summary.json of all and a report.html over all. `resume` goes on
    with a comparison in `out` that was interrupted. What else can be given is as in `run`.
    """
    given = Given(sites, public, test, model, server_model, classes, augment, scale, optimizer, schedule)
    out = None if out is None else Path(out)
    track = check_track(track, out)
    if not methods or not seeds:
        raise ConfigError("a comparison needs at least one method and one seed")
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"seeds must differ, got {','.join(map(str, seeds))}; each is one repetition")
    given = given.read(config.image_size)
    built = [entry_of(method).build(method) for method in methods]
    for each in built:
        check_method(each, config.asked if given.sites is None else replace(config, clients=len(given.sites)).asked)
    check_rules((each, config) for each in built)
    most = next((each for each in built if each.uses_public), built[0])  # the one that needs most of the data
    names = [entry_of(method).name for method in methods]
    # Numbered where one occurs several times with different options.
    names = [f"{name}-{at + 1}" if names.count(name) > 1 else name for at, name in enumerate(names)]
    planned = [
        Planned(f"{name}-seed{seed}", method, replace(config, seed=seed))
        for seed, (method, name) in product(seeds, zip(methods, names, strict=True))
    ]
    if out is None:
        return _run_all(planned, None, given, watchers, track)
    if resume and not (out / PLAN).exists():
        raise ConfigError(f"out holds no comparison to resume: {out / PLAN} does not exist; leave resume out")
    if not resume:
        check_free(out)
    prepare(planned[0].config, given, most)  # a mistake in the options is refused before anything is written
    with locked(make(out), "out"):
        if not resume:
            write_plan(out / PLAN, planned, given.described())
        return _run_all(planned, out, given, watchers, track)


def run_all(
    planned: Sequence[Planned], out: Path, watchers: Sequence[Watcher] = (), track: str | Sequence[str] = ()
) -> list[RunResult]:
    """Go on with what was planned."""
    with locked(out, "out"):
        return _run_all(planned, out, NOTHING_GIVEN, watchers, track)


def _run_all(
    planned: Sequence[Planned],
    out: Path | None,
    given: Given,
    watchers: Sequence[Watcher],
    track: str | Sequence[str],
) -> list[RunResult]:
    """Run what was planned: in `out`, runs that are finished are kept, and one that has begun is resumed."""
    results: list[RunResult] = []
    for each in planned:
        directory = None if out is None else out / each.directory
        result = None if directory is None else finished(directory)
        if result is None:
            begun = directory is not None and directory.exists()
            with tracked(track, directory, shared=out, resume=begun) as trackers:
                told = [*watchers, *trackers]
                result = run_with(given, each.method, each.config, out=directory, resume=begun, watchers=told)
            # The models of one run fit into memory; those of many need not.
            result = replace(result, server=None, clients={})
        complete(result)
        results.append(result)
        if result.interrupted:
            break
    if out is not None:
        write_summaries(results, out)
        write_page(results, out)
    return results
