"""A small federation in memory: the real server, clients, codec and ledger; random soft-labels instead of models."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np

from scarlet.core.cache import CacheTable
from scarlet.core.client import Client
from scarlet.core.method import Method
from scarlet.core.rng import stream
from scarlet.core.server import ClosedRound, Federation, Server
from scarlet.core.types import Index, Job, Labels, Result, Uplink, Values
from scarlet.methods.dsfl import DsflConfig, dsfl
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.wire import frame
from scarlet.wire.codec import Reference
from scarlet.wire.ledger import COLUMNS, Column, Ledger

FEDERATION = Federation(clients=4, public_size=24, public_per_round=8, classes=3, seed=5)
METHODS: dict[str, Callable[[], Method]] = {
    "scarlet, delete": lambda: scarlet(ScarletConfig(beta=1.5, cache_duration=4, on_expiry="delete")),
    "scarlet, refresh": lambda: scarlet(ScarletConfig(beta=1.5, cache_duration=4, on_expiry="refresh")),
    "dsfl": lambda: dsfl(DsflConfig()),
}

Reply = tuple[int, bytes]
Arrange = Callable[[list[Reply]], list[Reply]]  # what the transport does to the replies of a round


def soft_labels(client: int, round: int, index: Index, classes: int = FEDERATION.classes) -> Values:
    """What a client says of each sample in a round: random, and the same whenever it is asked."""
    rng = stream(99, "labels", client=client, round=round)
    table = rng.dirichlet([0.3] * classes, FEDERATION.public_size).astype(np.float32)
    return table[index]


class Town:
    """A server and its clients, round by round; a client whose cache differs is reset, as a transport would have it."""

    def __init__(self, method: Method, federation: Federation = FEDERATION) -> None:
        self.ledger, self.federation = Ledger(), federation
        self.codec = Reference(method.uplink_bits, method.downlink_bits)
        self.server = Server(method, federation, self.codec, self.ledger)
        self.clients = [self.new_client(number) for number in range(federation.clients)]
        self.jobs: list[Job] = []  # of the clients that were asked, in their order
        self.resyncs: list[int] = []  # who said in this round that its cache differs
        self.handed: dict[int, dict[Column, int]] = {}  # bytes of the last round that were handed over

    def new_client(self, number: int) -> Client:
        """A client that remembers nothing."""
        known = self.federation
        return Client(number, self.server.method, known.public_size, known.classes, self.codec, known.public)

    def open(self) -> None:
        """Everybody who is asked gets the round's downlink."""
        self.jobs, self.resyncs, self.handed = [], [], {}
        self.deliver(self.server.open_round())
        self.jobs.sort(key=lambda job: job.client)

    def deliver(self, downlinks: Mapping[int, bytes]) -> None:
        """Hand downlinks over, and pass on whatever comes back at once."""
        for number, downlink in downlinks.items():
            broadcast, *catch_up = frame.split(downlink)
            self._count(number, "downlink", broadcast)
            for data in catch_up:
                self._count(number, "catch_up", data)
            task = self.clients[number].receive(downlink)
            if isinstance(task, Job):
                self.jobs.append(task)
                continue
            self.resyncs.append(number)
            for data in task:
                self._count(number, "uplink", data)
                self.server.take(number, data)
        if resets := self.server.resets():
            self.deliver(resets)

    def replies(self, silent: Collection[int] = ()) -> list[Reply]:
        """What everybody answers; nobody knows the silent samples."""
        replies = []
        for job in self.jobs:
            value = soft_labels(job.client, job.round, job.request, self.federation.classes)
            uplink, report = self.clients[job.client].reply(job, Result(value, {"loss": 1 / (1 + job.client)}))
            if silent:
                known = ~np.isin(job.request, list(silent))
                labels = Labels(job.request[known], value[known])
                uplink = self.codec.encode(Uplink(job.round, job.attempt, job.client, labels))
            replies += [(job.client, uplink), (job.client, report)]
            self._count(job.client, "uplink", uplink)
            self._count(job.client, "report", report)
        return replies

    def play(self, silent: Collection[int] = (), arrange: Arrange = list) -> ClosedRound:
        """One round from broadcast to aggregate."""
        self.open()
        for sender, data in arrange(self.replies(silent)):
            self.server.take(sender, data)
        closed = self.server.close_round()
        assert closed is not None
        return closed

    def counted(self) -> dict[int, dict[Column, int]]:
        """The round's ledger, in the form of `handed`."""
        return {
            client: {column: total.size for column, total in columns.items()}
            for client, columns in self.ledger.by_client().items()
        }

    def _count(self, client: int, column: Column, data: bytes) -> None:
        self.handed.setdefault(client, dict.fromkeys(COLUMNS, 0))[column] += len(data)


def memory(server: Server) -> tuple[object, ...]:
    """All that the server knows at the end of a round, in a form that == compares bit by bit.

    What was rejected is left out: it is counted, and that is all.
    """
    state, sync = server.state, server.state.sync
    known = None
    if sync is not None:
        signal = None if sync.signal is None else sync.signal.tolist()
        known = (sync.round, sync.index.tolist(), signal, sync.fresh.tobytes(), sync.dropped.tolist())
    held = state.holdings.acknowledged.tolist(), state.holdings.drawn.tolist()
    columns = [column for column in COLUMNS if column != "rejected"]
    total = {column: server.ledger.total[column] for column in columns}
    by_client = {
        client: {column: its[column] for column in columns}
        for client, its in server.ledger.by_client().items()
        if any(its[column].size for column in columns)
    }
    return (*entries(state.cache), *held, state.round, state.attempt, known, state.digest, total, by_client)


def entries(table: CacheTable) -> tuple[bytes, list[int]]:
    return table.value.tobytes(), table.stamp.tolist()


def same_labels(a: Labels, b: Labels) -> bool:
    return a.index.tolist() == b.index.tolist() and a.value.tobytes() == b.value.tobytes()
