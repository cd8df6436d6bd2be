"""Clients on this machine: persistent worker processes of one thread each, or none for a single worker."""

from __future__ import annotations

import ctypes
import math
import multiprocessing
import os
import pickle
import signal
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch

from scarlet.data.shares import Shares
from scarlet.errors import ScarletError
from scarlet.protocol.persist import Array
from scarlet.training.runtime import has_channels_last, keep_freed_memory
from scarlet.training.train import clock
from scarlet.transport.client_runner import Host, Resident, Setup
from scarlet.transport.client_store import model_arrays, weights_of
from scarlet.transport.placement import Placement

_PIPE_HEAD = 4  # bytes before each object in a pipe, which say how long it is


class WorkerError(ScarletError):
    """A worker process failed or died."""


def default_workers(clients: int, device: str = "cpu") -> int:
    """As many processes as there are cores for this process, but no more than clients; one for any other device."""
    if torch.device(device).type != "cpu":
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, clients))


class LocalTransport:
    """Moves bytes between a server and the clients of this machine. Use it as a context manager.

    A client's model and cache stay on a worker, until another has less to do in a round.
    """

    def __init__(
        self,
        setup: Setup,
        data: Resident,
        workers: int,
        *,
        saved: Mapping[int, Mapping[str, Array]] = {},
        deadline: float | None = None,  # seconds after which a round no longer waits for answers
    ) -> None:
        self._deadline = math.inf if deadline is None else deadline
        self._clients = range(len(setup.private))
        setup = replace(setup, workers=workers)
        how, private, taught = setup.training, setup.private, setup.federation.public_per_round
        self._placement = Placement(
            workers, lambda client: 1 + how.local_epochs * len(private[client]) + how.distil_epochs * taught
        )
        self._balanced = setup.at_once is None  # who is trained together must not depend on what came before
        self._host: Host | None = None
        self._workers: list[_Worker] = []
        self._kept: dict[int, dict[str, Array]] = {}  # what clients remember, as of their last answer
        if workers == 1:
            self._host = Host(setup, data, saved)
            return
        # The images, and who holds which, go through memory-mapped files, one copy in the page cache for all workers.
        # The files are deleted as soon as every worker has them open.
        with tempfile.TemporaryDirectory(prefix="scarlet-") as folder:
            turned = has_channels_last(setup.factory())
            _save(data, Path(folder), turned=turned)
            Shares.save(setup.private, Path(folder), "private")
            Shares.save(setup.test, Path(folder), "test")
            setup = replace(setup, private=(), test=())
            try:
                for number in range(workers):
                    self._workers.append(_Worker(number, setup, Path(folder), saved, turned=turned))
                for worker in self._workers:
                    worker.ready()
            except BaseException:
                self.close()
                raise

    def exchange(self, downlinks: Mapping[int, bytes], *, keep: bool = False) -> Iterator[tuple[int, bytes]]:
        """Hand each client its message; yield (sender, message) as the answers arrive, in any order.

        With `keep` what each client then remembers comes along with its answer, so that `states` need not wait.
        """
        end = time.monotonic() + self._deadline
        if self._host is not None:
            for number, messages in self._host.exchange(downlinks):
                if time.monotonic() > end:
                    return
                for message in messages:
                    yield number, message
        for number in downlinks:
            self._kept.pop(number, None)
        for worker in self._workers:
            yield from worker.late
            worker.late.clear()
        # A worker that is still busy with an earlier round misses this one: it cannot be asked while it answers.
        free = [number for number, worker in enumerate(self._workers) if not worker.unanswered]
        shares = self._shared_out(downlinks, free)
        for number in free:
            if shares[number]:
                share = {client: downlinks[client] for client in shares[number]}
                self._workers[number].ask("exchange", (share, keep))
        # A worker that was late in an earlier round sends what is left of it; the server will turn it down.
        while busy := {worker.connection: worker for worker in self._workers if worker.unanswered}:
            left = end - time.monotonic()
            if left <= 0:
                return
            for connection in wait(list(busy), timeout=None if math.isinf(left) else left):
                assert isinstance(connection, Connection)
                answer = busy[connection].receive()
                if isinstance(answer, dict):
                    self._kept |= answer
                elif answer is not None:
                    yield answer

    def overhead(self) -> tuple[int, int]:
        """Bytes around the messages that went through the pipes, up and down, since this was last asked.

        What clients remember, when it is moved or saved, is no part of a federation's traffic.
        """
        up, down = sum(worker.up for worker in self._workers), sum(worker.down for worker in self._workers)
        for worker in self._workers:
            worker.up = worker.down = 0
        return up, down

    def spent(self) -> float:
        """Seconds of training, prediction and evaluation since the start, in the workers and in this process."""
        return clock.seconds + sum(worker.spent.value for worker in self._workers)

    def digests(self) -> list[bytes]:
        """A digest of each client's weights, in the order of the clients."""
        if self._host is not None:
            return list(self._host.digests(self._clients).values())
        found: dict[int, bytes] = {}
        for worker, share in zip(self._workers, self._placement.at_home(self._clients), strict=True):
            found |= worker.call("digests", share)
        return [found[client] for client in self._clients]

    def states(self, clients: Sequence[int]) -> dict[int, dict[str, Array]]:
        """All that some clients remember, to be saved."""
        if self._host is not None:
            return self._host.states(clients)
        found = {k: self._kept.pop(k) for k in clients if k in self._kept}
        asked = []
        shares = self._placement.at_home(k for k in clients if k not in found)
        for worker, share in zip(self._workers, shares, strict=True):
            if share:
                worker.ask("states", share)
                asked.append(worker)
        for worker in asked:
            found |= worker.result()
        return found

    def _shared_out(self, clients: Iterable[int], free: Sequence[int]) -> list[list[int]]:
        """For each worker, whom it is to run; of those that are free none has much more to do than another."""
        shares = self._placement.at_home(clients)
        if self._balanced:
            for client, before in self._placement.balance(shares, free).items():
                state = self._workers[before].call("release", [client])
                self._workers[self._placement.home(client)].call("adopt", state)
        return shares

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.stop()
        self._workers = []
        if self._host is not None:
            self._host.close()
            self._host = None

    def __enter__(self) -> LocalTransport:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Worker:
    """The parent's end of one worker process."""

    def __init__(
        self, number: int, setup: Setup, folder: Path, saved: Mapping[int, Mapping[str, Array]], *, turned: bool
    ) -> None:
        # A fork server that has torch loaded starts a worker in hundredths of a second, and unlike a plain fork it
        # does not inherit the parent's threads.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["scarlet.transport.local"])
        self.connection, theirs = context.Pipe()
        self.spent = context.RawValue(ctypes.c_double)  # shared, so that a busy worker need not be asked
        # As tensors, each of the weights would be sent as a file descriptor, of which some 250 can be.
        weights = model_arrays(setup.weights)
        arguments = theirs, replace(setup, weights={}), weights, folder, turned, saved, self.spent
        self._process: ForkServerProcess = context.Process(
            target=_serve, args=arguments, daemon=True, name=f"scarlet-{number}"
        )
        self._process.start()
        theirs.close()
        self.late: list[tuple[int, bytes]] = []  # answers that came when something else was waited for
        self.unanswered = 1  # requests whose end has not been seen yet; the first is to get ready
        self.up = self.down = 0  # bytes through the pipe beyond the messages in them

    def ready(self) -> None:
        answer = self.receive()
        assert answer is None

    def ask(self, what: str, about: object) -> None:
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
            self.up += _PIPE_HEAD + len(received) - len(answer[1])
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
        self._process.terminate()
        self._process.join()
        self.connection.close()

    def _death(self) -> WorkerError:
        self._process.join(timeout=5)
        return WorkerError(
            f"worker process {self._process.pid} died with exit code {self._process.exitcode}; "
            "if memory ran out, use fewer --workers or --clients"
        )


