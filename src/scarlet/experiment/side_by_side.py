"""Runs side by side, each in a process of its own that ends with the process which began it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

import cloudpickle

from scarlet.errors import ScarletError
from scarlet.experiment.given import NOTHING_GIVEN
from scarlet.experiment.planned import Planned
from scarlet.experiment.run import run_with
from scarlet.experiment.run_directory import complete, finished, read_run, rounds_in
from scarlet.methods.registry import METHODS, entry_of
from scarlet.records import RunResult
from scarlet.transport.worker import no_main_module

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


@dataclass(slots=True)
class RunProcess:
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


def play_all(runs: Sequence[RunProcess], count: int, watch: Watch) -> None:
    waiting = [run for run in runs if run.progress.state != "finished"]
    running: list[RunProcess] = []
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
    from multiprocessing import forkserver, resource_tracker  # not on every system

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
