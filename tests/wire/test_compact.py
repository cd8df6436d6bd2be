from __future__ import annotations

import struct
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import pytest

from scarlet.core.client import Client
from scarlet.core.federation import Federation
from scarlet.core.method import Method
from scarlet.core.server import Server
from scarlet.core.types import Job, Labels, Result, Signal
from scarlet.errors import MessageError
from scarlet.methods.cfd import CfdConfig, cfd
from scarlet.methods.comet import CometConfig, comet
from scarlet.methods.dsfl import DsflConfig, dsfl
from scarlet.methods.fedavg import FedavgConfig, fedavg
from scarlet.methods.individual import IndividualConfig, individual
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.methods.selective_fd import SelectiveFdConfig, selective_fd
from scarlet.wire import frame
from scarlet.wire.codec import Codec, codec
from scarlet.wire.ledger import COLUMNS, Ledger

from ..core.federation import Knowing, Say, Table, entries, few_labels, same_labels, soft_labels, weights

FEDERATION = Federation(clients=4, public_size=24, public_per_round=8, classes=3, seed=5, min_answers=2)
ROUNDS = 30


def bare(method: Method) -> Method:
    """The method, where clients answer the samples that they are said to know."""
    return replace(method, answer=Knowing())


METHODS: dict[str, Callable[[], Method]] = {
    "scarlet, D 0": lambda: scarlet(ScarletConfig(cache_duration=0)),
    "scarlet, delete, D 2": lambda: scarlet(ScarletConfig(cache_duration=2, on_expiry="delete")),
    "scarlet, refresh, D 2": lambda: scarlet(ScarletConfig(cache_duration=2, on_expiry="refresh")),
    "scarlet, delete, D 1000": lambda: scarlet(ScarletConfig(cache_duration=1000, on_expiry="delete")),
    "scarlet, refresh, D 1000": lambda: scarlet(ScarletConfig(cache_duration=1000, on_expiry="refresh")),
    "dsfl": lambda: dsfl(DsflConfig()),
    "cfd": lambda: cfd(CfdConfig()),
    "cfd, fixed subset": lambda: cfd(CfdConfig(downlink_bits=4, subset="fixed")),
    "cfd, delta": lambda: cfd(CfdConfig(uplink_bits=2, downlink_bits=2, delta=True)),
    "cfd, cache": lambda: cfd(CfdConfig(uplink_bits=1, downlink_bits=1, cache_duration=3)),
    "cfd, delta, cache": lambda: cfd(CfdConfig(uplink_bits=2, downlink_bits=2, delta=True, cache_duration=3)),
    "comet, client": lambda: comet(CometConfig(assign="client")),
    "comet, client, cache": lambda: comet(CometConfig(assign="client", cache_duration=3)),
    "comet, server": lambda: comet(CometConfig(assign="server")),
    "selective-fd": lambda: selective_fd(SelectiveFdConfig()),
    "selective-fd, cache": lambda: selective_fd(SelectiveFdConfig(cache_duration=3)),
    "fedavg": lambda: fedavg(FedavgConfig()),
    "individual": lambda: individual(IndividualConfig()),
}
each_method = pytest.mark.parametrize("name", METHODS)


@dataclass(frozen=True)
class Events:
    """What goes wrong in an attempt at a round."""

    fails: bool  # one client answers, which is not enough
    known: dict[int, np.ndarray[tuple[int], np.dtype[np.bool_]]]  # which samples each client answers
    loses_memory: frozenset[int]
    is_restored: frozenset[int]  # from an old copy
    is_copied: frozenset[int]
    duplicated: bool


def troubles(seed: int, federation: Federation) -> Iterator[Events]:
    """Attempt after attempt, the same for whoever asks."""
    rng = np.random.default_rng(seed)
    clients = range(federation.clients)

    def some(share: float) -> frozenset[int]:
        return frozenset(client for client in clients if rng.random() < share)

    while True:
        everybody = rng.random(federation.public_size) >= rng.choice([0, 0, 0.2])
        known = {client: everybody & (rng.random(federation.public_size) >= rng.choice([0, 0.2])) for client in clients}
        yield Events(rng.random() < 0.2, known, some(0.04), some(0.06), some(0.2), bool(rng.random() < 0.3))


