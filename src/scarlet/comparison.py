"""Several methods under several seeds, each pair on the same data, draws and initial weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from scarlet.config import Config
from scarlet.errors import ConfigError
from scarlet.experiment import Watcher, run
from scarlet.methods.registry import entry_of
from scarlet.problem import Data
from scarlet.records import RunResult
from scarlet.run_directory import check_free, write_json


def compare(
    methods: Sequence[object],
    config: Config,
    *,
    seeds: Sequence[int] = (0,),
    out: Path | None = None,
    data: Data | None = None,
    watchers: Sequence[Watcher] = (),
) -> list[RunResult]:
    """Run each method under each seed; `methods` are config objects. Ctrl-C ends it with what was done so far.

    With `out`, it holds a directory for each run, a summary.json of all and a report.html over all.
    """
    if not methods or not seeds:
        raise ConfigError("a comparison needs at least one method and one seed")
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"seeds must differ, got {','.join(map(str, seeds))}; each is one repetition")
    if out is not None:
        check_free(out)
    results: list[RunResult] = []
    names = _names(methods)
    settings = [replace(config, seed=seed) for seed in seeds]  # all of them, so that a bad seed is found at once
    for setting, (method, name) in product(settings, zip(methods, names, strict=True)):
        directory = None if out is None else out / f"{name}-seed{setting.seed}"
        results.append(run(method, setting, out=directory, data=data, watchers=watchers))
        if results[-1].interrupted:
            break
    if out is not None:
        _write(out, results, [out / f"{name}-seed{seed}" for seed in seeds for name in names])
    return results


def _names(methods: Sequence[object]) -> list[str]:
    """A name for each method, numbered where one occurs several times with different options."""
    names = [entry_of(method).name for method in methods]
    return [f"{name}-{at + 1}" if names.count(name) > 1 else name for at, name in enumerate(names)]


def _write(out: Path, results: Sequence[RunResult], directories: Sequence[Path]) -> None:
    from scarlet.report import read_run, write_report  # plotly is slow to load, and only needed here

    runs = [
        {
            "method": result.method,
            "seed": result.config["seed"],
            "directory": directory.name,
            **result.summary,
        }
        for result, directory in zip(results, directories, strict=False)  # an interrupted comparison has fewer results
    ]
    write_json(out / "summary.json", {"runs": runs})
    figure = (directories[0] / "partition.svg").read_text()
    records = [read_run(directory) for directory in directories[: len(results)]]
    write_report(records, out / "report.html", partition_svg=figure)
