"""Delta coding against literal models: they copy whole dictionaries where the software keeps what it replaced."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scarlet.methods.cfd import CfdConfig, cfd
from scarlet.methods.dsfl import DsflConfig, dsfl
from scarlet.methods.parts.aggregate import mean
from scarlet.protocol.cache import ABSENT, CacheTable, Delta, Duration, OnExpiry, recall, store
from scarlet.protocol.client import Client
from scarlet.protocol.delta import Memory, Sent, name_of
from scarlet.protocol.federation import Federation
from scarlet.protocol.method import Fold, Method
from scarlet.protocol.persist import client_arrays, restore_client, restore_server, server_arrays, server_numbers
from scarlet.protocol.server import Server
from scarlet.protocol.types import (
    NOTHING,
    Accepted,
    Broadcast,
    CatchUp,
    Index,
    Labels,
    Result,
    Signal,
    Uplink,
    Values,
)
from scarlet.wire import frame
from scarlet.wire.ledger import Ledger
from scarlet.wire.reference import Reference
from tests.protocol.federation import FEDERATION, Reply, Table, Town, few_labels, memory, same_labels

PROFILE = settings(deadline=None, max_examples=120)
SMALL = Federation(clients=2, public_size=8, public_per_round=5, classes=3, seed=1)
CODED = cfd(CfdConfig(uplink_bits=1, downlink_bits=1, delta=True, cache_duration=2))
CODED_UP = cfd(CfdConfig(uplink_bits=1, downlink_bits=32, delta=True))
DELTA = Method(aggregate=mean(), uplink_bits=2, delta=True)
Said = dict[int, tuple[float, ...]]  # sample -> label
Fate = Literal["arrives", "lost", "twice", "late", "unread"]
Mishap = Literal["none", "wiped", "backup", "old downlink"]
Attempt = tuple[int, tuple[Mishap, Mishap], tuple[Fate, Fate], bool]


def i64(*numbers: int) -> Index:
    return np.array(numbers, np.int64)


def said(labels: Labels) -> Said:
    return {sample: tuple(row) for sample, row in zip(labels.index.tolist(), labels.value.tolist(), strict=True)}


class Recorded(Fold):
    """Keeps what was added to it."""

    def __init__(self) -> None:
        self.added: dict[int, Said] = {}

    def add(self, client: int, labels: Labels) -> None:
        self.added[client] = said(labels)

    def finish(self) -> Labels:
        return Labels(np.empty(0, np.int64), np.empty((0, SMALL.classes), np.float32))


# Answers


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

    folds: list[Recorded] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        def fold(request: Index, classes: int) -> Recorded:
            self.folds.append(Recorded())
            return self.folds[-1]

        self.method = replace(DELTA, aggregate=fold)
        self.codec = Reference(DELTA.uplink_bits, 32)
        self.server = self.new_server()
        self.clients = [self.new_client(number) for number in range(SMALL.clients)]
        self.models = [Model() for _ in self.clients]
        self.backups = deepcopy(list(zip(self.clients, self.models, strict=True)))
        self.downlinks: list[list[bytes]] = [[] for _ in self.clients]
        self.late: list[tuple[int, bytes]] = []

    def new_server(self) -> Server:
        return Server(self.method, SMALL, self.codec, Ledger())

    def new_client(self, number: int) -> Client:
        return Client(number, self.method, SMALL, self.codec)

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
        value = rng.choice([0.0, 0.4], (len(task.request), SMALL.classes)) + np.eye(SMALL.classes)[0]
        labels = Labels(task.request, (value / value.sum(axis=1, keepdims=True)).astype(np.float32))
        data = self.clients[client].reply(task, Result(labels.value, {}))[0]

        heard = said(Labels(labels.index, self.codec.heard_by_server(labels.value)))
        uplink, known = self.codec.decode(data), self.models[client].now
        assert isinstance(uplink, Uplink)
        assert uplink.base == known[0]
        assert said(uplink.labels) == {
            sample: label for sample, label in heard.items() if known[1].get(sample) != label
        }
        assert uplink.same.tolist() == [sample for sample in heard if known[1].get(sample) == heard[sample]]
        self.events["same"] += len(uplink.same)
        self.events["sent"] += len(uplink.labels.index)
        self.models[client].answer(heard, name_of(data))
        return data

    def round(self, seed: int, mishaps: Sequence[Mishap], fates: Sequence[Fate], *, crash: bool) -> None:
        """One attempt at a round; what the server adds up must be all that the clients said."""
        for client, kind in enumerate(mishaps):
            self.mishap(client, kind)
        server, before = self.server, deepcopy(self.server.state)
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
        request = request_of(self.codec, downlinks)
        assert self.folds[-1].added == {
            client: {sample: label for sample, label in labels.items() if sample in request}
            for client, labels in expected.items()
        }
        assert "wrong base" not in server.rejections
        server.close_round()
        if crash:
            self.events["crash"] += 1
            self.server = self.new_server()
            self.server.state = before
            self.late = []


def request_of(codec: Reference, downlinks: Mapping[int, bytes]) -> list[int]:
    broadcast = codec.decode(frame.split(next(iter(downlinks.values())))[0])
    assert isinstance(broadcast, Broadcast)
    return [int(sample) for sample in broadcast.request]


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
                world.backups = deepcopy(list(zip(world.clients, world.models, strict=True)))
        events.update(world.events)

    play()
    for event in (*get_args(Fate), *get_args(Mishap), "crash", "same", "sent", "taken back", "forgotten"):
        assert events[event] > 0, f"the histories never had: {event}"


def labels(*rows: tuple[int, int]) -> Labels:
    """One-hot labels of (sample, class)."""
    index = i64(*(sample for sample, _ in rows))
    return Labels(index, np.eye(3, dtype=np.float32)[[best for _, best in rows]])


def new_sent() -> Sent:
    return Sent(Memory.empty(8, 3))


def answered(sent: Sent, said: Labels, name: bytes) -> tuple[list[int], list[int]]:
    """Give an answer; the samples that were sent and those that were not."""
    changed, same = sent.split(said)
    sent.note(said, name)
    return changed.index.tolist(), same.tolist()


A, B, C = (bytes([number] * 8) for number in (1, 2, 3))


def test_a_client_without_a_memory_sends_everything() -> None:
    assert answered(new_sent(), labels((1, 0), (4, 2)), A) == ([1, 4], [])


def test_a_client_sends_what_differs_from_its_last_accepted_labels() -> None:
    sent = new_sent()
    answered(sent, labels((1, 0), (4, 2), (6, 1)), A)
    sent.agree(A)
    assert answered(sent, labels((1, 0), (4, 1), (5, 1)), B) == ([4, 5], [1])
    sent.agree(B)
    assert answered(sent, labels((1, 0), (4, 1), (5, 2), (6, 1)), C) == ([5], [1, 4, 6])


def test_an_answer_that_was_lost_is_taken_back() -> None:
    sent = new_sent()
    answered(sent, labels((1, 0), (4, 2)), A)
    sent.agree(A)
    before = deepcopy(sent.memory)
    answered(sent, labels((1, 1), (5, 1)), B)
    sent.agree(A)
    assert sent.memory.name == A
    assert sent.memory.known.tolist() == before.known.tolist()
    assert sent.memory.value.tolist() == before.value.tolist()
    assert answered(sent, labels((1, 0), (4, 2), (5, 1)), C) == ([5], [1, 4])


def test_a_first_answer_that_was_lost_is_taken_back_to_nothing() -> None:
    sent = new_sent()
    answered(sent, labels((1, 0)), A)
    sent.agree(NOTHING)
    assert answered(sent, labels((1, 0)), B) == ([1], [])


def test_a_client_that_has_begun_anew_does_not_go_back_to_what_it_forgot() -> None:
    sent = new_sent()
    answered(sent, labels((1, 0), (2, 0)), A)
    sent.agree(A)
    answered(sent, labels((1, 1)), B)
    sent.agree(C)
    sent.agree(A)
    assert sent.memory.name == NOTHING
    assert not sent.memory.known.any()


@pytest.mark.parametrize("accepted", [C, NOTHING])
def test_a_client_that_does_not_know_what_the_server_accepted_begins_anew(accepted: bytes) -> None:
    sent = new_sent()
    answered(sent, labels((1, 0)), A)
    sent.agree(A)
    answered(sent, labels((1, 0), (2, 0)), B)
    sent.agree(accepted)
    assert sent.memory.name == NOTHING
    assert answered(sent, labels((1, 0), (2, 0)), C) == ([1, 2], [])


def test_an_answer_is_taken_back_once_only() -> None:
    """After that its base is gone too, should the server come back from further behind."""
    sent = new_sent()
    for name in (A, B):
        answered(sent, labels((1, 0)), name)
        sent.agree(name)
    answered(sent, labels((1, 1)), C)
    sent.agree(B)
    sent.agree(A)
    assert not sent.memory.known.any()


class Asked:
    """A server under delta coding whose client 0 was accepted once, in the round before the one that is open."""

    def __init__(self) -> None:
        self.codec = Reference(1, 32)
        every = replace(SMALL, clients=1, public_per_round=SMALL.public_size - 1)
        self.server = Server(replace(DELTA, uplink_bits=1), every, self.codec, Ledger())
        first = request_of(self.codec, self.server.open_round())
        data = self.codec.encode(Uplink(1, 0, 0, labels(*((sample, 0) for sample in first))))
        self.server.take(0, data)
        self.server.close_round()
        self.name, self.known = name_of(data), first
        self.request = request_of(self.codec, self.server.open_round())
        self.both = [sample for sample in self.request if sample in first]

    def reasons(self, said: Labels, same: list[int], base: bytes) -> dict[str, int]:
        self.server.take(0, self.codec.encode(Uplink(2, 0, 0, said, i64(*same), base)))
        return dict(self.server.rejections)


def test_an_answer_that_builds_on_the_accepted_one_is_taken() -> None:
    asked = Asked()
    assert asked.reasons(labels((asked.both[0], 1)), asked.both[1:], asked.name) == {}
    assert asked.server.close_round() is not None


def test_an_answer_that_builds_on_another_one_is_rejected() -> None:
    asked = Asked()
    assert asked.reasons(labels((asked.both[0], 1)), asked.both[1:], A) == {"wrong base": 1}
    assert asked.server.close_round() is None


def test_an_answer_that_refers_to_labels_which_were_never_sent_is_rejected() -> None:
    asked = Asked()
    new = [sample for sample in asked.request if sample not in asked.known]
    assert asked.reasons(labels((asked.both[0], 1)), new, asked.name) == {"wrong base": 1}


def test_an_answer_that_builds_on_nothing_makes_the_server_forget_all_before_it() -> None:
    asked = Asked()
    assert asked.reasons(labels((asked.both[0], 1)), [], NOTHING) == {}
    assert asked.server.close_round() is not None
    assert asked.server.state.accepted is not None
    assert np.flatnonzero(asked.server.state.accepted[0].known).tolist() == asked.both[:1]


def test_an_answer_that_labels_a_sample_twice_is_rejected() -> None:
    asked = Asked()
    assert asked.reasons(labels((asked.both[0], 1)), asked.both[:2], asked.name) == {"wrong samples": 1}


def test_an_answer_that_refers_to_labels_of_samples_that_were_not_requested_is_rejected() -> None:
    asked = Asked()
    (other,) = set(range(SMALL.public_size)) - set(asked.request)
    assert other in asked.known
    assert asked.reasons(labels(), [other], asked.name) == {"wrong samples": 1}


@pytest.mark.parametrize("sample", [SMALL.public_size, 2**62])
def test_an_answer_that_refers_to_samples_that_there_are_not_is_rejected(sample: int) -> None:
    asked = Asked()
    assert asked.reasons(labels(), [sample], asked.name) == {"wrong samples": 1}


def test_an_answer_that_refers_to_others_is_rejected_where_nothing_is_kept() -> None:
    town = Town(dsfl(DsflConfig()))
    town.open()
    (uplink, *_) = town.replies()
    decoded = town.codec.decode(uplink[1])
    assert isinstance(decoded, Uplink)
    half = Labels(decoded.labels.index[1:], decoded.labels.value[1:])
    town.server.take(0, town.codec.encode(replace(decoded, labels=half, same=decoded.labels.index[:1], base=A)))
    assert town.server.rejections == {"wrong base": 1}


def test_labels_that_never_change_are_sent_once_by_each_client() -> None:
    every = replace(FEDERATION, public_per_round=FEDERATION.public_size)
    always = partial(few_labels, round=0)
    town = Town(CODED_UP, every, Table(), lambda client, round, index, classes: always(client, index=index))
    for round in range(1, 5):
        town.open()
        uplinks = [town.codec.decode(data) for _, data in town.replies()[::2]]
        for uplink in uplinks:
            assert isinstance(uplink, Uplink)
            assert (len(uplink.labels.index), len(uplink.same)) == ((24, 0) if round == 1 else (0, 24))
            town.server.take(uplink.client, town.codec.encode(uplink))
        assert town.server.close_round() is not None


def test_a_rejected_answer_leaves_what_was_accepted_and_is_taken_back_by_its_client() -> None:
    """In round 3 client 1's labels are damaged on their way in one town, and lost in the other."""
    towns = []
    for arrange in (damaged, without):
        town = Town(CODED, FEDERATION, Table(), few_labels)
        for round in range(1, 7):
            town.play(arrange=partial(arrange, client=1) if round == 3 else list)
        towns.append(town)
    assert memory(towns[0].server) == memory(towns[1].server)
    for one, other in zip(towns[0].clients, towns[1].clients, strict=True):
        assert arrays_of(one) == arrays_of(other)


