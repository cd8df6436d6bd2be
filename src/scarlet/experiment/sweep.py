"""A grid of runs side by side, each in an ordinary run directory, and what may go into the directory of all."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from scarlet.errors import ConfigError, ScarletError, WrongTypeError
from scarlet.experiment.comparison import PLAN as COMPARISON
from scarlet.experiment.federation import prepare
from scarlet.experiment.grid import grid
from scarlet.experiment.locked import locked
from scarlet.experiment.planned import Planned, read_plan, write_plan, write_summaries
from scarlet.experiment.run_directory import (
    check_free,
    finished,
    forget,
    has_results,
    make,
    read_config,
)
from scarlet.experiment.side_by_side import Progress, RunProcess, Watch, play_all
from scarlet.experiment.sweep_page import SweepPage
from scarlet.methods.registry import assemble, check_method
from scarlet.records import RunResult
from scarlet.transport.local import core_count

PLAN = "sweep.json"
_OF_FEDERATIONS = (
    *("private", "public", "data_dir", "samples_per_client", "test_per_client", "image_size", "share_images"),
    *("public_size", "public_per_round", "clients", "private_validation", "public_validation"),
    *("model", "model_shares", "server_model", "device", "engine", "workers"),
)


def sweep(
    table: Mapping[str, object],
    *,
    out: Path | str,
    processes: int | None = None,
    watch: Watch | None = None,
    where: str = "the grid",
) -> list[RunResult]:
    """Run a grid of options: in `table` a list is an axis, and anything else is the same for all runs.

    Each run is an ordinary run directory below `out`. Where `out` holds runs of the grid already, those that are
    finished are kept and the others are continued. `processes` runs go side by side, by default one for each core.
    Ctrl-C ends all of them after their last whole round. `watch` is told from time to time how far each run is, and
    whether it failed; without it, runs that failed raise ScarletError when the others have ended.
    """
    if processes is not None and type(processes) is not int:
        raise WrongTypeError(f"processes must be a whole number or None, got {processes!r}")
    if not isinstance(out, str | Path):
        raise WrongTypeError(f"out must be the path of a directory, got {out!r}")
    if watch is not None and not callable(watch):
        raise WrongTypeError(f"watch must be a function of the runs and of how many run at a time, got {watch!r}")
    out, planned = Path(out), grid(table, where)
    gone: set[str] = set()
    if not (out / PLAN).exists():
        copied = any((out / each.directory).is_dir() for each in planned)
        if not copied or (out / COMPARISON).exists():
            check_free(out)
    else:
        left = {each.directory for each in planned}
        gone = {each.directory for each in read_plan(out / PLAN)} - left
        if begun := [name for name in gone if has_results(out / name)]:
            raise ConfigError(
                f"out holds another sweep: {out / PLAN} has the run {min(begun)}, which the grid does not have; choose "
                "another directory"
            )
    last: list[Progress] = []

    def look(runs: Sequence[Progress], count: int) -> None:
        last[:] = runs
        if watch is not None:
            watch(runs, count)

    results = run_side_by_side(planned, out, process_count(processes, planned), look, without=gone)
    if watch is None and (failed := [run for run in last if run.state == "failed"]):
        reasons = "; ".join(f"{run.name}: {run.reason}" for run in failed)
        raise ScarletError(f"{len(failed)} of {len(last)} runs failed, and the others are in {out}: {reasons}")
    return results


def check_same(out: Path, planned: Sequence[Planned], before: Sequence[Planned]) -> None:
    """Raise ConfigError where there are results of a run with other options; a run without results is removed."""
    asked = {each.directory: each.identity() for each in before}
    stale = []
    for each in planned:
        directory, now = out / each.directory, each.identity()
        path, was = out / PLAN, asked.get(each.directory, now)
        if was == now and (directory / "config.json").exists():
            path, was = directory / "config.json", {**now, **each.fixed_in(read_config(directory))}
        if was == now:
            continue
        if has_results(directory):
            apart = min(name for name in was.keys() | now.keys() if was.get(name) != now.get(name))
            raise ConfigError(
                f"out holds other runs: {path} has {each.directory} with {apart} = {was.get(apart)}, which is now "
                f"{now.get(apart)}; choose another directory"
            )
        stale.append(directory)
    for directory in stale:
        forget(directory)


def run_side_by_side(
    planned: Sequence[Planned], out: Path, count: int, watch: Watch | None = None, without: Collection[str] = ()
) -> list[RunResult]:
    """Run what was planned and is not finished, `count` at a time; the results of all runs that have begun.

    The plan in the directory keeps the runs that others have added to it, but for those `without`.
    """
    _check_data([each for each in planned if finished(out / each.directory) is None])
    with locked(make(out), "out"):
        before = read_plan(out / PLAN) if (out / PLAN).exists() else []
        check_same(out, planned, before)
        for name in without:
            forget(out / name)
        kept = [each for each in before if each.directory not in without]
        write_plan(out / PLAN, list({each.directory: each for each in (*kept, *planned)}.values()))
        runs = [RunProcess(each, out / each.directory) for each in planned]
        page = SweepPage(planned, out)

        def look(progress: Sequence[Progress], count: int) -> None:
            page.failed = {run.name: run.reason for run in progress if run.state == "failed"}
            page.renew()
            if watch is not None:
                watch(progress, count)

        try:
            page.write(running=True)
            play_all(runs, count, look)
        finally:
            results = [result for run in runs if (result := run.result()) is not None]
            if results:
                write_summaries(results, out)
            page.write(running=False)
    return results


def _check_data(planned: Sequence[Planned]) -> None:
    """Try each method and each value of what makes a federation, so that a wrong one is named before any run begins."""
    tried: set[tuple[str, object]] = set()
    for each in planned:
        own = {("method", type(each.method)), *((name, getattr(each.config, name)) for name in _OF_FEDERATIONS)}
        if own <= tried:
            continue
        tried |= own
        _, build = assemble(each.method, each.config.uplink_bits, each.config.downlink_bits)
        built = build()
        check_method(built, prepare(each.config, method=built).asked)


def process_count(wanted: int | None, planned: Sequence[Planned]) -> int:
    """How many runs go side by side: by default as many as keep every core busy, and one on a GPU."""
    if wanted is not None and wanted < 1:
        raise ConfigError(f"processes must be 1 or more, got {wanted}")
    if any(not each.config.device.startswith("cpu") for each in planned):
        return wanted or 1
    workers = max(each.config.workers or 1 for each in planned)
    return wanted or max(1, core_count() // workers)
