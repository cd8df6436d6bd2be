from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scarlet.errors import MessageError
from scarlet.methods.cfd import CfdConfig, cfd
from scarlet.methods.dsfl import DsflConfig, dsfl
from scarlet.methods.fedavg import FedavgConfig, fedavg
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.protocol.cache import ABSENT, Delta, Duration
from scarlet.protocol.federation import Federation
from scarlet.protocol.method import Method
from scarlet.protocol.schedule import Known, OutOfStep, Rules, Schedule, checksum
from scarlet.protocol.server import Server
from scarlet.protocol.types import Exceptional, History, Index, Labels, Stamps, Sync, Uplink
from scarlet.rng import draw, stream
from scarlet.wire.compact import Compact
from scarlet.wire.ledger import Ledger

from .federation import few_labels

PROFILE = settings(deadline=None, max_examples=60)
FEDERATION = Federation(clients=3, public_size=24, public_per_round=8, classes=3, seed=5)
NOTHING_DROPPED = np.empty(0, np.int64)


def cfd_delta(duration: int) -> Method:
    return cfd(CfdConfig(uplink_bits=2, downlink_bits=2, delta=True, cache_duration=duration))


METHODS: dict[str, Callable[[int], Method]] = {
    "delete": lambda duration: scarlet(ScarletConfig(cache_duration=duration, on_expiry="delete")),
    "refresh": lambda duration: scarlet(ScarletConfig(cache_duration=duration, on_expiry="refresh")),
    "delta": cfd_delta,
    "no cache": lambda duration: dsfl(DsflConfig()),
}
methods = st.sampled_from(sorted(METHODS)).flatmap(
    lambda name: st.integers(0, 6).map(lambda duration: METHODS[name](duration))
)


@dataclass(frozen=True)
class Round:
    """How a round goes: how often it fails first, what share of its samples nobody answers, who hears of it."""

    failures: int
    silent: float
    asked: tuple[int, ...]


rounds = st.builds(
    Round,
    failures=st.sampled_from([0, 0, 0, 1, 2]),
    silent=st.sampled_from([0.0, 0.0, 0.0, 0.3, 1.0]),
    asked=st.sets(st.integers(0, 2)).map(lambda chosen: tuple(sorted(chosen))),
)
histories = st.lists(rounds, min_size=1, max_size=25)


class Truth:
    """A real server that plays rounds, and all stamps that its cache ever had."""

    def __init__(self, method: Method, federation: Federation = FEDERATION) -> None:
        self.rules = Rules(method, federation)
        self.server = Server(method, federation, Compact(2, 2), Ledger())
        self.stamps: list[Stamps] = [self.server.state.cache.stamp.copy()]  # as of the end of each round, from 0
        self.syncs: list[Sync | None] = [None]
        self.rng = np.random.default_rng(0)

    def play(self, failures: int = 0, silent: float = 0.0) -> None:
        server = self.server
        for _ in range(failures):
            server.open_round()
            assert server.close_round() is None
        sender = min(server.open_round())
        request = server.request
        answered = request[self.rng.random(len(request)) >= silent]
        round, attempt = server.state.round + 1, server.state.attempt
        labels = Labels(answered, few_labels(sender, round, answered))
        message = Uplink(round, attempt, sender, labels)
        server.take(sender, server.codec.encode(message, Known(self.rules, request)))
        closed = server.close_round()
        assert closed is not None and closed.answers == 1
        self.stamps.append(server.state.cache.stamp.copy())
        self.syncs.append(server.state.sync)

    def exceptional(self, round: int) -> bool:
        sync = self.syncs[round]
        return sync is not None and (sync.attempt > 0 or len(sync.dropped) > 0)

    def history(self, client: int, applied: int) -> History | None:
        """What the server sends to a client that applied the sync of a round last."""
        progress, round = self.server.state.progress, self.server.state.round + 1
        if progress is None:
            return None
        progress.applied[client] = applied
        found = progress.history(client, round - 2)
        if found is None:
            return History(round, 0, client, round - 2, (), progress.before)
        return History(round, 0, client, *found, None) if found[1] else None

    def before(self, schedule: Schedule, round: int, told: History | None) -> Stamps:
        """What a client with a schedule takes for the stamps as of the end of a round; OutOfStep if it knows better."""
        known = Known(self.rules, schedule=schedule, history=told)
        return known.before(round + 1, checksum(self.stamps[round]))


