"""A small federation in memory: the real server, clients, codec and ledger; random soft-labels instead of models."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import replace

import numpy as np

from scarlet.arrays import Array, Index, Inputs, Labels, Values
from scarlet.job import Job, Result
from scarlet.methods.dsfl import DsflConfig, dsfl
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.cache import CacheTable
from scarlet.protocol.client import Client
from scarlet.protocol.codec import Context
from scarlet.protocol.codec_registry import codec
from scarlet.protocol.method import Filter, Method, Prepared
from scarlet.protocol.server import ALL_CLIENTS, ClosedRound, Participation, Server
from scarlet.protocol.slots import Learner
from scarlet.protocol.state import arrays_of, restore
from scarlet.protocol.uplink.labels import Answer
from scarlet.rng import stream
from scarlet.wire import frame
from scarlet.wire.ledger import COLUMNS, Column, Ledger

AGREEMENT = Agreement(clients=4, public_size=24, public_per_round=8, classes=3, seed=5)
METHODS: dict[str, Callable[[], Method]] = {
    "scarlet, delete": lambda: scarlet(ScarletConfig(beta=1.5, cache_duration=4, on_expiry="delete")),
    "scarlet, refresh": lambda: scarlet(ScarletConfig(beta=1.5, cache_duration=4, on_expiry="refresh")),
    "scarlet, adaptive": lambda: scarlet(ScarletConfig(beta="auto", cache_duration=4)),
    "dsfl": lambda: dsfl(DsflConfig()),
}

Reply = tuple[int, bytes]
Say = Callable[[int, int, Index, int], Values]  # (client, round, samples, N) -> soft-labels
Arrange = Callable[[list[Reply]], list[Reply]]  # what the transport does to the replies of a round


def soft_labels(client: int, round: int, index: Index, classes: int = AGREEMENT.classes) -> Values:
    """A client's soft-labels in a round: random, and the same whenever it is asked."""
    rng = stream(99, "labels", client=client, round=round)
    table = rng.dirichlet([0.3] * classes, AGREEMENT.public_size).astype(np.float32)
    return table[index]


