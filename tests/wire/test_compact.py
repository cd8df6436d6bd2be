from __future__ import annotations

import struct
import tracemalloc
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from copy import copy, deepcopy
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scarlet.protocol.federation import Federation
from scarlet.protocol.types import Job, Labels, Result, Resync, Signal
from scarlet.wire.codec import Codec
from scarlet.wire.codecs import codec

from scarlet.errors import MessageError
from scarlet.methods.cfd import CfdConfig, cfd
from scarlet.methods.comet import CometConfig, comet
from scarlet.methods.dsfl import DsflConfig, dsfl
from scarlet.methods.fedavg import FedavgConfig, fedavg
from scarlet.methods.individual import IndividualConfig, individual
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.methods.selective_fd import SelectiveFdConfig, selective_fd
from scarlet.protocol.client import Client
from scarlet.protocol.method import Method
from scarlet.protocol.server import Server
from scarlet.wire import frame
from scarlet.wire.ledger import COLUMNS, Ledger
from tests.protocol.federation import Knowing, Say, Table, entries, few_labels, same_labels, soft_labels, weights

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


def village(name: str, coding: str, participation: float = 1.0, seed: int = 5) -> Village:
    method = METHODS[name]()
    if method.exchange == "labels":
        method = bare(method)
    up = 8 if method.uplink_bits is None else method.uplink_bits
    down = 8 if method.downlink_bits is None else method.downlink_bits
    federation = replace(FEDERATION, participation=participation, seed=seed)
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
    town = Village(scarlet(ScarletConfig()), codec("compact"))
    for number, downlink in town.server.open_round().items():
        job = town.clients[number].receive(downlink)
        assert isinstance(job, Job)
        value = soft_labels(number, 1, job.request)
        value[3] = np.nan if number == 0 else value[3]
        for data in town.clients[number].reply(job, Result(value, {})):
            town.server.take(number, data)
    assert dict(town.server.rejections) == {"unnormalised": 1}
    closed = town.server.close_round()
    assert closed is not None and closed.answers == 3


def test_a_client_that_keeps_no_labels_need_not_know_of_the_rounds_that_it_missed() -> None:
    town = village("fedavg", "compact")
    events = troubles(0, FEDERATION)
    for _ in range(ROUNDS):
        town.play(events)
    assert town.resyncs == 0
    assert town.ledger.total["catch_up"].size == 0


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", ["scarlet, refresh, D 2", "scarlet, delete, D 1000", "cfd, delta, cache", "dsfl"])
def test_clients_follow_a_server_that_is_set_back_to_rounds_before_those_that_they_heard_of(
    name: str, seed: int
) -> None:
    town = village(name, "compact", 0.5, seed)
    events = troubles(seed, FEDERATION)
    for _ in range(4):
        town.play(events)
    server, taught = deepcopy((town.server, town.taught))
    for _ in range(1 + seed % 3):
        town.play(events)
    town.server, town.taught = server, taught
    for _ in range(8):  # none fails: a client that hears the same as before gives its old answer at once
        town.play(replace(each, fails=False) for each in events)


def far_ahead(town: Village, round: int) -> bytes:
    """A downlink of a town, as if it were of another round."""
    first = frame.split(town.server.open_round()[0])[0]
    outer = frame.unwrap(first)
    return frame.wrap(outer.kind, round, outer.attempt, bytes(outer.body))


@pytest.mark.parametrize("round", [2**20, 2**31 - 1])
def test_a_client_that_missed_very_many_rounds_asks_for_the_stamps_and_does_not_work_them_out(round: int) -> None:
    town = Village(scarlet(ScarletConfig()), codec("compact"))
    town.play(iter([calm()]))
    answer = town.clients[0].receive(far_ahead(town, round))
    assert isinstance(answer, list)
    assert isinstance(town.codec.decode(answer[0]), Resync)


@pytest.mark.parametrize("round", [2**31, 2**32 - 1])
@pytest.mark.parametrize("name", ["scarlet, refresh, D 2", "dsfl"])
def test_a_round_that_no_stamp_can_hold_is_refused(name: str, round: int) -> None:
    town = village(name, "compact")
    town.play(iter([calm()]))
    with pytest.raises(MessageError):
        town.clients[0].receive(far_ahead(town, round))


def calm(federation: Federation = FEDERATION) -> Events:
    """Nothing goes wrong."""
    known = {client: np.ones(federation.public_size, np.bool_) for client in range(federation.clients)}
    return Events(False, known, frozenset(), frozenset(), frozenset(), False)


@dataclass(frozen=True)
class Case:
    """A message, and whom it is for as that side was before: a client, or the server with its sender."""

    data: bytes
    client: Client | None
    server: Server | None
    sender: int