@PROFILE
@given(methods, histories, st.integers(0, 3))
def test_stamps_that_are_played_are_those_of_the_server(method: Method, history: list[Round], seed: int) -> None:
    truth = Truth(method, replace(FEDERATION, seed=seed))
    stamps = truth.stamps[0].copy()
    for number, each in enumerate(history, 1):
        truth.play(each.failures, each.silent)
        sync = truth.syncs[number]
        assert sync is not None
        played = truth.rules.play(stamps, number, sync.attempt, sync.dropped)
        assert np.array_equal(stamps, truth.stamps[number])
        assert np.array_equal(played.index, sync.index)
        assert np.array_equal(played.dropped, sync.dropped)
        assert (played.signal is None) == (sync.signal is None)
        if sync.signal is not None and played.signal is not None and not isinstance(method.cache, Delta):
            assert np.array_equal(played.signal, sync.signal)


@PROFILE
@given(methods, histories, st.sampled_from([1, 2, 4, 256]))
def test_a_client_that_misses_rounds_has_the_stamps_of_the_server(
    method: Method, history: list[Round], kept: int
) -> None:
    truth = Truth(method)
    clients = [Schedule.empty(FEDERATION.public_size) for _ in range(FEDERATION.clients)]
    with patch("scarlet.protocol.server_state.KEPT_ROUNDS", kept):
        for number, each in enumerate(history, 1):
            truth.play(each.failures, each.silent)
            sync = truth.syncs[number]
            assert sync is not None
            for client in each.asked:
                schedule = clients[client]
                told = truth.history(client, schedule.round)
                for _ in range(2):  # a downlink may come twice
                    before = clients[client].until(truth.rules, number - 1, told)
                    assert np.array_equal(before, truth.stamps[number - 1])
                    stamps = before.copy()
                    truth.rules.play(stamps, number, sync.attempt, sync.dropped)
                    clients[client] = Schedule(stamps, before, number)
                    assert np.array_equal(stamps, truth.server.state.cache.stamp)
                    request = truth.rules.request(stamps, number + 1, 0)
                    index = truth.rules.index(number + 1, 0)
                    asked = method.cache.request(truth.server.state.cache, index, number + 1)
                    assert np.array_equal(request, asked)


@PROFILE
@given(methods, histories, st.data())
def test_a_client_without_a_history_has_the_right_stamps_or_knows_that_it_missed_an_exception_or_is_ahead(
    method: Method, history: list[Round], data: st.DataObject
) -> None:
    truth = Truth(method)
    for each in history:
        truth.play(each.failures, each.silent)
    last = len(history)
    at = data.draw(st.integers(0, last), "the client's round")
    wanted = data.draw(st.integers(0, last), "the round that is asked for")
    schedule = Schedule(truth.stamps[at].copy(), truth.stamps[max(0, at - 1)].copy(), at)
    missed = any(truth.exceptional(round) for round in range(at + 1, wanted + 1))
    try:
        found = truth.before(schedule, wanted, None)
    except OutOfStep:
        assert missed or wanted < at - 1
    else:
        assert wanted >= at - 1
        assert np.array_equal(found, truth.stamps[wanted])
    assert np.array_equal(schedule.stamps, truth.stamps[at])
    assert schedule.round == at


