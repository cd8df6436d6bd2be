"""A small federation in memory: the real server, clients, codec and ledger; random soft-labels instead of models."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import numpy as np

from scarlet.methods.dsfl import DsflConfig, dsfl
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.protocol.cache import CacheTable
from scarlet.protocol.client import Client
from scarlet.protocol.federation import Federation
from scarlet.protocol.method import Answer, Kept, Method
from scarlet.protocol.server import ClosedRound, Learner, Server
from scarlet.protocol.types import CatchUp, Images, Index, Job, Labels, Result, Uplink, Values
from scarlet.rng import stream
from scarlet.wire import frame
from scarlet.wire.ledger import COLUMNS, Column, Ledger
from scarlet.wire.reference import Reference

FEDERATION = Federation(clients=4, public_size=24, public_per_round=8, classes=3, seed=5)
METHODS: dict[str, Callable[[], Method]] = {
    "scarlet, delete": lambda: scarlet(ScarletConfig(beta=1.5, cache_duration=4, on_expiry="delete")),
    "scarlet, refresh": lambda: scarlet(ScarletConfig(beta=1.5, cache_duration=4, on_expiry="refresh")),
    "dsfl": lambda: dsfl(DsflConfig()),
}

Reply = tuple[int, bytes]
Say = Callable[[int, int, Index, int], Values]  # (client, round, samples, N) -> soft-labels
Arrange = Callable[[list[Reply]], list[Reply]]  # what the transport does to the replies of a round


def soft_labels(client: int, round: int, index: Index, classes: int = FEDERATION.classes) -> Values:
    """What a client says of each sample in a round: random, and the same whenever it is asked."""
    rng = stream(99, "labels", client=client, round=round)
    table = rng.dirichlet([0.3] * classes, FEDERATION.public_size).astype(np.float32)
    return table[index]


def few_labels(client: int, round: int, index: Index, classes: int = FEDERATION.classes) -> Values:
    """What a client says where it hardly ever changes its mind: of a sample the same in five rounds of six."""
    best = ((round + index + client) // 6 + 2 * index + client) % classes
    return np.asarray(0.8 * np.eye(classes)[best] + 0.2 / classes, np.float32)


def weights(client: int, round: int, count: int) -> Values:
    """What a client's model is in a round, where models are exchanged."""
    return stream(99, "weights", client=client, round=round).normal(size=count).astype(np.float32)


class Table:
    """Stands for the server's model: a soft-label for each public sample, half of it from the last lesson."""

    def __init__(self, federation: Federation = FEDERATION) -> None:
        self.value = np.full((federation.public_size, federation.classes), 1 / federation.classes, np.float32)
        self.learned: Labels | None = None  # the last lesson

    def learn(self, labels: Labels, round: int) -> None:
        self.learned = labels
        self.value[labels.index] = (self.value[labels.index] + labels.value) / 2

    def predict(self, index: Index) -> Values:
        return self.value[index]

    def parameters(self) -> Values:
        return self.value.ravel().copy()

    def load(self, parameters: Values) -> None:
        self.value = parameters.reshape(self.value.shape)


class Knowing(Answer):
    """A client answers the samples that it is said to know; `Town.know` says so."""

    def prepare(self, private: Images, public: Images, rng: np.random.Generator) -> Kept:
        return {}

    def __call__(self, labels: Labels, kept: Kept) -> Labels:
        known = kept["known"][labels.index].astype(np.bool_)
        return Labels(labels.index[known], labels.value[known])


class Town:
    """A server and its clients, round by round; a client whose cache differs is reset, as a transport would have it."""

    def __init__(
        self,
        method: Method,
        federation: Federation = FEDERATION,
        learner: Learner | None = None,
        say: Say = soft_labels,
    ) -> None:
        self.ledger, self.federation, self.say = Ledger(), federation, say
        self.codec = Reference(method.uplink_bits, method.downlink_bits)
        self.server = Server(method, federation, self.codec, self.ledger, learner)
        self.clients = [self.new_client(number) for number in range(federation.clients)]
        self.jobs: list[Job] = []  # of the clients that were asked, in their order
        self.resyncs: list[int] = []  # who said in this round that its cache differs
        self.handed: dict[int, dict[Column, int]] = {}  # bytes of the last round that were handed over

    def new_client(self, number: int) -> Client:
        """A client that remembers nothing."""
        return Client(number, self.server.method, self.federation, self.codec)

    def know(self, known: Mapping[int, Collection[int]]) -> None:
        """Which samples each client answers from now on, where the method's answer is `Knowing`; others know all."""
        for client in self.clients:
            samples = known.get(client.number, range(self.federation.public_size))
            client.state.kept = {"known": np.isin(np.arange(self.federation.public_size), list(samples))}

    def open(self) -> None:
        """Everybody who is asked gets the round's downlink."""
        self.jobs, self.resyncs, self.handed = [], [], {}
        self.deliver(self.server.open_round())
        self.jobs.sort(key=lambda job: job.client)

    def deliver(self, downlinks: Mapping[int, bytes]) -> None:
        """Hand downlinks over, and pass on whatever comes back at once."""
        for number, downlink in downlinks.items():
            for data in frame.split(downlink):
                caught_up = isinstance(self.codec.decode(data), CatchUp)
                self._count(number, "catch_up" if caught_up else "downlink", data)
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
            value = self.say(job.client, job.round, job.request, self.federation.classes)
            result = Result(value, {"loss": 1 / (1 + job.client)})
            if job.parameters is not None:
                trained = weights(job.client, job.round, len(job.parameters))
                result = replace(result, samples=1 + job.client, parameters=trained)
            uplink, report = self.clients[job.client].reply(job, result)
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
