"""Clients on this machine: persistent worker processes of one thread each, or none for a single worker."""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType

import torch

from scarlet.arrays import Array
from scarlet.data.federated import FederatedData
from scarlet.errors import ConfigError
from scarlet.transport.client_runner import ClientRunner
from scarlet.transport.client_setup import ClientSetup
from scarlet.transport.placement import Placement
from scarlet.transport.transport import Failure, LocalClients, Overhead, States
from scarlet.transport.worker import MakeRunner, Worker

_MOST_PER_CORE = 4  # workers; more only wait for each other, each with 300 MB of its own


def core_count() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def worker_count(wanted: int | None, clients: int, device: str = "cpu") -> int:
    """How many processes run the clients.

    By default one for each core that this process may use, but no more than there are clients; one on a GPU.
    """
    cores = core_count()
    if wanted is not None and wanted > _MOST_PER_CORE * cores:
        raise ConfigError(
            f"workers must be at most {_MOST_PER_CORE * cores} on this machine, {_MOST_PER_CORE} for each of its "
            f"{cores} cores, got {wanted}; use fewer"
        )
    if wanted is None:
        wanted = cores if torch.device(device).type == "cpu" else 1
    return max(1, min(wanted, clients))


def _cost(setup: ClientSetup, data: FederatedData, client: int) -> int:
    """How much a client has to do in a round; above zero."""
    kind = setup.kind(client)
    taught = kind.training.distil_epochs * setup.agreement.public_per_round
    return 1 + kind.cost * (kind.training.local_epochs * len(data.train[client]) + taught)


class LocalTransport:
    """Moves bytes between a server and the clients of this machine. Use it as a context manager.

    A client's model and cache stay on one worker, until another has less to do in a round. `runner` makes what runs
    the clients of a process; a benchmark may pass one that keeps time.
    """

    def __init__(
        self,
        setup: ClientSetup,
        data: FederatedData,
        workers: int,
        *,
        saved: States | None = None,
        runner: MakeRunner = ClientRunner,
    ) -> None:
        saved = {} if saved is None else saved
        self._clients = range(len(data.train))
        self._placement = Placement(workers, partial(_cost, setup, data))
        # Under `batched`, who is trained together must not depend on what came before.
        self._balanced = not setup.together
        self._runner: ClientRunner | None = None
        self._workers: list[Worker] = []
        self._collect = False  # states come along with the answers
        self._collected: dict[int, dict[str, Array]] = {}  # the states that came
        if workers == 1:
            self._runner = runner(setup, data, saved)
            return
        # One copy of the data, in memory-mapped files, serves all workers; it is deleted when all have it open.
        with tempfile.TemporaryDirectory(prefix="scarlet-") as folder:
            stored = data.save(Path(folder), channels_last=all(kind.channels_last for kind in setup.kinds))
            try:
                for number in range(workers):
                    self._workers.append(Worker(number, setup, stored, saved, workers, runner))
                for worker in self._workers:
                    worker.ready()
            except BaseException:
                self.close()
                raise

    def available(self) -> Collection[int]:
        return self._clients

    def exchange(self, downlinks: Mapping[int, bytes], until: float) -> Iterator[tuple[int, bytes | Failure]]:
        if self._runner is not None:
            yield from self._exchange_here(self._runner, downlinks, until)
            return
        for number in downlinks:
            self._collected.pop(number, None)
        for worker in self._workers:
            yield from worker.late
            worker.late.clear()
        # A worker that is still busy with an earlier round misses this one: it cannot be asked while it answers.
        free = [number for number, worker in enumerate(self._workers) if not worker.unanswered]
        shares = self._shared_out(downlinks, free)
        for number in free:
            if shares[number]:
                share = {client: downlinks[client] for client in shares[number]}
                self._workers[number].ask("exchange", (share, self._collect))
        # A worker that was late in an earlier round sends what is left of it; the server will turn it down.
        while busy := {worker.connection: worker for worker in self._workers if worker.unanswered}:
            left = until - time.monotonic()
            if left <= 0:
                return
            for connection in wait(list(busy), timeout=None if math.isinf(left) else left):
                assert isinstance(connection, Connection)
                answer = busy[connection].receive()
                if isinstance(answer, dict):
                    self._collected |= answer
                elif answer is not None:
                    yield answer

    def _exchange_here(
        self, runner: ClientRunner, downlinks: Mapping[int, bytes], until: float
    ) -> Iterator[tuple[int, bytes | Failure]]:
        answers = runner.exchange(downlinks)
        # Before a client is trained, and after it.
        while time.monotonic() < until and (answer := next(answers, None)) and time.monotonic() <= until:
            number, messages = answer
            for message in [messages] if isinstance(messages, Failure) else messages:
                yield number, message

    def overhead(self) -> Overhead:
        """Bytes around the messages that went through the pipes since this was asked last.

        What clients remember, when it is moved or saved, is no part of a federation's traffic.
        """
        up, down = sum(worker.up for worker in self._workers), sum(worker.down for worker in self._workers)
        for worker in self._workers:
            worker.up = worker.down = 0
        return Overhead(up, down)

    @property
    def local(self) -> LocalClients:
        return self

    def collect(self) -> None:
        self._collect = True

    def states(self, clients: Sequence[int]) -> States:
        self._collect = False
        if self._runner is not None:
            return self._runner.states(clients)
        found = {k: self._collected.pop(k) for k in clients if k in self._collected}
        asked = []
        shares = self._placement.at_home(k for k in clients if k not in found)
        for worker, share in zip(self._workers, shares, strict=True):
            if share:
                worker.ask("states", share)
                asked.append(worker)
        for worker in asked:
            found |= worker.result()
        return found

    def digests(self) -> list[bytes]:
        if self._runner is not None:
            return list(self._runner.digests(self._clients).values())
        found: dict[int, bytes] = {}
        for worker, share in zip(self._workers, self._placement.at_home(self._clients), strict=True):
            found |= worker.call("digests", share)
        return [found[client] for client in self._clients]

    def _shared_out(self, clients: Iterable[int], free: Sequence[int]) -> list[list[int]]:
        """For each worker, whom it is to run; of those that are free none has much more to do than another."""
        shares = self._placement.at_home(clients)
        if self._balanced:
            for client, before in self._placement.balance(shares, free).items():
                state = self._workers[before].call("release", [client])
                self._workers[self._placement.home(client)].call("take over", state)
        return shares

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.stop()
        self._workers = []
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def __enter__(self) -> LocalTransport:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