@PROFILE
@given(methods, histories, st.data())
def test_a_client_from_an_old_copy_is_in_step_with_a_history_or_says_that_it_is_not(
    method: Method, history: list[Round], data: st.DataObject
) -> None:
    truth = Truth(method)
    for each in history:
        truth.play(each.failures, each.silent)
    last = len(history)
    at = data.draw(st.integers(0, last), "the copy's round")
    applied = data.draw(st.integers(-1, last), "the round that the server knows of")
    schedule = Schedule(truth.stamps[at].copy(), truth.stamps[max(0, at - 1)].copy(), at)
    told = truth.history(0, applied)
    try:
        found = truth.before(schedule, last - 1, told)
    except OutOfStep:
        assert applied >= 0
        assert any(truth.exceptional(round) for round in range(at + 1, last))
        told = truth.history(0, -1)  # what a client that says so is sent
        found = truth.before(schedule, last - 1, told)
    assert np.array_equal(found, truth.stamps[last - 1])


def test_the_history_of_the_exceptions_is_needed() -> None:
    truth = Truth(scarlet(ScarletConfig(cache_duration=4)))
    truth.play()
    truth.play(failures=1)
    truth.play(silent=0.5)
    truth.play()
    truth.play()
    schedule = Schedule.empty(FEDERATION.public_size)
    without = schedule.until(truth.rules, 4, None)
    told = truth.history(0, 0)
    assert told is not None
    assert [(each.round, each.attempt) for each in told.exceptions] == [(2, 1), (3, 0)]
    assert not np.array_equal(without, truth.stamps[4])
    assert np.array_equal(schedule.until(truth.rules, 4, told), truth.stamps[4])
    half = replace(told, exceptions=told.exceptions[:1])
    assert not np.array_equal(schedule.until(truth.rules, 4, half), truth.stamps[4])


def test_stamps_that_are_handed_out_are_copies() -> None:
    rules = Rules(METHODS["refresh"](3), FEDERATION)
    schedule = Schedule.empty(FEDERATION.public_size)
    given = np.full(FEDERATION.public_size, 3, np.int32)
    told = History(9, 0, 0, 7, (), given)
    for round, history in ((0, None), (-1, None), (4, None), (7, told)):
        schedule.until(rules, round, history)[:] = 99
    assert (schedule.stamps == ABSENT).all() and (schedule.before == ABSENT).all() and (given == 3).all()


def test_a_sync_is_read_by_clients_only() -> None:
    with pytest.raises(MessageError, match="for clients"):
        Known(Rules(METHODS["refresh"](3), FEDERATION)).before(3, 0)


def test_nothing_is_drawn_where_no_labels_are_exchanged() -> None:
    rules = Rules(fedavg(FedavgConfig()), FEDERATION)
    stamps = np.full(FEDERATION.public_size, ABSENT, np.int32)
    assert rules.index(1, 0).tolist() == []
    assert rules.request(stamps, 1, 0).tolist() == []
    assert rules.play(stamps, 1, 0, NOTHING_DROPPED).index.tolist() == []


def test_an_entry_of_age_D_hits_and_one_that_is_older_does_not() -> None:
    rules = Rules(scarlet(ScarletConfig(cache_duration=2)), replace(FEDERATION, public_per_round=24))
    stamps = np.full(24, ABSENT, np.int32)
    rules.play(stamps, 1, 0, np.array([7]))
    assert stamps.tolist() == [1] * 7 + [-1] + [1] * 16
    assert rules.request(stamps, 3, 0).tolist() == [7]
    assert rules.request(stamps, 4, 0).tolist() == list(range(24))
    assert isinstance(rules.method.cache, Duration)


def test_exceptions_of_rounds_outside_those_missed_make_no_difference() -> None:
    truth = Truth(METHODS["refresh"](3))
    for _ in range(5):
        truth.play()
    schedule = Schedule(truth.stamps[2].copy(), truth.stamps[1].copy(), 2)
    odd = tuple(Exceptional(round, 1, NOTHING_DROPPED) for round in (1, 2, 6))
    told = History(6, 0, 0, 0, odd, None)
    assert np.array_equal(schedule.until(truth.rules, 4, told), truth.stamps[4])