def damaged(replies: list[Reply], client: int) -> list[Reply]:
    return [(sender, data[:-1] if sender == client else data) for sender, data in replies]


def without(replies: list[Reply], client: int) -> list[Reply]:
    return [(sender, data) for sender, data in replies if sender != client]


def arrays_of(client: Client) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in client_arrays(client.state).items()}


@pytest.mark.parametrize("rounds", range(6))
def test_a_federation_that_is_restored_from_its_arrays_goes_on_byte_for_byte(rounds: int) -> None:
    """In each odd round a client's answer is lost, so there is something to take back."""
    model = Table()
    town = Town(CODED, FEDERATION, model, few_labels)

    def play(town: Town, round: int) -> tuple[dict[int, bytes], list[Reply]]:
        town.jobs = []
        downlinks = town.server.open_round()
        town.deliver(downlinks)
        replies = town.replies()
        for reply in without(replies, round % FEDERATION.clients) if round % 2 else replies:
            town.server.take(*reply)
        assert town.server.close_round() is not None
        return downlinks, replies

    for round in range(rounds):
        play(town, round)
    twin = Town(CODED, FEDERATION, deepcopy(model), few_labels)
    numbers = json.loads(json.dumps(server_numbers(town.server.state, town.ledger)))
    restore_server(twin.server.state, twin.ledger, deepcopy(server_arrays(town.server.state)), numbers)
    for old, new in zip(town.clients, twin.clients, strict=True):
        restore_client(new.state, deepcopy(client_arrays(old.state)))
    for round in range(rounds, rounds + 8):
        assert play(town, round) == play(twin, round)
        assert memory(town.server) == memory(twin.server)
    assert [arrays_of(client) for client in town.clients] == [arrays_of(client) for client in twin.clients]


