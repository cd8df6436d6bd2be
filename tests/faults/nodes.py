"""A server and clients that live on simulated disks, with models small enough for thousands of federations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from scarlet.arrays import Array, Index, Labels, Values
from scarlet.job import Job, Result
from scarlet.node import Node
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.client import Client
from scarlet.protocol.codec import Codec, Context
from scarlet.protocol.method import Method, Prepared
from scarlet.protocol.server import Participation, Server
from scarlet.protocol.state import arrays_of, restore
from scarlet.protocol.uplink.delta import DeltaAnswer
from scarlet.rng import stream
from scarlet.store import Snapshot, Store
from scarlet.wire.ledger import COLUMNS, Bytes, Ledger
from scarlet.wire.quantise import quantise
from tests.faults.disk import SimulatedDisk

FEATURES = 4


@dataclass(frozen=True, slots=True)
class World:
    """What all nodes of a federation share."""

    method: Method
    agreement: Agreement
    participation: Participation
    codec: Codec
    public: Values  # f32[P, FEATURES]: the public dataset
    abstain: int = 0  # rounds in which a client that has answered before, and lost its disk, sends no labels

    def model(self) -> LinearModel:
        return LinearModel(self.public, self.agreement.classes)


class LinearModel:
    """Multinomial logistic regression; distillation is one step of gradient descent."""

    def __init__(self, public: Values, classes: int) -> None:
        self._public = public
        self.weights = np.zeros((FEATURES, classes), np.float32)

    def arrays(self) -> Mapping[str, Array]:
        return {"weights": self.weights}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        self.weights = arrays["weights"].astype(np.float32)

    def learn(self, labels: Labels, round: int = 0) -> None:
        if len(labels.index):
            error = labels.value - self.predict(labels.index)
            step = self._public[labels.index].T @ error / len(labels.index)
            self.weights = (self.weights + step).astype(np.float32)

    def predict(self, index: Index) -> Values:
        scores = self._public[index] @ self.weights
        raised = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
        return np.asarray(raised / raised.sum(axis=1, keepdims=True), np.float32)

    def parameters(self) -> Values:
        return self.weights.ravel()

    def load(self, parameters: Values) -> None:
        self.weights = parameters.reshape(self.weights.shape)

    def train(self, job: Job, rng: np.random.Generator) -> None:
        """Distil a job's teacher, then add a random step, which stands for training on private data."""
        teacher = job.teacher
        if job.choose is not None:
            teacher = job.choose(teacher, self.predict(teacher.index))
        if job.restart:
            self.weights = np.zeros_like(self.weights)
        if job.parameters is not None:
            self.load(job.parameters)
        self.learn(teacher)
        step = rng.normal(size=self.weights.shape) * (rng.random() < 0.8)  # at times there is nothing new to learn
        self.weights = (self.weights + step).astype(np.float32)


class ClientNode:
    """A client process: it forgets at a crash all that its disk does not hold."""

    def __init__(self, world: World, number: int, disk: SimulatedDisk) -> None:
        self.world, self.number, self.disk = world, number, disk
        self.said: dict[bytes, Labels | Values] = {}  # answer -> all that it says, for the judge
        self.unsent: dict[bytes, int] = {}  # answer -> labels in it that were not sent again
        self.known = False  # whether the server has accepted an answer, as it would say at a greeting
        self.boot()

    def boot(self) -> None:
        """Start the process anew from its disk."""
        world, self.model = self.world, self.world.model()
        client = Client(self.number, world.method, world.agreement, world.codec)
        self.node = Node(client, self.model, self._prepare, self.disk, abstain=world.abstain if self.known else 0)

    def _prepare(self) -> Prepared:
        rng = stream(self.world.agreement.seed, "node", client=self.number, purpose="prepare")
        images = self.world.public.reshape(-1, 1, 2, 2)
        return self.world.method.filter.prepare(images[: 1 + self.number], images, rng)

    def work(self, job: Job) -> list[bytes]:
        """Train, and answer."""
        rng = stream(self.world.agreement.seed, "node", client=self.number, round=job.round, attempt=job.attempt)
        self.model.train(job, rng)
        result = Result(
            value=self.model.predict(job.request),
            metrics={"accuracy": float(rng.random())},
            samples=self.number + 1,
            parameters=self.model.parameters() if job.send_parameters else None,
        )
        abstains = self.node.client.state.abstains > 0
        try:
            return self.node.finish(job, result)
        finally:  # a client that crashes may have saved its answer, and will then send it
            self._note(job, result, abstains)

    def _note(self, job: Job, result: Result, abstains: bool) -> None:
        """Remember for the judge what an answer says."""
        state, codec = self.node.client.state, self.world.codec
        if state.answered != job.downlink:
            return  # it failed before it had an answer
        answer = state.reply[0]
        if result.parameters is not None:
            self.said[answer] = result.parameters
            return
        labels = self.world.method.filter(Labels(job.request, result.value), state.prepared or {})
        if abstains:
            labels = Labels(labels.index[:0], labels.value[:0])
        self.said[answer] = Labels(labels.index, quantise(labels.value, codec.uplink_bits))
        message = codec.decode(answer, Context(job.request))
        self.unsent[answer] = len(message.same) if isinstance(message, DeltaAnswer) else 0


class ServerNode:
    """The server process."""

    def __init__(self, world: World, disk: SimulatedDisk) -> None:
        self.world, self.disk = world, disk
        self.saved = 0  # the newest checkpoint that was reported as written
        self.boot()

    def boot(self) -> None:
        """Start the process anew from its disk."""
        world, self.model = self.world, self.world.model()
        learner = self.model if world.method.server_learns else None
        self.server = Server(world.method, world.agreement, world.codec, Ledger(), learner, world.participation)
        self.store = Store(self.disk)
        self.saves = 0
        snapshot = self.store.load()
        if snapshot is not None:
            restore(self.server.state, snapshot.parts["server"])
            self.model.restore(snapshot.parts["model"])
            totals: Any = snapshot.meta["ledger"]
            self.server.ledger.total = {column: Bytes(**totals[column]) for column in COLUMNS}
            self.saves = snapshot.number

    def save(self) -> None:
        """Have the closed round on disk before anybody hears of it."""
        self.saves += 1
        ledger = {column: asdict(total) for column, total in self.server.ledger.total.items()}
        parts = {"server": arrays_of(self.server.state), "model": self.model.arrays()}
        self.store.save(Snapshot(self.saves, {"ledger": ledger}, parts))
        self.saved = self.saves