def cases(names: Collection[str] = tuple(METHODS)) -> list[Case]:
    """Messages of every kind, from rounds in which everything goes wrong."""
    found = []
    for name in names:
        town = village(name, "compact", 0.5)
        events = troubles(len(name), FEDERATION)
        for round in range(12):
            town.play(events)
            if round in (0, 1, 5, 11):
                for client, downlink in town.heard:
                    found.append(Case(downlink, client, None, client.number))
        # The answers of a round that is still open.
        jobs = [(town.clients[number], data) for number, data in town.server.open_round().items()]
        server = deepcopy(town.server)
        for client, downlink in jobs:
            task = client.receive(downlink)
            if isinstance(task, Job):
                value = town.say(client.number, task.round, task.request, FEDERATION.classes)
                result = Result(value, {"loss": 0.5}, 1, task.parameters)
                found += [Case(data, None, server, client.number) for data in client.reply(task, result)]
            else:
                found += [Case(data, None, server, client.number) for data in task]
    return found


HEADER = struct.Struct("<4sBBHIII")


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """A message, or a row of them, of which one is changed; in half of the cases its frame is made to fit again."""
    parts = frame.split(data)
    chosen = int(rng.integers(len(parts)))
    part = bytearray(parts[chosen])
    repaired = rng.random() < 0.5
    start = frame.SIZE if repaired and rng.random() < 0.8 else 0  # mostly the body: a frame has few ways to be wrong
    start = min(start, len(part) - 1)
    match int(rng.integers(5)):
        case 0:
            for bit in rng.integers(8 * start, 8 * len(part), size=rng.integers(1, 4)).tolist():
                part[bit // 8] ^= 1 << bit % 8
        case 1:
            part[int(rng.integers(start, len(part)))] = int(rng.choice([0, 1, 127, 128, 255, int(rng.integers(256))]))
        case 2:
            del part[int(rng.integers(start, len(part))) :]
        case 3:
            part += rng.bytes(int(rng.integers(1, 20)))
        case _:
            a, b, c = np.sort(rng.integers(start, len(part) + 1, size=3)).tolist()
            part[a:c] = part[b:c] + part[a:b]
    if repaired and len(part) >= frame.SIZE:
        _, _, kind, attempt, round, _, _ = HEADER.unpack_from(part)
        part = bytearray(frame.wrap(kind, round, attempt, bytes(part[frame.SIZE :])))
    parts[chosen] = bytes(part)
    if rng.random() < 0.02:
        parts = [parts[at] for at in rng.permutation(len(parts)).tolist()]
    return b"".join(parts)


def outcome(case: Case, data: bytes) -> str:
    """What becomes of changed bytes; whatever is not a MessageError is raised."""
    if case.client is not None:
        client = copy(case.client)
        client.state = deepcopy(case.client.state)
        try:
            task = client.receive(data)
        except MessageError:
            return "client: refused"
        if task is client.state.reply:
            return "client: answered before"
        if isinstance(task, list):
            (resync,) = task
            assert isinstance(client.codec.decode(resync), Resync)
            return "client: out of step"
        check_job(task, client)
        return "client: read"
    assert case.server is not None
    server = deepcopy(case.server)
    server.take(case.sender, data)
    return f"server: {next(iter(server.rejections), 'read')}"


def check_job(job: Job, client: Client) -> None:
    size = len(client.state.cache.stamp)
    for index in (job.request, job.teacher.index):
        assert (np.diff(index) > 0).all()
        assert not len(index) or 0 <= index[0] <= index[-1] < size
    assert job.teacher.value.shape == (len(job.teacher.index), *client.state.cache.value.shape[1:])
    assert (job.teacher.value >= 0).all()
    assert np.allclose(job.teacher.value.sum(axis=-1), 1, atol=1e-3)


def test_whatever_is_done_to_a_message_it_is_refused_or_valid() -> None:
    rng = np.random.default_rng(0)
    every = cases()
    found = Counter(outcome(case, mutated(case.data, rng)) for case in chosen(every, 20_000, rng))
    assert sum(found.values()) == 20_000
    for name in ("client: refused", "client: out of step", "client: read", "server: unreadable", "server: read"):
        assert found[name] > 100, found


def chosen(every: list[Case], count: int, rng: np.random.Generator) -> Iterator[Case]:
    return (every[at] for at in rng.integers(len(every), size=count).tolist())


def peak(case: Case, data: bytes) -> int:
    """The most memory that it took to read something."""
    side: Client | Server | None = deepcopy(case.client or case.server)
    tracemalloc.start()
    try:
        if isinstance(side, Client):
            side.receive(data)
        elif side is not None:
            side.take(case.sender, data)
    except MessageError:
        pass
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return most


def test_no_message_takes_much_more_memory_than_the_one_that_it_was() -> None:
    rng = np.random.default_rng(1)
    every = cases(["scarlet, refresh, D 2", "cfd, delta, cache", "comet, server", "fedavg"])
    legitimate = {id(case): peak(case, case.data) for case in every}
    for case in chosen(every, 1_000, rng):
        assert peak(case, mutated(case.data, rng)) <= 2 * legitimate[id(case)] + 2**20


def test_a_message_that_nobody_changed_is_read() -> None:
    every = cases()
    found = Counter(outcome(case, case.data) for case in every)
    assert set(found) <= {"client: read", "client: out of step", "server: read"}
    assert found["client: read"] > 10 * found["client: out of step"] > 0