# What is taught

MODES: tuple[OnExpiry, ...] = ("delete", "refresh")
HISTORIES = 250  # of each mode and shape


@dataclass
class Slow:
    """The policy, one sample after the other: what is held, since when, and what is announced of each sample."""

    duration: int
    on_expiry: OnExpiry
    held: dict[int, tuple[bytes, int]] = field(default_factory=dict)

    def request(self, index: list[int], t: int) -> list[int]:
        return [i for i in index if i not in self.held or t - self.held[i][1] > self.duration]

    def commit(self, fresh: Mapping[int, bytes], index: list[int], t: int) -> tuple[dict[int, Signal], list[int]]:
        """The signal of each sample that stays in the round, and the samples that leave it."""
        request, signals, dropped = self.request(index, t), {}, []
        for i in index:
            if i not in request:
                signals[i] = Signal.CACHED
            elif i not in fresh:
                dropped.append(i)
                self.held.pop(i, None)
            elif i in self.held and self.on_expiry == "delete":
                signals[i] = Signal.EXPIRED
                del self.held[i]
            elif i in self.held and self.held[i][0] == fresh[i]:
                signals[i] = Signal.UNCHANGED
                self.held[i] = fresh[i], t
            else:
                signals[i] = Signal.NEWLY_CACHED
                self.held[i] = fresh[i], t
        return signals, dropped


