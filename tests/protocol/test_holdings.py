"""Catch-up against a full table of versions: for each client and sample, which version it holds and which it is known
to hold. The server keeps two bit sets instead, and must come to the same decisions."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pytest

from scarlet.arrays import Labels
from scarlet.job import Job, Result
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.cache import ABSENT, CacheTable, Duration, OnExpiry
from scarlet.protocol.codec_registry import codec
from scarlet.protocol.holdings import Holdings
from scarlet.protocol.messages import Broadcast, CatchUp, Message, Resync, Signal, Sync
from scarlet.protocol.server import Participation, Server
from scarlet.protocol.state import arrays_of
from scarlet.protocol.uplink.labels import Answer
from scarlet.wire import frame
from scarlet.wire.ledger import Ledger
from tests.protocol.federation import Federation, drawing, same_labels

MODES: tuple[OnExpiry, ...] = ("delete", "refresh")
DURATIONS = (0, 1, 2, 5, 20, 61, 62, 63, 64, 65, 100, 126, 127, 130)  # one word of bits, two and three
SHARES = (0.1, 0.3, 0.6, 1.0)

Versions = npt.NDArray[np.int64]  # [K, P]: the round in which the version was stored, or ABSENT


@dataclass
class Table:
    """The oracle: nothing clever, and K x P in size."""

    current: npt.NDArray[np.int64]  # [P]: the server's own versions
    held: Versions  # what each client really holds
    known: Versions  # of that, what was installed by downlinks whose reply the server accepted

    @classmethod
    def empty(cls, clients: int, size: int) -> Table:
        nothing = np.full((clients, size), ABSENT, np.int64)
        return cls(nothing[0].copy(), nothing.copy(), nothing.copy())

    def close(self, sync: Sync) -> None:
        """The server stores and deletes."""
        assert sync.signal is not None
        self.current[sync.index[sync.signal == Signal.NEWLY_CACHED]] = sync.round
        self.current[sync.index[sync.signal == Signal.EXPIRED]] = ABSENT
        self.current[sync.dropped] = ABSENT

    def apply(self, versions: Versions, client: int, sync: Sync) -> None:
        """After the downlink with this sync a client has the current version of all of the round's samples."""
        touched = np.concatenate([sync.index, sync.dropped])
        versions[client, touched] = self.current[touched]

    def received(self, client: int, sync: Sync) -> None:
        self.apply(self.held, client, sync)

    def accepted(self, client: int, sync: Sync) -> None:
        self.apply(self.known, client, sync)

    def reset(self, client: int) -> None:
        self.held[client] = self.known[client] = ABSENT


@dataclass(frozen=True)
class Chances:
    """Of each fault, in one history."""

    participation: float
    lost_downlink: float
    lost_reply: float
    retry: float
    reset: float
    silence: float  # that a requested sample stays unanswered

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Chances:
        often = rng.choice([0, 0.05, 0.4], 5) * [1, 1, 1, 0.25, 1]
        return cls(float(rng.choice(SHARES)), *often.tolist())


def some(rng: np.random.Generator, among: int, share: float) -> npt.NDArray[np.int64]:
    return np.sort(rng.choice(among, max(1, round(share * among)), replace=False)).astype(np.int64)


def decide(seed: int, duration: int, on_expiry: OnExpiry) -> Counter[str]:
    """One random history; each decision about each client and each sample with a valid entry is compared."""
    rng = np.random.default_rng([seed, duration, on_expiry == "refresh"])
    clients, size = int(rng.integers(3, 16)), int(rng.integers(10, 60))
    policy, chances = Duration(duration, on_expiry), Chances.drawn(rng)
    per_round = float(rng.choice([0.05, 0.2, 0.6]))
    cache, holdings, table = (
        CacheTable.empty(size, 0),
        Holdings.empty(clients, size, duration),
        Table.empty(clients, size),
    )
    sync: Sync | None = None
    seen: Counter[str] = Counter()
    for t in range(1, 2 * duration + 60):
        while True:  # attempts at a round
            if sync is not None:
                valid = np.flatnonzero((cache.stamp != ABSENT) & (sync.round - cache.stamp <= duration))
                assert np.array_equal(cache.stamp, table.current)
                lacks = np.stack([holdings.lacks(client, valid) for client in range(clients)])
                expected = table.known[:, valid] != table.current[valid]
                wrong = np.flatnonzero((lacks != expected).any(axis=1)).tolist()
                assert wrong == [], f"seed {seed}, D {duration}, round {t}, clients {wrong}"
                assert (table.held[:, valid] == table.current[valid])[~lacks].all()
                seen["lacks"] += int(lacks.sum())
                seen["holds"] += int((~lacks).sum())
                for client in some(rng, clients, chances.participation).tolist():
                    if rng.random() < chances.lost_downlink:
                        continue
                    if rng.random() < chances.reset:
                        holdings.forget(client)
                        table.reset(client)
                        assert holdings.lacks(client, valid).all()
                    table.received(client, sync)
                    if rng.random() >= chances.lost_reply:
                        holdings.acknowledge(client, sync.round)
                        table.accepted(client, sync)
            if rng.random() >= chances.retry:
                break
        index = some(rng, size, per_round)
        request = policy.request(cache, index, t)
        answered = request[rng.random(len(request)) >= chances.silence]
        sync = policy.commit(cache, Labels(answered, np.empty((len(answered), 0), np.float32)), index, t)
        holdings.commit(sync)
        table.close(sync)
        seen["dropped"] += len(sync.dropped)
    return seen


