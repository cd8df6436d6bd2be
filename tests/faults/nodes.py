"""A server and clients that live on simulated disks, with models small enough for thousands of federations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scarlet.protocol.client import Client
from scarlet.protocol.federation import Federation
from scarlet.protocol.method import Method
from scarlet.protocol.persist import client_arrays, restore_client, restore_server, server_arrays, server_numbers
from scarlet.protocol.schedule import Known, Rules
from scarlet.protocol.server import Server
from scarlet.protocol.types import Index, Job, Labels, Result, Uplink, Values
from scarlet.rng import stream
from scarlet.store import Snapshot, Store
from scarlet.wire.codec import Codec
from scarlet.wire.codecs import codec
from scarlet.wire.ledger import Ledger
from tests.faults.disk import SimulatedDisk

_FEATURES = 4


@dataclass(frozen=True, slots=True)
class World:
    """What all nodes of a federation share."""

    method: Method
    federation: Federation
    codec: str
    features: npt.NDArray[np.float32]  # [P, 4]: the public set

    def wire(self) -> Codec:
        """How messages become bytes."""
        bits = self.method.uplink_bits, self.method.downlink_bits
        return codec(self.codec, *bits, classes=self.federation.classes)

    def start(self) -> npt.NDArray[np.float32]:
        """The weights that every model starts from."""
        return np.zeros((_FEATURES, self.federation.classes), np.float32)

    def predict(self, weights: npt.NDArray[np.float32], index: Index) -> Values:
        """The soft-labels of a linear model."""
        scores = self.features[index] @ weights
        raised = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
        return np.asarray(raised / raised.sum(axis=1, keepdims=True), np.float32)

    def distil(self, weights: npt.NDArray[np.float32], labels: Labels) -> npt.NDArray[np.float32]:
        """One step of gradient descent towards soft-labels."""
        if not len(labels.index):
            return weights
        error = labels.value - self.predict(weights, labels.index)
        return np.asarray(weights + self.features[labels.index].T @ error / len(labels.index), np.float32)


class ClientNode:
    """A client process: it forgets at a crash all that its disk does not hold."""

    def __init__(self, world: World, number: int, disk: SimulatedDisk) -> None:
        self.world = world
        self.number = number
        self.disk = disk
        self.said: dict[bytes, Labels | Values] = {}  # answer -> all that it says, for the judge
        self.unsent: dict[bytes, int] = {}  # answer -> labels in it that were not sent again
        self.boot()

    def boot(self) -> None:
        """Start the process anew from its disk."""
        federation = self.world.federation
        self.client = Client(self.number, self.world.method, federation, self.world.wire())
        self.weights = self.world.start()
        self.store = Store(self.disk)
        self.saves = 0
        snapshot = self.store.load()
        if snapshot is not None:
            arrays = snapshot.parts["client"]
            restore_client(self.client.state, arrays)
            self.weights = arrays["weights"].astype(np.float32)
            self.saves = snapshot.number

    def work(self, job: Job) -> list[bytes]:
        """Learn, answer, and have it on disk before the answer leaves."""
        world, method, state = self.world, self.world.method, self.client.state
        if state.kept is None:
            rng = stream(world.federation.seed, "node", client=self.number, purpose="prepare")
            public = world.features.reshape(-1, 1, 2, 2)
            state.kept = method.answer.prepare(public[: 1 + self.number], public, rng)
        rng = stream(world.federation.seed, "node", client=self.number, round=job.round, attempt=job.attempt)
        teacher, start = job.teacher, self.weights if not method.restart else world.start()
        if method.adopt is not None and not method.personal:
            teacher = method.adopt(teacher, world.predict(self.weights, teacher.index))
        if job.parameters is not None:
            start = job.parameters.reshape(start.shape)
        learned = world.distil(start, teacher)
        step = rng.normal(size=learned.shape) * (rng.random() < 0.8)  # the client's own data, if there is anything new
        self.weights = (learned + step).astype(np.float32)
        value, metrics = world.predict(self.weights, job.request), {"accuracy": float(rng.random())}
        if method.exchange == "weights":
            messages = self.client.reply(job, Result(value, metrics, self.number + 1, self.weights.ravel()))
            self.said[messages[0]] = self.weights.ravel()
        else:
            messages = self.client.reply(job, Result(value, metrics))
            answered = method.answer(Labels(job.request, value), state.kept)
            heard = self.client.codec.heard_by_server(answered.value)
            self.said[messages[0]] = Labels(answered.index, heard)
            answer = self.client.codec.decode(messages[0], Known(Rules(method, world.federation), job.request))
            assert isinstance(answer, Uplink)
            self.unsent[messages[0]] = len(answer.same)
        self.saves += 1
        arrays = client_arrays(self.client.state) | {"weights": self.weights}
        self.store.save(Snapshot(self.saves, {}, {"client": arrays}))
        return messages


class ServerNode:
    """The server process, which is also its own learner."""

    def __init__(self, world: World, disk: SimulatedDisk) -> None:
        self.world = world
        self.disk = disk
        self.saved = 0  # the newest checkpoint that was reported as written
        self.boot()

    def boot(self) -> None:
        """Start the process anew from its disk."""
        self.weights = self.world.start()
        self.server = Server(self.world.method, self.world.federation, self.world.wire(), Ledger(), self)
        self.store = Store(self.disk)
        self.saves = 0
        snapshot = self.store.load()
        if snapshot is not None:
            arrays = snapshot.parts["server"]
            restore_server(self.server.state, self.server.ledger, arrays, snapshot.meta)
            self.weights = arrays["weights"].astype(np.float32)
            self.saves = snapshot.number

    def learn(self, labels: Labels, round: int) -> None:
        """Distil the round's labels."""
        self.weights = self.world.distil(self.weights, labels)

    def predict(self, index: Index) -> Values:
        """The model's own soft-labels."""
        return self.world.predict(self.weights, index)

    def parameters(self) -> Values:
        """The model in one row."""
        return self.weights.ravel()

    def load(self, parameters: Values) -> None:
        """Replace the model."""
        self.weights = parameters.reshape(self.weights.shape)

    def save(self) -> None:
        """Have the closed round on disk before anybody hears of it."""
        self.saves += 1
        arrays = server_arrays(self.server.state) | {"weights": self.weights}
        numbers = server_numbers(self.server.state, self.server.ledger)
        self.store.save(Snapshot(self.saves, numbers, {"server": arrays}))
        self.saved = self.saves