@pytest.mark.parametrize("shape", [(2,), (2, 2)], ids=["one label", "two teachers"])
@pytest.mark.parametrize("on_expiry", MODES)
def test_a_label_is_announced_as_unchanged_only_if_it_is_the_one_held_to_the_bit(
    on_expiry: OnExpiry, shape: tuple[int, ...]
) -> None:
    """Random histories of labels, many of which repeat, or repeat in all entries but one, against the slow policy."""
    seen: Counter[Signal] = Counter()
    for seed in range(HISTORIES):
        rng = np.random.default_rng([seed, len(shape)])
        size, duration = int(rng.integers(1, 10)), int(rng.integers(0, 4))
        slow, policy = Slow(duration, on_expiry), Delta(Duration(duration, on_expiry))
        server, client = CacheTable.empty(size, *shape), CacheTable.empty(size, *shape)
        near = np.nextafter(np.float32(0.5), np.float32(1))
        for t in range(1, 13):
            index = np.sort(rng.choice(size, int(rng.integers(1, size + 1)), replace=False)).astype(np.int64)
            request = policy.request(server, index, t)
            assert request.tolist() == slow.request(index.tolist(), t)
            answered = request[rng.random(len(request)) < 0.85]
            value = rng.choice([0.5, near], (len(answered), *shape), p=[0.75, 0.25]).astype(np.float32)
            sync = policy.commit(server, Labels(answered, value), index, t)
            fresh = {sample: row.tobytes() for sample, row in zip(answered.tolist(), value, strict=True)}
            signals, dropped = slow.commit(fresh, index.tolist(), t)
            assert sync.signal is not None
            assert dict(zip(sync.index.tolist(), sync.signal.tolist(), strict=True)) == signals
            assert sync.dropped.tolist() == dropped
            sent = [i for i, signal in signals.items() if signal in (Signal.NEWLY_CACHED, Signal.EXPIRED)]
            assert [row.tobytes() for row in sync.fresh] == [fresh[i] for i in sent]
            taught = recall(client, sync)
            store(client, sync)
            hits = {i: slow.held[i][0] for i, signal in signals.items() if signal == Signal.CACHED}
            assert {i: row.tobytes() for i, row in zip(taught.index.tolist(), taught.value, strict=True)} == {
                i: hits[i] if i in hits else fresh[i] for i in signals
            }
            for table in (server, client):
                held = np.flatnonzero(table.stamp != ABSENT).tolist()
                assert {i: (table.value[i].tobytes(), int(table.stamp[i])) for i in held} == slow.held
            seen.update(signals.values())
    # Of an entry that is deleted when it expires, nothing is left that could be unchanged.
    gone_or_same = Signal.EXPIRED if on_expiry == "delete" else Signal.UNCHANGED
    assert set(seen) == {Signal.CACHED, Signal.NEWLY_CACHED, gone_or_same}
    assert min(seen.values()) > 100