def _serve(
    connection: Connection,
    setup: Setup,
    weights: Mapping[str, Array],
    folder: Path,
    turned: bool,
    saved: Mapping[int, Mapping[str, Array]],
    spent: ctypes.c_double,
) -> None:
    """The life of a worker: each request is answered by some messages and, at their end, by None."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    torch.set_num_threads(1)
    keep_freed_memory()
    try:
        private, test = Shares(folder, "private"), Shares(folder, "test")
        setup = replace(setup, weights=weights_of(weights), private=private, test=test)
        host = Host(setup, _load(folder, turned=turned), saved)
        while True:
            connection.send(None)
            match connection.recv():
                case "exchange", (downlinks, keep):
                    for number, messages in host.exchange(downlinks):
                        spent.value = clock.seconds
                        for message in messages:
                            connection.send((number, message))
                        if keep:
                            connection.send(host.states([number]))
                case "release", leaving:
                    connection.send(host.release(leaving))
                case "adopt", states:
                    host.adopt(states)
                case "digests", wanted:
                    connection.send(host.digests(wanted))
                case "states", wanted:
                    connection.send(host.states(wanted))
    except (EOFError, ConnectionError):  # the parent is gone
        return
    except ScarletError as error:
        connection.send(error)
    except Exception:
        connection.send(WorkerError(f"a worker process failed:\n{traceback.format_exc()}"))


def _save(data: Resident, folder: Path, *, turned: bool) -> None:
    """Write the data for all workers; if `turned`, the public images, which all look at, with the channels last."""
    if turned:
        data = replace(data, public=data.public.transpose(0, 2, 3, 1))
    for field in fields(data):
        np.save(folder / f"{field.name}.npy", np.ascontiguousarray(getattr(data, field.name)))


def _load(folder: Path, *, turned: bool) -> Resident:
    # Mode "c" maps the file privately: torch wants arrays that it could write to, and nobody does.
    data = Resident(*(np.load(folder / f"{field.name}.npy", mmap_mode="c") for field in fields(Resident)))
    return replace(data, public=data.public.transpose(0, 3, 1, 2)) if turned else data