# The generator by its definition: Philox-4x64-10 of Salmon et al. (SC 2011).
MULTIPLY = 0xD2E7470EE14C6C93, 0xCA5A826395121157
RAISE = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
WORD = 2**64


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """The four words of a counter under a key."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = divmod(MULTIPLY[0] * c0, WORD)
        high1, low1 = divmod(MULTIPLY[1] * c2, WORD)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + RAISE[0]) % WORD, (k1 + RAISE[1]) % WORD
    return c0, c1, c2, c3


def words(seed: int, round: int, attempt: int, count: int) -> list[int]:
    """The first words of the stream that draws a round's samples; its counter begins with 1."""
    name = f"{seed}/server/-1/{round}/{attempt}/select".encode()
    key = blake2b(name, digest_size=16).digest()
    halves = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    found: list[int] = []
    while len(found) < count:
        found += philox((1 + len(found) // 4, 0, 0, 0), halves)
    return found[:count]


def literal_draw(seed: int, round: int, attempt: int, population: int, size: int) -> list[int]:
    """The indices of the smallest words, the lower first among equals."""
    drawn = words(seed, round, attempt, population)
    return sorted(sorted(range(population), key=lambda i: (drawn[i], i))[:size])


def drawn(seed: int, round: int, attempt: int, population: int, size: int) -> Index:
    return draw(stream(seed, "server", round=round, attempt=attempt, purpose="select"), population, size)


def test_the_generator_gives_the_known_answers_of_its_authors() -> None:
    """From kat_vectors of Random123: philox4x64, 10 rounds."""
    assert philox((0, 0, 0, 0), (0, 0)) == (
        0x16554D9ECA36314C,
        0xDB20FE9D672D0FDC,
        0xD7E772CEE186176B,
        0x7E68B68AEC7BA23B,
    )
    ones = WORD - 1
    assert philox((ones, ones, ones, ones), (ones, ones)) == (
        0x87B092C3013FE90B,
        0x438C3C67BE8D0224,
        0x9CC7D7C69CD777B6,
        0xA09CAEBF594F0BA0,
    )


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**31), st.integers(1, 10**6), st.integers(0, 5), st.integers(1, 400), st.floats(0, 1))
def test_a_draw_is_the_smallest_words_of_the_generator_by_its_definition(
    seed: int, round: int, attempt: int, population: int, share: float
) -> None:
    size = int(share * population)
    expected = literal_draw(seed, round, attempt, population, size)
    assert drawn(seed, round, attempt, population, size).tolist() == expected


FROZEN: list[tuple[tuple[int, int, int, int, int], list[int]]] = [  # seed, round, attempt, population, size
    ((0, 1, 0, 10, 3), [5, 6, 7]),
    ((0, 1, 1, 10, 3), [1, 3, 6]),
    ((0, 2, 0, 10, 3), [3, 4, 8]),
    ((42, 7, 0, 100, 8), [3, 9, 15, 19, 47, 49, 55, 82]),
    ((42, 7, 0, 10000, 6), [1743, 3887, 3997, 4604, 5086, 6524]),
    ((2147483648, 1000, 3, 5, 5), [0, 1, 2, 3, 4]),
    ((1, 1, 0, 7, 0), []),
]


@pytest.mark.parametrize(("name", "expected"), FROZEN)
def test_the_samples_of_a_round_are_frozen(name: tuple[int, int, int, int, int], expected: list[int]) -> None:
    seed, round, attempt, population, size = name
    assert drawn(*name).tolist() == literal_draw(*name) == expected
    federation = replace(FEDERATION, seed=seed, public_size=population, public_per_round=size)
    assert Rules(dsfl(DsflConfig()), federation).index(round, attempt).tolist() == expected