TAUGHT = Method(aggregate=mean(), uplink_bits=1, downlink_bits=1, cache=Delta(Duration(0, "refresh")))


@pytest.mark.parametrize(("missed", "again"), [(0, False), (1, False), (62, False), (63, True), (130, True)])
def test_a_label_that_never_changes_is_sent_again_to_who_was_away_for_more_than_62_rounds(
    missed: int, again: bool
) -> None:
    federation = replace(FEDERATION, clients=2, public_per_round=FEDERATION.public_size)
    town = Town(TAUGHT, federation, say=lambda client, round, index, classes: np.eye(3, dtype=np.float32)[index % 3])
    town.play()
    town.play()
    for _ in range(missed):
        downlinks = town.server.open_round()
        town.jobs = []
        town.deliver({1: downlinks[1]})
        for reply in town.replies():
            town.server.take(*reply)
        town.server.close_round()
    town.open()
    assert not town.resyncs
    assert same_labels(town.jobs[0].teacher, town.jobs[1].teacher)
    assert town.jobs[0].teacher.index.tolist() == list(range(federation.public_size))
    sync = town.server.state.sync
    assert sync is not None and sync.signal is not None
    assert set(sync.signal.tolist()) == {Signal.UNCHANGED}
    assert (town.ledger.round_total("catch_up").size > 0) == again
    assert town.handed.get(1, {})["catch_up"] == 0