@pytest.mark.parametrize("on_expiry", MODES)
def test_every_decision_is_that_of_a_full_table_of_versions(on_expiry: OnExpiry) -> None:
    total: Counter[str] = Counter()
    for duration in DURATIONS:
        for seed in range(8):
            total += decide(seed, duration, on_expiry)
    assert total["lacks"] > 1_000_000, total
    assert total["holds"] > 1_000_000, total
    assert total["dropped"] > 3_000


class Watched(Federation):
    """A federation with everything that can go wrong on the way, and the oracle beside it."""

    def __init__(self, seed: int, duration: int, on_expiry: OnExpiry) -> None:
        self.rng = np.random.default_rng([seed, duration, on_expiry == "refresh"])
        self.chances = Chances.drawn(self.rng)
        agreement = Agreement(6, 24, int(self.rng.choice([2, 6, 12])), classes=3, seed=seed)
        participation = Participation(self.chances.participation)
        super().__init__(
            scarlet(ScarletConfig(beta=1, cache_duration=duration, on_expiry=on_expiry)),
            agreement,
            replace(participation, min_answers=1 + (participation.asked(agreement.clients) > 1)),
        )
        self.table = Table.empty(agreement.clients, agreement.public_size)
        self.taught: Labels | None = None
        self.lost_disk: set[int] = set()  # clients whose cache may differ from what the server knows
        self.seen: Counter[str] = Counter()
        self.broadcast: dict[bytes, Message] = {}  # the last one, as it is read

    def round(self) -> None:
        """One attempt at a round."""
        for client in range(self.agreement.clients):
            if self.rng.random() < self.chances.reset:
                self.clients[client] = self.new_client(client)
                self.lost_disk.add(client)
                self.table.held[client] = ABSENT
        for client, downlink in self.server.open_round().items():
            self.check_minimal(client, downlink, self.table.known[client])
            if self.rng.random() >= self.chances.lost_downlink:
                self.serve(client, downlink)
        for client, downlink in self.server.resets().items():
            self.seen["resets"] += 1
            self.table.reset(client)
            self.check_minimal(client, downlink, self.table.known[client])
            if self.rng.random() >= self.chances.lost_downlink:
                self.lost_disk.discard(client)
                self.serve(client, downlink)
        assert self.server.resets() == {}
        closed = self.server.close_round()
        if closed is None:
            self.seen["retries"] += 1
            return
        assert not closed.rejections
        self.taught, sync = closed.taught, self.server.state.downlink.sync
        self.table.close(sync)
        assert self.server.state.downlink.cache.stamp.tolist() == self.table.current.tolist()

    def check_minimal(self, client: int, downlink: bytes, known: npt.NDArray[np.int64]) -> None:
        """A downlink brings the hits that the client is not known to hold, in their current version, and no others."""
        first, *others = frame.split(downlink)
        if first not in self.broadcast:  # all clients are sent the same
            self.broadcast = {first: self.codec.decode(first)}
        head, rest = self.broadcast[first], [self.codec.decode(part) for part in others]
        assert isinstance(head, Broadcast)
        expected: list[int] = []
        if head.sync is not None:
            assert head.sync.signal is not None
            hits = head.sync.index[head.sync.signal == Signal.CACHED]
            expected = hits[known[hits] != self.table.current[hits]].tolist()
            self.seen["held"] += len(hits) - len(expected)
        self.seen["sent"] += len(expected)
        if not expected:
            assert not rest or (isinstance(rest[0], CatchUp) and rest[0].reset)
            return
        (catch_up,) = rest
        assert isinstance(catch_up, CatchUp)
        assert catch_up.labels.index.tolist() == expected
        assert np.array_equal(catch_up.labels.value, self.server.state.downlink.cache.value[expected])

    def serve(self, client: int, downlink: bytes) -> None:
        sync = self.server.state.downlink.sync
        task = self.clients[client].receive(downlink)
        if not isinstance(task, Job):
            assert [type(self.codec.decode(data)) for data in task] == [Resync]
            assert client in self.lost_disk, f"client {client} is out of step, and nothing happened to it"
            self.server.take(client, task[0])
            return
        if sync is None or self.taught is None:
            assert len(task.teacher.index) == 0
        else:
            assert same_labels(task.teacher, self.taught)
            self.table.received(client, sync)
        self.seen["taught"] += 1
        value = self.rng.dirichlet([0.5] * 3, len(task.request)).astype(np.float32)
        uplink, _ = self.clients[client].reply(task, Result(value, {}))
        if self.rng.random() >= self.chances.lost_reply:
            self.server.take(client, uplink)
            if sync is not None:
                self.table.accepted(client, sync)


