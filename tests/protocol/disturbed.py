"""A federation to which everything happens: failed attempts, unanswered samples, lost and restored memories."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from scarlet.arrays import Labels, Mask
from scarlet.job import Job
from scarlet.methods.cfd import CfdConfig, cfd
from scarlet.methods.comet import CometConfig, comet
from scarlet.methods.dsfl import DsflConfig, dsfl
from scarlet.methods.fedavg import FedavgConfig, fedavg
from scarlet.methods.individual import IndividualConfig, individual
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.methods.selective_fd import SelectiveFdConfig, selective_fd
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.client import Client
from scarlet.protocol.downlink.shared import SharedClientState
from scarlet.protocol.method import Method
from scarlet.protocol.server import Participation, Server
from scarlet.protocol.uplink.delta import DeltaLabels
from scarlet.wire.ledger import COLUMNS
from tests.protocol.federation import AGREEMENT, Federation, Knowing, Table, few_labels, same_labels, saved, soft_labels

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


@dataclass(frozen=True)
class Events:
    """What goes wrong in an attempt at a round."""

    fails: bool  # one client answers, which is not enough
    known: dict[int, Mask]  # which samples each client answers
    loses_memory: frozenset[int]
    is_restored: frozenset[int]  # from an old copy
    is_copied: frozenset[int]
    duplicated: bool


def disturbances(seed: int, agreement: Agreement = AGREEMENT) -> Iterator[Events]:
    """Attempt after attempt, the same for whoever asks."""
    rng = np.random.default_rng(seed)
    clients = range(agreement.clients)

    def some(share: float) -> frozenset[int]:
        return frozenset(client for client in clients if rng.random() < share)

    while True:
        everybody = rng.random(agreement.public_size) >= rng.choice([0, 0, 0.2])
        known = {client: everybody & (rng.random(agreement.public_size) >= rng.choice([0, 0.2])) for client in clients}
        yield Events(rng.random() < 0.2, known, some(0.04), some(0.06), some(0.2), bool(rng.random() < 0.3))


def calm(agreement: Agreement = AGREEMENT) -> Events:
    """Nothing goes wrong."""
    known = {client: np.ones(agreement.public_size, np.bool_) for client in range(agreement.clients)}
    return Events(False, known, frozenset(), frozenset(), frozenset(), False)


S = TypeVar("S", Client, Server)


def copied(side: S) -> S:
    """A copy with a state of its own; what both sides agreed on never changes."""
    agreed: list[object] = [side.method, side.codec]
    if isinstance(side, Server):
        agreed += [side.agreement, side.participation]
    return deepcopy(side, {id(each): each for each in agreed})


class Disturbed(Federation):
    """A federation that is checked at every step; `endure` takes a round through all of its attempts."""

    def __init__(self, name: str, coding: str, share: float = 1.0, seed: int = AGREEMENT.seed) -> None:
        method = METHODS[name]()
        bits = {"uplink_bits": method.uplink_bits or 8, "downlink_bits": method.downlink_bits or 8}
        agreement = replace(AGREEMENT, seed=seed)
        super().__init__(
            replace(method, filter=Knowing(), **bits),  # type: ignore[arg-type]
            agreement,
            Participation(share, min_answers=2),
            learner=Table(agreement),
            say=few_labels if isinstance(method.uplink, DeltaLabels) else soft_labels,
            coding=coding,
        )
        self.copies = {client.number: saved(client.state) for client in self.clients}
        self.taught: Labels | None = None
        self.resets = 0
        self.received: list[tuple[Client, bytes]] = []  # each client as it was before a downlink of the last attempt
        self.messages: list[tuple[int, bytes]] = []  # of the last round, downlinks and replies

    def endure(self, events: Iterator[Events]) -> Labels:
        """A round, whatever happens; what it taught."""
        self.messages = []
        while True:
            now = next(events)
            self._befall(now)
            self.received = []
            jobs = self._hand(self.server.open_round(), now.duplicated)
            for job in jobs[:1] if now.fails else jobs:
                for data in self._reply(job):
                    self.server.take(job.client, data)
            assert not self.server.rejections
            closed = self.server.close_round()
            assert (closed is None) == now.fails
            if closed is not None:
                self.taught = closed.taught
                return closed.taught

    def size(self) -> int:
        """All bytes that crossed so far."""
        return sum(self.ledger.total[column].size for column in COLUMNS)

    def _befall(self, now: Events) -> None:
        for number, client in enumerate(self.clients):
            if number in now.is_copied:
                self.copies[number] = saved(client.state)
            if number in now.loses_memory:
                self.clients[number] = self.new_client(number)
            elif number in now.is_restored:
                self.restore_client(number, self.copies[number])
            self.clients[number].state.prepared = {"known": now.known[number]}

    def _hand(self, downlinks: Mapping[int, bytes], duplicated: bool) -> list[Job]:
        jobs = []
        for number, downlink in downlinks.items():
            client = self.clients[number]
            self.received.append((copied(client), downlink))
            self.messages.append((number, downlink))
            task = client.receive(downlink)
            if isinstance(task, Job):
                self._check(task)
                if duplicated:
                    again = client.receive(downlink)
                    assert isinstance(again, Job)
                    self._check(again)
                jobs.append(task)
                continue
            self.resets += 1
            for data in task:
                self.server.take(number, data)
        resets = self.server.resets()
        return sorted(jobs + (self._hand(resets, duplicated) if resets else []), key=lambda job: job.client)

    def _check(self, job: Job) -> None:
        """A client was taught what the server taught, to the bit, and is asked what the server asks."""
        assert job.request.tolist() == self.server.request.tolist()
        state, own = self.server.state.downlink, self.clients[job.client].state.downlink
        lessons = getattr(state, "lessons", None)
        taught = self.taught if lessons is None else lessons.of(job.client)
        if taught is None:
            assert len(job.teacher.index) == 0
        else:
            assert same_labels(job.teacher, taught)
        if isinstance(own, SharedClientState) and own.replay is not None and state.sync is not None:
            assert own.replay.stamps.tolist() == state.cache.stamp.tolist()

    def _reply(self, job: Job) -> list[bytes]:
        client = self.clients[job.client]
        replies = client.reply(job, self.result(job))
        downlink = next(data for before, data in reversed(self.received) if before.number == job.client)
        assert client.receive(downlink) == replies
        self.messages += [(job.client, data) for data in replies]
        return replies
