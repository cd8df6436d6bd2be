"""Several methods under several seeds, each pair on the same data, draws and initial weights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from scarlet.config import Config
from scarlet.data.federated import Data
from scarlet.errors import ConfigError
from scarlet.experiment.flat import flatten, unflatten
from scarlet.experiment.federation import prepare
from scarlet.experiment.round_log import Watcher
from scarlet.experiment.run import run
from scarlet.experiment.run_directory import check_free, finished, make, write_json
from scarlet.methods.registry import check_method, entry_of
from scarlet.models.registry import ModelFactory
from scarlet.records import RunResult

PLAN = "comparison.json"  # what a comparison set out to do, so that it can be resumed


def compare(
    methods: Sequence[object],
    config: Config,
    *,
    seeds: Sequence[int] = (0,),
    out: Path | None = None,
    data: Data | None = None,
    model: ModelFactory | None = None,
    watchers: Sequence[Watcher] = (),
) -> list[RunResult]:
    """Run each method under each seed; `methods` are config objects. Ctrl-C ends it with what was done so far.

    With `out`, it holds a directory for each run, a summary.json of all and a report.html over all.
    """
    if not methods or not seeds:
        raise ConfigError("a comparison needs at least one method and one seed")
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"seeds must differ, got {','.join(map(str, seeds))}; each is one repetition")
    for method in methods:
        check_method(entry_of(method).build(method), config.asked)
    planned = [
        (f"{name}-seed{seed}", method, replace(config, seed=seed))
        for seed, (method, name) in product(seeds, zip(methods, _names(methods), strict=True))
    ]
    if out is not None:
        check_free(out)
        prepare(planned[0][2], data, model)  # a mistake in the options shows here, before anything is written
        plan = [{"directory": name, **flatten(method, its)} for name, method, its in planned]
        write_json(make(out) / PLAN, {"runs": plan})
    return _finish(planned, out, data, model, watchers)


def resume_comparison(out: Path, *, workers: int | None = None, watchers: Sequence[Watcher] = ()) -> list[RunResult]:
    """Finish a comparison that was cut off: runs that are done are kept, and the one under way goes on."""
    planned = []
    for table in read_plan(out):
        method, config = unflatten(table, str(out / PLAN))
        config = config if workers is None else replace(config, workers=workers)
        planned.append((str(table["directory"]), method, config))
    return _finish(planned, out, None, None, watchers)


def read_plan(out: Path) -> list[dict[str, object]]:
    """The runs of a comparison: the directory and the options of each."""
    try:
        runs: list[dict[str, object]] = json.loads((out / PLAN).read_text())["runs"]
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{out / PLAN} cannot be read ({error}); start the comparison again") from None
    return runs


def _finish(
    planned: Sequence[tuple[str, object, Config]],
    out: Path | None,
    data: Data | None,
    model: ModelFactory | None,
    watchers: Sequence[Watcher],
) -> list[RunResult]:
    results: list[RunResult] = []
    for name, method, config in planned:
        directory = None if out is None else out / name
        done = None if directory is None else finished(directory)
        if done is not None:
            results.append(done)
            continue
        begun = directory is not None and directory.exists()
        results.append(run(method, config, out=directory, resume=begun, data=data, model=model, watchers=watchers))
        if results[-1].interrupted:
            break
    if out is not None:
        _write(out, results, [out / name for name, _, _ in planned])
    return results


def _names(methods: Sequence[object]) -> list[str]:
    """A name for each method, numbered where one occurs several times with different options."""
    names = [entry_of(method).name for method in methods]
    return [f"{name}-{at + 1}" if names.count(name) > 1 else name for at, name in enumerate(names)]


def _write(out: Path, results: Sequence[RunResult], directories: Sequence[Path]) -> None:
    from scarlet.report import read_run, write_report  # plotly is slow to load, and only needed here

    directories = directories[: len(results)]  # an interrupted comparison has fewer
    runs = [
        {"method": result.method, "seed": result.config["seed"], "directory": directory.name, **result.summary}
        for result, directory in zip(results, directories, strict=True)
    ]
    write_json(out / "summary.json", {"runs": runs})
    figure = (directories[0] / "partition.svg").read_text()
    write_report([read_run(each) for each in directories], out / "report.html", partition_svg=figure)
