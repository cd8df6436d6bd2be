"""A worker process that runs clients with one thread, and the parent's end of the pipe to it."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from types import ModuleType
from typing import Any

import cloudpickle
import torch

from scarlet.data.federated import StoredData
from scarlet.errors import ScarletError
from scarlet.training.freed_memory import keep_freed_memory
from scarlet.transport.client_runner import ClientRunner
from scarlet.transport.client_setup import ClientSetup
from scarlet.transport.transport import Failure, States

PRELOADED = ["scarlet.transport.worker"]  # modules that the fork server loads, once for all workers
_PIPE_HEAD = 4  # bytes before each object in a pipe, which say how long it is

MakeRunner = Callable[..., ClientRunner]


class WorkerError(ScarletError):
    """A worker process failed or died."""


class Worker:
    """The parent's end of one worker process."""

    def __init__(
        self, number: int, setup: ClientSetup, data: StoredData, saved: States, workers: int, runner: MakeRunner
    ) -> None:
        # A fork server that has torch loaded starts a worker in hundredths of a second, and unlike a plain fork it
        # does not inherit the parent's threads.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([*PRELOADED, *_loaded_by_optimisers(setup)])
        self.connection, theirs = context.Pipe()
        # cloudpickle sends functions of a script or a notebook as they are, where pickle would send their names.
        arguments = theirs, cloudpickle.dumps(setup), data, saved, workers, runner
        self._process: ForkServerProcess = context.Process(
            target=_serve, args=arguments, daemon=True, name=f"scarlet-{number}"
        )
        with no_main_module():
            self._process.start()
        theirs.close()
        self.late: list[tuple[int, bytes | Failure]] = []  # answers that came while something else was waited for
        self.unanswered = 1  # requests whose end has not been seen yet; the first is to get ready
        self.up = self.down = 0  # bytes through the pipe beyond the messages in them

    def ready(self) -> None:
        """Wait until the process has loaded its data."""
        answer = self.receive()
        assert answer is None

    def ask(self, what: str, about: object) -> None:
        """Send a request; its answer is read by `receive` or `result`."""
        request = pickle.dumps((what, about))
        try:
            self.connection.send_bytes(request)
        except OSError:
            raise self._death() from None
        self.unanswered += 1
        if what == "exchange" and isinstance(about, tuple):
            # A downlink that several clients are sent goes through the pipe once.
            downlinks = {id(data): data for data in about[0].values()}
            self.down += _PIPE_HEAD + len(request) - sum(map(len, downlinks.values()))

    def receive(self) -> Any:
        """The next part of an answer; None at its end."""
        try:
            received = self.connection.recv_bytes()
        except (EOFError, OSError):
            raise self._death() from None
        answer = pickle.loads(received)
        if isinstance(answer, tuple):
            message = b"" if isinstance(answer[1], Failure) else answer[1]
            self.up += _PIPE_HEAD + len(received) - len(message)
        if isinstance(answer, BaseException):
            raise answer
        if answer is None:
            self.unanswered -= 1
        return answer

    def call(self, what: str, about: object) -> Any:
        """Ask for one thing, and wait for it."""
        self.ask(what, about)
        return self.result()

    def result(self) -> Any:
        """The answer to the last request, after whatever is left of earlier ones."""
        found = None
        while self.unanswered:
            answer = self.receive()
            if isinstance(answer, tuple):
                self.late.append(answer)
            elif answer is not None:
                found = answer
        return found

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join()
        self.connection.close()

    def _death(self) -> WorkerError:
        self._process.join(timeout=5)
        return WorkerError(
            f"worker process {self._process.pid} died with exit code {self._process.exitcode}; "
            "if memory ran out, use fewer --workers or --clients"
        )


def _loaded_by_optimisers(setup: ClientSetup) -> list[str]:
    """The optimisers of torch load its compiler, which takes two seconds; plain SGD needs none of them."""
    trainings = [kind.training for kind in setup.kinds]
    used = any(each.optimiser or each.schedule or each.momentum or each.weight_decay for each in trainings)
    return ["torch._dynamo"] if used else []


@contextmanager
def no_main_module() -> Iterator[None]:
    """Hide the user's script: a new process would run it again, though all that it needs of it is sent to it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _serve(
    connection: Connection,
    setup: bytes,
    data: StoredData,
    saved: States,
    workers: int,
    make: MakeRunner,
) -> None:
    """The life of a worker: each request is answered by some messages and, at their end, by None."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    torch.set_num_threads(1)
    keep_freed_memory()
    try:
        runner = make(pickle.loads(setup), data.load(), saved, workers)
        while True:
            connection.send(None)
            match connection.recv():
                case "exchange", (downlinks, collect):
                    for number, messages in runner.exchange(downlinks):
                        for message in [messages] if isinstance(messages, Failure) else messages:
                            connection.send((number, message))
                        if collect:
                            connection.send(runner.states([number]))
                case "release", leaving:
                    connection.send(runner.release(leaving))
                case "take over", states:
                    runner.take_over(states)
                case "digests", wanted:
                    connection.send(runner.digests(wanted))
                case "states", wanted:
                    connection.send(runner.states(wanted))
    except (EOFError, ConnectionError):  # the parent is gone
        return
    except ScarletError as error:
        connection.send(error)
    except Exception:
        connection.send(WorkerError(f"a worker process failed:\n{traceback.format_exc()}"))
