"""Many runs side by side, each in a process of its own and in an ordinary run directory."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

import cloudpickle

from scarlet.errors import ConfigError, ScarletError, WrongTypeError
from scarlet.experiment.comparison import PLAN as COMPARISON
from scarlet.experiment.federation import prepare
from scarlet.experiment.given import NOTHING_GIVEN
from scarlet.experiment.grid import grid
from scarlet.experiment.locked import locked
from scarlet.experiment.planned import Planned, read_plan, write_plan, write_summaries
from scarlet.experiment.run import run_with
from scarlet.experiment.run_directory import (
    check_free,
    complete,
    finished,
    forget,
    has_results,
    make,
    read_config,
    read_run,
    rounds_in,
)
from scarlet.experiment.sweep_page import SweepPage
from scarlet.methods.registry import METHODS, assemble, check_method, entry_of
from scarlet.records import RunResult
from scarlet.transport.local import core_count
from scarlet.transport.worker import no_main_module

PLAN = "sweep.json"
_OF_FEDERATIONS = (
    *("private", "public", "data_dir", "samples_per_client", "test_per_client", "image_size", "share_images"),
    *("public_size", "public_per_round", "clients", "private_validation", "public_validation"),
    *("model", "model_shares", "server_model", "device", "engine", "workers"),
)
_LOOK_SECONDS = 0.5  # between two looks at how far the runs are

State = Literal["waiting", "running", "finished", "interrupted", "failed"]


@dataclass(slots=True)
class Progress:
    """How far a run is."""

    name: str
    rounds: int
    done: int = 0  # rounds
    state: State = "waiting"
    seconds: float = 0.0  # that it has been running
    before: int = 0  # rounds that were done when it began to run
    reason: str = ""  # why it failed

    @property
    def pace(self) -> float | None:
        """Seconds a round, as soon as they are known."""
        return self.seconds / (self.done - self.before) if self.done > self.before else None


Watch = Callable[[Sequence[Progress], int], None]  # (all runs, how many of them run at a time)


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
        runs = [_Run(each, out / each.directory) for each in planned]
        page = SweepPage(planned, out)

        def look(progress: Sequence[Progress], count: int) -> None:
            page.failed = {run.name: run.reason for run in progress if run.state == "failed"}
            page.renew()
            if watch is not None:
                watch(progress, count)

        try:
            page.write(running=True)
            _play_all(runs, count, look)
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


@dataclass(slots=True)
class _Run:
    planned: Planned
    directory: Path
    progress: Progress = field(init=False)
    _process: BaseProcess | None = None
    _reason: Connection | None = None
    _began: float = 0.0
    _told: bool = False  # to end early

    def __post_init__(self) -> None:
        self.progress = Progress(self.planned.directory, self.planned.config.rounds)
        self._count_rounds()
        if finished(self.directory) is not None:
            self.progress.state = "finished"

    @property
    def sentinel(self) -> int:
        assert self._process is not None
        return self._process.sentinel

    def begin(self, context: Any) -> None:
        self._began, self.progress.state, self.progress.before = time.monotonic(), "running", self.progress.done
        self._reason, tell = context.Pipe(duplex=False)
        # cloudpickle sends the method of a script or a notebook as it is, where pickle would send its name.
        what = cloudpickle.dumps((self.planned, entry_of(self.planned.method)))
        process = context.Process(target=_play, args=(what, self.directory, tell))
        with no_main_module():
            process.start()
        self._process = process  # only now: Ctrl-C may come while the first of them loads torch
        tell.close()

    def look(self) -> bool:
        """See how far it is; whether it is still running."""
        self._count_rounds()
        self.progress.seconds = time.monotonic() - self._began
        assert self._process is not None
        if not self._process.is_alive():
            self._end(self._process)
        return self.progress.state == "running"

    def interrupt(self) -> None:
        """Let it end after its last whole round."""
        if self._process is not None:
            self._told = True
            self._process.terminate()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def wait(self) -> None:
        if self._process is not None:
            self._process.join()
            self.look()

    def result(self) -> RunResult | None:
        """What there is of it."""
        if not (self.directory / "metrics.jsonl").exists():
            return None
        result = read_run(self.directory)
        complete(result)
        return result

    def _count_rounds(self) -> None:
        self.progress.done = rounds_in(self.directory)

    def _end(self, process: BaseProcess) -> None:
        assert self._reason is not None
        process.join()
        reason = ""
        try:
            if self._reason.poll():
                reason = self._reason.recv()
        except EOFError:
            pass
        self._reason.close()
        if finished(self.directory) is not None:
            self.progress.state = "finished"
        elif process.exitcode == 0 or (self._told and process.exitcode == -signal.SIGTERM):  # before it could listen
            self.progress.state = "interrupted"
        else:
            ended = f"its process ended with exit code {process.exitcode}; where memory is short, use fewer processes"
            self.progress.state, self.progress.reason = "failed", reason or ended
        self._process = None


def _play_all(runs: Sequence[_Run], count: int, watch: Watch) -> None:
    waiting = [run for run in runs if run.progress.state != "finished"]
    running: list[_Run] = []
    context = _context()
    progress = [run.progress for run in runs]
    try:
        while waiting or running:
            while waiting and len(running) < count:
                running.append(waiting.pop(0))
                running[-1].begin(context)
            wait([run.sentinel for run in running], timeout=_LOOK_SECONDS)
            running = [run for run in running if run.look()]
            watch(progress, count)
    except KeyboardInterrupt:
        for run in running:
            run.interrupt()
        for run in running:
            run.wait()
        watch(progress, count)
    except BaseException:
        for run in running:
            run.kill()
        raise


def _context() -> Any:
    """How processes begin: as copies of one that has loaded torch, where the system can do that."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["scarlet.experiment.fork_server"])
    # A terminal sends Ctrl-C to the server as well: until it has loaded torch, it inherits that SIGINT is blocked.
    resource_tracker.ensure_running()  # first, because its start unblocks SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


def _play(what: bytes, directory: Path, tell: Connection) -> None:
    """One run and its method, in a process of its own; that ends with the process which began it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to all; the first process passes it on
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    planned: Planned
    planned, known = cloudpickle.loads(what)
    METHODS[known.name] = known
    try:
        run_with(NOTHING_GIVEN, planned.method, planned.config, out=directory, resume=directory.exists())
    except KeyboardInterrupt:  # before its first round
        return
    except (ScarletError, OSError) as error:
        tell.send(str(error))
        raise SystemExit(2) from None
    except Exception as error:
        tell.send(f"{type(error).__name__}: {error}")
        raise


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
