"""Clients on this machine: persistent worker processes of one thread each, or none for a single worker."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import fields
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import TracebackType

import numpy as np
import torch

from scarlet.errors import ScarletError
from scarlet.transport.host import Host, Resident, Setup


class WorkerError(ScarletError):
    """A worker process failed or died."""


def default_workers(clients: int) -> int:
    """As many processes as there are cores for this process, but no more than clients."""
    return max(1, min(len(os.sched_getaffinity(0)), clients))


class LocalTransport:
    """Moves bytes between a server and the clients of this machine. Use it as a context manager.

    Client k always lives on worker k modulo `workers`, so that its model and cache stay where they are.
    """

    def __init__(self, setup: Setup, data: Resident, workers: int) -> None:
        clients = len(setup.private)
        shares = [range(first, clients, workers) for first in range(workers)]
        self._host: Host | None = None
        self._workers: list[_Worker] = []
        if workers == 1:
            self._host = Host(setup, data, shares[0])
            return
        # The images go through memory-mapped files, one copy in the page cache for all workers. The files are
        # deleted as soon as every worker has them open.
        with tempfile.TemporaryDirectory(prefix="scarlet-") as folder:
            _save(data, Path(folder))
            try:
                self._workers = [_Worker(setup, Path(folder), share) for share in shares]
                for worker in self._workers:
                    worker.ready()
            except BaseException:
                self.close()
                raise

    def exchange(self, downlinks: Mapping[int, bytes]) -> Iterator[tuple[int, bytes]]:
        """Hand each client its message; yield (sender, message) as the answers arrive, in any order."""
        if self._host is not None:
            yield from self._host.exchange(downlinks)
            return
        pending: dict[Connection, _Worker] = {}
        for number, worker in enumerate(self._workers):
            share = {k: data for k, data in downlinks.items() if k % len(self._workers) == number}
            worker.send(share)
            pending[worker.connection] = worker
        while pending:
            for connection in wait(list(pending)):
                assert isinstance(connection, Connection)
                answer = pending[connection].receive()
                if answer is None:
                    del pending[connection]
                else:
                    assert isinstance(answer, tuple)
                    yield answer

    def digests(self) -> list[bytes]:
        """A digest of each client's weights, in the order of the clients."""
        found: dict[int, bytes] = {}
        if self._host is not None:
            found = self._host.digests()
        for worker in self._workers:
            worker.send(None)
            answer = worker.receive()
            assert isinstance(answer, dict)
            found |= answer
        return [found[number] for number in sorted(found)]

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.stop()
        self._workers = []

    def __enter__(self) -> LocalTransport:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Worker:
    """The parent's end of one worker process."""

    def __init__(self, setup: Setup, folder: Path, clients: range) -> None:
        # A fork server that has torch loaded starts a worker in hundredths of a second, and unlike a plain fork it
        # does not inherit the parent's threads.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["scarlet.transport.local", "torch._dynamo"])
        self.connection, theirs = context.Pipe()
        self._process: ForkServerProcess = context.Process(
            target=_serve, args=(theirs, setup, folder, clients), daemon=True, name=f"scarlet-{clients.start}"
        )
        self._process.start()
        theirs.close()

    def ready(self) -> None:
        answer = self.receive()
        assert answer == "ready"

    def send(self, request: Mapping[int, bytes] | None) -> None:
        try:
            self.connection.send(request)
        except OSError:
            raise self._death() from None

    def receive(self) -> object:
        try:
            answer = self.connection.recv()
        except (EOFError, OSError):
            raise self._death() from None
        if isinstance(answer, BaseException):
            raise answer
        return answer

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


def _serve(connection: Connection, setup: Setup, folder: Path, clients: range) -> None:
    """The life of a worker: a mapping is a round's messages, None asks for the digests."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    torch.set_num_threads(1)
    try:
        host = Host(setup, _load(folder), clients)
        connection.send("ready")
        while True:
            request = connection.recv()
            if request is None:
                connection.send(host.digests())
                continue
            for answer in host.exchange(request):
                connection.send(answer)
            connection.send(None)
    except (EOFError, ConnectionError):  # the parent is gone
        return
    except ScarletError as error:
        connection.send(error)
    except Exception:
        connection.send(WorkerError(f"a worker process failed:\n{traceback.format_exc()}"))


def _save(data: Resident, folder: Path) -> None:
    for field in fields(data):
        np.save(folder / f"{field.name}.npy", getattr(data, field.name))


def _load(folder: Path) -> Resident:
    # Mode "c" maps the file privately: torch wants arrays that it could write to, and nobody does.
    return Resident(*(np.load(folder / f"{field.name}.npy", mmap_mode="c") for field in fields(Resident)))
