"""A small federation in memory: the real server, clients, codec and ledger; random soft-labels instead of models."""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import deepcopy

import numpy as np

from scarlet.core.cache import CacheTable
from scarlet.core.client import Client
from scarlet.core.method import Method
from scarlet.core.rng import stream
from scarlet.core.server import ClosedRound, Federation, Server
from scarlet.core.types import Index, Job, Labels, Result, Uplink, Values
from scarlet.methods.dsfl import DsflConfig, dsfl
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.wire.codec import Reference
from scarlet.wire.ledger import Column, Ledger

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
    """A server and its clients, round by round."""

    def __init__(self, method: Method, federation: Federation = FEDERATION) -> None:
        self.codec, self.ledger = Reference(), Ledger()
        self.server = Server(method, federation, self.codec, self.ledger)
        self.clients = [
            Client(number, federation.public_size, federation.classes, self.codec)
            for number in range(federation.clients)
        ]
        self.jobs: list[Job] = []
        self.handed: dict[int, dict[Column, int]] = {}  # bytes of the last round that were handed over

    def open(self) -> None:
        """Everybody gets the round's broadcast."""
        downlinks = self.server.open_round()
        self.jobs = [client.receive(downlinks[client.number]) for client in self.clients]
        self.handed = {number: {"downlink": len(data), "uplink": 0, "report": 0} for number, data in downlinks.items()}

    def replies(self, silent: Collection[int] = ()) -> list[Reply]:
        """What everybody answers; nobody knows the silent samples."""
        replies = []
        for client, job in zip(self.clients, self.jobs, strict=True):
            metrics = {"loss": 1 / (1 + client.number)}
            uplink, report = client.reply(job, Result(soft_labels(job.client, job.round, job.request), metrics))
            if silent:
                known = job.request[~np.isin(job.request, list(silent))]
                labels = Labels(known, soft_labels(job.client, job.round, known))
                uplink = self.codec.encode(Uplink(job.round, job.attempt, job.client, labels))
            replies += [(client.number, uplink), (client.number, report)]
            self.handed[client.number] |= {"uplink": len(uplink), "report": len(report)}
        return replies

    def play(self, silent: Collection[int] = (), arrange: Arrange = list) -> ClosedRound:
        """One round from broadcast to aggregate."""
        self.open()
        for sender, data in arrange(self.replies(silent)):
            self.server.take(sender, data)
        return self.server.close_round()


def memory(server: Server) -> tuple[object, ...]:
    """All that the server knows at the end of a round, in a form that == compares bit by bit."""
    state, sync = server.state, server.state.sync
    known = None
    if sync is not None:
        signal = None if sync.signal is None else sync.signal.tolist()
        known = (sync.round, sync.index.tolist(), signal, sync.fresh.tobytes(), sync.dropped.tolist())
    return (*entries(state.cache), state.round, known, state.digest, deepcopy(server.ledger))


def entries(table: CacheTable) -> tuple[bytes, list[int]]:
    return table.value.tobytes(), table.stamp.tolist()


def same_labels(a: Labels, b: Labels) -> bool:
    return a.index.tolist() == b.index.tolist() and a.value.tobytes() == b.value.tobytes()