class Village:
    """A server and its clients, with one codec; `play` takes a round through all of its attempts."""

    def __init__(self, method: Method, coding: Codec, federation: Federation = FEDERATION, say: Say = soft_labels):
        self.federation, self.codec, self.say = federation, coding, say
        self.ledger = Ledger()
        self.server = Server(method, federation, coding, self.ledger, Table(federation))
        self.clients = [self.new_client(number) for number in range(federation.clients)]
        self.copies = {client.number: deepcopy(client.state) for client in self.clients}
        self.taught: Labels | None = None
        self.resyncs = 0
        self.heard: list[tuple[Client, bytes]] = []  # each client as it was before a downlink of the last attempt
        self.answers: list[tuple[int, bytes]] = []  # of the last attempt

    def new_client(self, number: int) -> Client:
        return Client(number, self.server.method, self.federation, self.codec)

    def play(self, events: Iterator[Events]) -> Labels:
        while True:
            now = next(events)
            self._befall(now)
            self.heard, self.answers = [], []
            jobs = self._deliver(self.server.open_round(), now.duplicated)
            for job in jobs[:1] if now.fails else jobs:
                for data in self._reply(job):
                    self.answers.append((job.client, data))
                    self.server.take(job.client, data)
            assert not self.server.rejections
            closed = self.server.close_round()
            assert (closed is None) == now.fails
            if closed is not None:
                self.taught = closed.taught
                return closed.taught

    def _befall(self, now: Events) -> None:
        for client in self.clients:
            number = client.number
            if number in now.is_copied:
                self.copies[number] = deepcopy(client.state)
            if number in now.loses_memory:
                self.clients[number] = self.new_client(number)
            elif number in now.is_restored:
                client.state = deepcopy(self.copies[number])
            self.clients[number].state.kept = {"known": now.known[number]}

    def _deliver(self, downlinks: Mapping[int, bytes], duplicated: bool) -> list[Job]:
        jobs = []
        for number, downlink in downlinks.items():
            client = self.clients[number]
            self.heard.append((deepcopy(client), downlink))
            task = client.receive(downlink)
            if isinstance(task, Job):
                self._check(task)
                if duplicated:
                    again = client.receive(downlink)
                    assert isinstance(again, Job)
                    self._check(again)
                jobs.append(task)
                continue
            self.resyncs += 1
            for data in task:
                self.server.take(number, data)
        resets = self.server.resets()
        return sorted(jobs + (self._deliver(resets, duplicated) if resets else []), key=lambda job: job.client)

    def _check(self, job: Job) -> None:
        """A client was taught what the server taught, to the bit, and is asked what the server asks."""
        assert job.request.tolist() == self.server.request.tolist()
        lessons = self.server.state.lessons
        taught = self.taught if lessons is None else lessons.of(job.client)
        if taught is None:
            assert len(job.teacher.index) == 0
        else:
            assert same_labels(job.teacher, taught)
        schedule = self.clients[job.client].state.schedule
        if schedule is not None and self.server.state.sync is not None:
            assert schedule.stamps.tolist() == self.server.state.cache.stamp.tolist()

    def _reply(self, job: Job) -> list[bytes]:
        client = self.clients[job.client]
        result = Result(self.say(job.client, job.round, job.request, self.federation.classes), {"loss": 0.5})
        if job.parameters is not None:
            trained = weights(job.client, job.round, len(job.parameters))
            result = replace(result, samples=1 + job.client, parameters=trained)
        replies = client.reply(job, result)
        downlink = next(data for heard, data in reversed(self.heard) if heard.number == job.client)
        assert client.receive(downlink) == replies
        return replies

    def bytes(self) -> int:
        return sum(self.ledger.total[column].size for column in COLUMNS)


def village(name: str, coding: str, participation: float = 1.0) -> Village:
    method = METHODS[name]()
    if method.exchange == "labels":
        method = bare(method)
    up = 8 if method.uplink_bits is None else method.uplink_bits
    down = 8 if method.downlink_bits is None else method.downlink_bits
    federation = replace(FEDERATION, participation=participation)
    say = few_labels if method.delta else soft_labels
    return Village(method, codec(coding, up, down), federation, say)


@each_method
@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_every_client_is_taught_and_asked_what_the_server_says_whatever_goes_wrong(
    name: str, participation: float
) -> None:
    compact, reference = (village(name, coding, participation) for coding in ("compact", "reference"))
    ours, theirs = (troubles(len(name), FEDERATION) for _ in range(2))
    for _ in range(ROUNDS):
        assert same_labels(compact.play(ours), reference.play(theirs))
        assert entries(compact.server.state.cache) == entries(reference.server.state.cache)
    assert compact.bytes() < reference.bytes()


def test_what_goes_wrong_does() -> None:
    town = village("scarlet, refresh, D 2", "compact", 0.5)
    seen = list(zip(range(60), troubles(0, FEDERATION), strict=False))
    assert sum(now.fails for _, now in seen) > 5
    assert sum(bool(now.loses_memory) for _, now in seen) > 3
    assert sum(bool(now.is_restored) for _, now in seen) > 3
    events = troubles(0, FEDERATION)
    for _ in range(ROUNDS):
        town.play(events)
    progress = town.server.state.progress
    assert progress is not None
    assert any(each.attempt for each in progress.exceptions)
    assert any(len(each.dropped) for each in progress.exceptions)
    assert town.resyncs > 0
    assert town.ledger.total["catch_up"].size > 0


def test_labels_as_they_were_are_announced_and_not_sent() -> None:
    town = village("cfd, delta, cache", "compact")
    events = troubles(0, FEDERATION)
    unchanged = 0
    for _ in range(ROUNDS):
        town.play(events)
        sync = town.server.state.sync
        assert sync is not None and sync.signal is not None
        unchanged += int(np.count_nonzero(sync.signal == Signal.UNCHANGED))
    assert unchanged > 5


def test_labels_that_are_no_distributions_are_turned_down_and_do_not_become_certain() -> None:
    def diverged(client: int, round: int, index: np.ndarray[tuple[int], np.dtype[np.int64]], classes: int) -> object:
        value = soft_labels(client, round, index)
        return np.full_like(value, np.nan) if client == 0 else value

    town = Village(scarlet(ScarletConfig()), codec("compact"), say=diverged)  # type: ignore[arg-type]
    for number, downlink in town.server.open_round().items():
        job = town.clients[number].receive(downlink)
        assert isinstance(job, Job)
        for data in town._reply(job):
            town.server.take(number, data)
    assert dict(town.server.rejections) == {"unnormalised": 1}