@pytest.mark.parametrize("on_expiry", MODES)
def test_clients_are_sent_exactly_what_they_lack_and_rebuild_exactly_what_was_taught(on_expiry: OnExpiry) -> None:
    seen: Counter[str] = Counter()
    for duration in DURATIONS:
        for seed in range(6 if duration < 50 else 2):
            federation = Watched(seed, duration, on_expiry)
            for _ in range(2 * duration + 40):
                federation.round()
            seen += federation.seen
    assert seen["taught"] > 8_000, seen
    assert min(seen["sent"], seen["held"]) > 4_000, seen
    assert min(seen["resets"], seen["retries"]) > 50, seen


def test_a_client_that_missed_rounds_is_sent_the_reused_labels_and_no_more() -> None:
    """Client 1 misses what rounds 2 and 3 stored; round 4 reuses that, and what both clients hold since round 1."""
    method = drawing(scarlet(ScarletConfig(cache_duration=5)), [0, 1], [1, 2], [3, 4], [0, 1, 2, 3, 5], [6])
    federation = Federation(method, Agreement(clients=2, public_size=8, public_per_round=4, classes=3, seed=0))

    def play(*answering: int) -> dict[int, list[int]]:
        """A round; whom it sends which catch-up."""
        federation.jobs, sent = [], {}
        for client, downlink in federation.server.open_round().items():
            for part in frame.split(downlink)[1:]:
                message = federation.codec.decode(part)
                assert isinstance(message, CatchUp)
                assert not message.reset
                sent[client] = message.labels.index.tolist()
            if client in answering:
                federation.deliver({client: downlink})
        federation.take(federation.replies())
        federation.close()
        assert not federation.resyncs
        return sent

    assert play(0, 1) == {}
    assert play(0, 1) == {}  # with the sync of round 1: all is fresh
    assert play(0) == {}  # of round 2: sample 1 is reused, and both hold it
    assert play(0) == {}  # of round 3: all is fresh
    assert play(0, 1) == {1: [2, 3]}


def test_only_the_reply_acknowledges_not_the_sending() -> None:
    agreement = Agreement(clients=2, public_size=3, public_per_round=3, classes=3, seed=0)
    federation = Federation(scarlet(ScarletConfig(cache_duration=9)), agreement)
    federation.play()
    federation.play(arrange=lambda replies: [reply for reply in replies if reply[0] == 0])
    for _ in range(3):  # client 1 has all of it, but the server cannot know until it hears so
        federation.open()
        assert federation.handed[0]["catch_up"] == 0
        assert federation.handed[1]["catch_up"] > 0
        federation.take([reply for reply in federation.replies() if reply[0] == 0])
        federation.close()
    federation.play()
    federation.open()
    assert federation.handed[1]["catch_up"] == 0


def test_a_report_alone_acknowledges_nothing() -> None:
    federation = Federation(scarlet(ScarletConfig()), Agreement(2, 3, 3, 3, seed=0))
    federation.play()
    federation.open()
    holdings = federation.server.state.downlink.holdings
    before = deepcopy(holdings.acknowledged)
    federation.take(federation.replies()[1::2])
    assert np.array_equal(holdings.acknowledged, before)


def test_the_state_of_a_server_with_100_000_clients_is_under_20_megabytes() -> None:
    agreement = Agreement(clients=100_000, public_size=10_000, public_per_round=1_000, classes=10, seed=0)
    method = scarlet(ScarletConfig(cache_duration=50))
    server = Server(method, agreement, codec("reference", method, agreement), Ledger(), None, Participation(1e-4))
    for round in (1, 2):
        for client in server.open_round():
            labels = Labels(server.request, np.full((len(server.request), 10), 0.1, np.float32))
            server.take(client, server.codec.encode(Answer(round, 0, client, labels)))
        assert server.close_round() is not None
    assert sum(array.nbytes for array in arrays_of(server.state).values()) < 20e6
