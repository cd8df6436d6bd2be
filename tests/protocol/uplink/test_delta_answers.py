"""Delta coding of answers against a literal model, which copies whole dictionaries where the software keeps changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scarlet.arrays import Index, Labels
from scarlet.job import Result
from scarlet.protocol.aggregation import Aggregation
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.client import Client
from scarlet.protocol.codec import Codec
from scarlet.protocol.codec_registry import codec
from scarlet.protocol.method import Method
from scarlet.protocol.server import Server
from scarlet.protocol.state import restore
from scarlet.protocol.uplink.delta import NOTHING, Accepted, DeltaAnswer, DeltaLabels, name_of
from scarlet.wire import frame
from scarlet.wire.ledger import Ledger
from tests.protocol.federation import saved

PROFILE = settings(deadline=None, max_examples=120)
AGREEMENT = Agreement(clients=2, public_size=8, public_per_round=5, classes=3, seed=1)
Said = dict[int, tuple[float, ...]]  # sample -> label
Fate = Literal["arrives", "lost", "twice", "late", "unread"]
Mishap = Literal["none", "wiped", "backup", "old downlink"]
Attempt = tuple[int, tuple[Mishap, Mishap], tuple[Fate, Fate], bool]


def said(labels: Labels) -> Said:
    return {sample: tuple(row) for sample, row in zip(labels.index.tolist(), labels.value.tolist(), strict=True)}


class Recorded(Aggregation):
    """Keeps what was added to it."""

    def __init__(self) -> None:
        self.added: dict[int, Said] = {}

    def add(self, client: int, labels: Labels) -> None:
        self.added[client] = said(labels)

    def finish(self) -> Labels:
        return Labels(np.empty(0, np.int64), np.empty((0, AGREEMENT.classes), np.float32))


@dataclass
class Model:
    """What a client remembers, literally: all of its last answer but one, and all of its last."""

    before: tuple[bytes, Said] | None = None
    now: tuple[bytes, Said] = (NOTHING, {})

    def agree(self, accepted: bytes) -> str:
        if accepted == self.now[0]:
            return "agreed"
        known = self.before is not None and self.before[0] == accepted
        self.now = self.before if self.before is not None and known else (NOTHING, {})
        self.before = None
        return "taken back" if known else "forgotten"

    def answer(self, labels: Said, name: bytes) -> None:
        self.before, self.now = self.now, (name, self.now[1] | labels)


@dataclass
class World:
    """One server and its clients, whatever happens on the way between them."""

    aggregations: list[Recorded] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        def aggregation(request: Index, classes: int) -> Recorded:
            self.aggregations.append(Recorded())
            return self.aggregations[-1]

        self.method = Method(aggregate=aggregation, uplink=DeltaLabels(), uplink_bits=2)
        self.codec: Codec = codec("reference", self.method, AGREEMENT)
        self.server = self.new_server()
        self.clients = [self.new_client(number) for number in range(AGREEMENT.clients)]
        self.models = [Model() for _ in self.clients]
        self.backups = self.copies()
        self.downlinks: list[list[bytes]] = [[] for _ in self.clients]
        self.late: list[tuple[int, bytes]] = []

    def new_server(self) -> Server:
        return Server(self.method, AGREEMENT, self.codec, Ledger())

    def new_client(self, number: int) -> Client:
        return Client(number, self.method, AGREEMENT, self.codec)

    def copies(self) -> list[tuple[Client, Model]]:
        return deepcopy(list(zip(self.clients, self.models, strict=True)))

    def mishap(self, client: int, kind: Mishap) -> None:
        self.events[kind] += 1
        if kind == "wiped":
            self.clients[client], self.models[client] = self.new_client(client), Model()
        elif kind == "backup":
            self.clients[client], self.models[client] = deepcopy(self.backups[client])
        elif kind == "old downlink" and self.downlinks[client]:
            self.answer(client, self.downlinks[client][0], seed=0)

    def answer(self, client: int, downlink: bytes, seed: int) -> bytes:
        """What a client says to a downlink; only labels that are not in the literal model may be sent."""
        task = self.clients[client].receive(downlink)
        if isinstance(task, list):
            return task[0]
        name = next(part.name for part in map(self.codec.decode, frame.split(downlink)) if isinstance(part, Accepted))
        self.events[self.models[client].agree(name)] += 1
        rng = np.random.default_rng([seed, client])
        value = rng.choice([0.0, 0.4], (len(task.request), AGREEMENT.classes)) + np.eye(AGREEMENT.classes)[0]
        labels = Labels(task.request, (value / value.sum(axis=1, keepdims=True)).astype(np.float32))
        data = self.clients[client].reply(task, Result(labels.value, {}))[0]

        heard = said(Labels(labels.index, self.codec.decoded_by_server(labels.value)))
        answer, known = self.codec.decode(data), self.models[client].now
        assert isinstance(answer, DeltaAnswer)
        assert answer.base == known[0]
        assert said(answer.labels) == {
            sample: label for sample, label in heard.items() if known[1].get(sample) != label
        }
        assert answer.same.tolist() == [sample for sample in heard if known[1].get(sample) == heard[sample]]
        self.events["same"] += len(answer.same)
        self.events["sent"] += len(answer.labels.index)
        self.models[client].answer(heard, name_of(data))
        return data

    def round(self, seed: int, mishaps: Sequence[Mishap], fates: Sequence[Fate], *, crash: bool) -> None:
        """One attempt at a round; what the server adds up must be all that the clients said."""
        for client, kind in enumerate(mishaps):
            self.mishap(client, kind)
        server, before = self.server, saved(self.server.state)
        expected: dict[int, Said] = {}
        downlinks = server.open_round()
        for client, data in self.late:
            server.take(client, data)
        self.late = []
        for (client, downlink), fate in zip(downlinks.items(), fates, strict=True):
            self.events[fate] += 1
            if fate == "unread":
                continue
            self.downlinks[client].append(downlink)
            data = self.answer(client, downlink, seed)
            if fate == "late":
                self.late.append((client, data))
            elif fate != "lost":
                expected[client] = self.models[client].now[1]
                server.take(client, data)
            if fate == "twice":
                assert self.answer(client, downlink, seed) == data
                server.take(client, data)
        request = server.request.tolist()
        assert self.aggregations[-1].added == {
            client: {sample: label for sample, label in labels.items() if sample in request}
            for client, labels in expected.items()
        }
        assert "wrong base" not in server.rejections
        server.close_round()
        if crash:
            self.events["crash"] += 1
            self.server = self.new_server()
            restore(self.server.state, before)
            self.late = []


mishaps = st.sampled_from(("none", "none", "none", "wiped", "backup", "old downlink"))
fates = st.sampled_from(("arrives", "arrives", "lost", "twice", "late", "unread"))
attempts = st.tuples(st.integers(0, 3), st.tuples(mishaps, mishaps), st.tuples(fates, fates), st.booleans())


def test_the_server_adds_up_all_that_clients_said_whatever_was_lost_repeated_rolled_back_or_forgotten() -> None:
    events: Counter[str] = Counter()

    @PROFILE
    @given(st.lists(st.tuples(attempts, st.integers(0, 5)), min_size=4, max_size=14))
    def play(history: list[tuple[Attempt, int]]) -> None:
        world = World()
        for (seed, misfortune, fate, backup), crash in history:
            world.round(seed, misfortune, fate, crash=crash == 0)
            if backup:
                world.backups = world.copies()
        events.update(world.events)

    play()
    for event in (*get_args(Fate), *get_args(Mishap), "crash", "same", "sent", "taken back", "forgotten"):
        assert events[event] > 0, f"the histories never had: {event}"
