"""Many runs side by side, each in a process of its own and in an ordinary run directory."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

from scarlet.errors import ConfigError, ScarletError
from scarlet.experiment.config_json import flatten, identifying
from scarlet.experiment.federation import prepare
from scarlet.experiment.given import NOTHING_GIVEN
from scarlet.experiment.grid import grid
from scarlet.experiment.locked import locked
from scarlet.experiment.planned import Planned, read_plan, write_plan, write_summaries
from scarlet.experiment.run import run_with
from scarlet.experiment.run_directory import check_free, complete, finished, make, read_run
from scarlet.experiment.sweep_page import SweepPage
from scarlet.methods.registry import assemble
from scarlet.records import RunResult
from scarlet.transport.local import core_count

PLAN = "sweep.json"
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
    Ctrl-C ends all of them after their last whole round.
    """
    out, planned = Path(out), grid(table, where)
    if not (out / PLAN).exists():
        check_free(out)
    elif gone := {each.directory for each in read_plan(out / PLAN)} - {each.directory for each in planned}:
        raise ConfigError(
            f"out holds another sweep: {out / PLAN} has the run {min(gone)}, which the grid does not have; choose "
            "another directory"
        )
    return run_side_by_side(planned, out, process_count(processes, planned), watch)


def extend_plan(out: Path, planned: Sequence[Planned]) -> None:
    """Add runs to the plan of a directory; raise ConfigError where it has one of that name with other options."""
    before = {each.directory: each for each in read_plan(out / PLAN)} if (out / PLAN).exists() else {}
    for each in planned:
        known, options = before.get(each.directory), identifying(flatten(each.method, each.config))
        if known is not None and (was := identifying(flatten(known.method, known.config))) != options:
            apart = min(name for name in was.keys() | options.keys() if was.get(name) != options.get(name))
            raise ConfigError(
                f"out holds other runs: {out / PLAN} has {each.directory} with {apart} = {was.get(apart)}, which is "
                f"now {options.get(apart)}; choose another directory"
            )
    write_plan(out / PLAN, list({**before, **{each.directory: each for each in planned}}.values()))


def run_side_by_side(planned: Sequence[Planned], out: Path, count: int, watch: Watch | None = None) -> list[RunResult]:
    """Run what was planned and is not finished, `count` at a time; the results of all runs that have begun."""
    _check_data([each for each in planned if finished(out / each.directory) is None])
    with locked(make(out), "out"):
        extend_plan(out, planned)
        runs = [_Run(each, out / each.directory) for each in planned]
        page = SweepPage(planned, out)

        def look(progress: Sequence[Progress], count: int) -> None:
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
    """Read the datasets of each method once, so that what is missing is said once and not by every run."""
    firsts: dict[object, Planned] = {}
    for each in planned:
        config = each.config
        firsts.setdefault((type(each.method), config.private, config.public, config.data_dir), each)
    for each in firsts.values():
        _, build = assemble(each.method, each.config.uplink_bits, each.config.downlink_bits)
        prepare(each.config, method=build())


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
        process = context.Process(target=_play, args=(self.planned, self.directory, tell))
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
        if not (self.directory / "config.json").exists():
            return None
        result = read_run(self.directory)
        complete(result)
        return result

    def _count_rounds(self) -> None:
        metrics = self.directory / "metrics.jsonl"
        self.progress.done = metrics.read_bytes().count(b"\n") if metrics.exists() else 0

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
    context.set_forkserver_preload(["scarlet.experiment.run"])
    return context


def _play(planned: Planned, directory: Path, tell: Connection) -> None:
    """One run, in a process of its own; that ends with the process which began it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to all; the first process passes it on
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    threading.Thread(target=_end_with_parent, daemon=True).start()
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