def few_labels(client: int, round: int, index: Index, classes: int = AGREEMENT.classes) -> Values:
    """The soft-labels of a client that hardly ever changes its mind: a sample's are the same in five rounds of six."""
    best = ((round + index + client) // 6 + 2 * index + client) % classes
    return np.asarray(0.8 * np.eye(classes)[best] + 0.2 / classes, np.float32)


def weights(client: int, round: int, count: int) -> Values:
    """A client's model in a round, where models are exchanged."""
    return stream(99, "weights", client=client, round=round).normal(size=count).astype(np.float32)


class Table:
    """Stands for the server's model: a soft-label for each public sample, half of it from what it learned last."""

    def __init__(self, agreement: Agreement = AGREEMENT) -> None:
        self.value = np.full((agreement.public_size, agreement.classes), 1 / agreement.classes, np.float32)
        self.learned: Labels | None = None  # last

    def learn(self, labels: Labels, round: int) -> None:
        self.learned = labels
        self.value[labels.index] = (self.value[labels.index] + labels.value) / 2

    def predict(self, index: Index) -> Values:
        return self.value[index]

    def parameters(self) -> Values:
        return self.value.ravel().copy()

    def load(self, parameters: Values) -> None:
        self.value = parameters.reshape(self.value.shape)


class Knowing(Filter):
    """A client answers the samples that it is said to know; `Federation.know` says so."""

    def prepare(self, private: Inputs, public: Inputs, rng: np.random.Generator) -> Prepared:
        return {}

    def __call__(self, labels: Labels, prepared: Prepared) -> Labels:
        known = prepared["known"][labels.index].astype(np.bool_)
        return Labels(labels.index[known], labels.value[known])


def drawing(method: Method, *rounds: list[int]) -> Method:
    """The method with the samples of each round given instead of drawn."""
    left = iter(rounds)
    return replace(method, select=lambda rng, size, count: np.array(next(left), np.int64))


class Federation:
    """A server and its clients, round by round; a client whose cache differs is reset, as a transport would have it."""

    def __init__(
        self,
        method: Method,
        agreement: Agreement = AGREEMENT,
        participation: Participation = ALL_CLIENTS,
        *,
        learner: Learner | None = None,
        say: Say = soft_labels,
        coding: str = "reference",
    ) -> None:
        self.method, self.agreement, self.say = method, agreement, say
        self.asked = participation.asked(agreement.clients)  # clients, in each round
        self.ledger = Ledger()
        self.codec = codec(coding, method, agreement)
        self.server = Server(method, agreement, self.codec, self.ledger, learner, participation)
        self.clients = [self.new_client(number) for number in range(agreement.clients)]
        self.jobs: list[Job] = []  # of the clients that were asked, in their order
        self.resyncs: list[int] = []  # whose cache differed in this round
        self.handed: dict[int, dict[Column, int]] = {}  # bytes of the last round that were handed over

    def new_client(self, number: int) -> Client:
        """A client that remembers nothing."""
        return Client(number, self.method, self.agreement, self.codec)

    def restore_client(self, number: int, arrays: Mapping[str, Array]) -> None:
        """Put a client in the place of one, with a state that was saved."""
        self.clients[number] = self.new_client(number)
        restore(self.clients[number].state, arrays)

    def know(self, known: Mapping[int, Collection[int]]) -> None:
        """Which samples each client answers from now on, where the method's filter is `Knowing`; others know all."""
        for client in self.clients:
            samples = known.get(client.number, range(self.agreement.public_size))
            client.state.prepared = {"known": np.isin(np.arange(self.agreement.public_size), list(samples))}

    def open(self) -> None:
        """Everybody who is asked gets the round's downlink."""
        self.jobs, self.resyncs, self.handed = [], [], {}
        self.deliver(self.server.open_round())
        self.jobs.sort(key=lambda job: job.client)

    def deliver(self, downlinks: Mapping[int, bytes]) -> None:
        """Hand downlinks over, and pass on whatever comes back at once."""
        for number, downlink in downlinks.items():
            for data in frame.split(downlink):
                self._count(number, self.codec.layout_of(frame.unwrap(data).kind).column, data)
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

    def result(self, job: Job) -> Result:
        """What training would come to."""
        result = Result(self.say(job.client, job.round, job.request, self.agreement.classes), {"loss": 0.5})
        if job.parameters is None:
            return result
        return replace(result, samples=1 + job.client, parameters=weights(job.client, job.round, len(job.parameters)))

    def replies(self, silent: Collection[int] = ()) -> list[Reply]:
        """What everybody answers; nobody knows the silent samples."""
        replies = []
        for job in self.jobs:
            result = replace(self.result(job), metrics={"loss": 1 / (1 + job.client)})
            answer, report = self.clients[job.client].reply(job, result)
            if silent:
                known = ~np.isin(job.request, list(silent))
                labels = Labels(job.request[known], result.value[known])
                answer = self.codec.encode(Answer(job.round, job.attempt, job.client, labels), Context(job.request))
            replies += [(job.client, answer), (job.client, report)]
            self._count(job.client, "uplink", answer)
            self._count(job.client, "report", report)
        return replies

    def take(self, replies: list[Reply]) -> None:
        for sender, data in replies:
            self.server.take(sender, data)

    def close(self) -> ClosedRound:
        closed = self.server.close_round()
        assert closed is not None
        return closed

    def play(self, silent: Collection[int] = (), arrange: Arrange = list) -> ClosedRound:
        """One round from broadcast to aggregate."""
        self.open()
        self.take(arrange(self.replies(silent)))
        return self.close()

    def counted(self) -> dict[int, dict[Column, int]]:
        """The round's ledger, in the form of `handed`."""
        return {
            client: {column: total.size for column, total in columns.items()}
            for client, columns in self.ledger.by_client().items()
        }

    def _count(self, client: int, column: Column, data: bytes) -> None:
        self.handed.setdefault(client, dict.fromkeys(COLUMNS, 0))[column] += len(data)


def saved(state: object) -> dict[str, Array]:
    """A state as it is now."""
    return deepcopy(arrays_of(state))


def contents(state: object) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """A state in a form that == compares bit by bit."""
    return {name: (str(array.dtype), array.shape, array.tobytes()) for name, array in arrays_of(state).items()}


def memory(server: Server) -> tuple[object, ...]:
    """All that the server knows at the end of a round, in a form that == compares bit by bit.

    What was rejected is left out: it is counted, and that is all.
    """
    columns = [column for column in COLUMNS if column != "rejected"]
    total = {column: server.ledger.total[column] for column in columns}
    by_client = {
        client: {column: its[column] for column in columns}
        for client, its in server.ledger.by_client().items()
        if any(its[column].size for column in columns)
    }
    return contents(server.state), total, by_client


def entries(table: CacheTable) -> tuple[bytes, list[int]]:
    return table.value.tobytes(), table.stamp.tolist()


def same_labels(a: Labels, b: Labels) -> bool:
    return a.index.tolist() == b.index.tolist() and a.value.tobytes() == b.value.tobytes()