def test_a_client_that_was_away_is_sent_exactly_the_held_labels_that_the_server_cannot_know_it_holds() -> None:
    """Against sets of rounds: those a client acknowledged, and those that drew a sample since its label changed."""
    federation = replace(FEDERATION, clients=5, participation=0.4, public_per_round=2)
    method = replace(TAUGHT, cache=Delta(Duration(1, "refresh")))

    def say(client: int, round: int, index: Index, classes: int) -> Values:
        return np.eye(classes, dtype=np.float32)[(index + round // 90) % classes]

    town, rng = Town(method, federation, say=say), np.random.default_rng(0)
    drawn: dict[int, set[int]] = {sample: set() for sample in range(federation.public_size)}
    acknowledged: dict[int, set[int]] = {client: set() for client in range(federation.clients)}
    caught_up = spared = forgotten = 0
    for _ in range(300):
        sync = town.server.state.sync
        held = [] if sync is None else sync.index[sync.held].tolist()
        downlinks = town.server.open_round()
        for client, downlink in downlinks.items():
            remembered = {round for round in acknowledged[client] if round > town.server.state.round - 64}
            lacked = [sample for sample in held if not drawn[sample] & remembered]
            parts = [part for part in map(town.codec.decode, frame.split(downlink)) if isinstance(part, CatchUp)]
            assert [part.labels.index.tolist() for part in parts] == ([lacked] if lacked else [])
            caught_up, spared = caught_up + len(lacked), spared + len(held) - len(lacked)
            forgotten += sum(bool(drawn[sample] & acknowledged[client]) for sample in lacked)
        town.jobs = []
        town.deliver(downlinks)
        assert not town.resyncs
        for client, data in town.replies():
            if rng.random() < 0.8:
                town.server.take(client, data)
                if isinstance(town.codec.decode(data), Uplink):
                    acknowledged[client].add(town.server.state.round)
        if town.server.close_round() is not None:
            sync = town.server.state.sync
            assert sync is not None
            for sample, is_held in zip(sync.index.tolist(), sync.held.tolist(), strict=True):
                drawn[sample] = (drawn[sample] if is_held else set()) | {sync.round}
    assert caught_up > 50
    assert spared > 50
    assert forgotten > 0
