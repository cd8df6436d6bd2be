from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scarlet.arrays import Labels
from scarlet.errors import MessageError
from scarlet.methods.cfd import CfdConfig, cfd
from scarlet.methods.dsfl import DsflConfig, dsfl
from scarlet.methods.fedavg import FedavgConfig, fedavg
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.cache import ABSENT, OutOfStep
from scarlet.protocol.codec import Context
from scarlet.protocol.codec_registry import codec
from scarlet.protocol.messages import Exceptional, History, Stamps, Sync
from scarlet.protocol.method import Method
from scarlet.protocol.server import Server
from scarlet.protocol.stamps import Draws, StampHistory, StampReplay, checksum, no_stamps
from scarlet.protocol.unchanged_labels import Unchanged
from scarlet.protocol.uplink.delta import DeltaAnswer, DeltaLabels
from scarlet.protocol.uplink.labels import Answer
from scarlet.wire.ledger import Ledger
from tests.protocol.federation import few_labels

PROFILE = settings(deadline=None, max_examples=60)
AGREEMENT = Agreement(clients=3, public_size=24, public_per_round=8, classes=3, seed=5)
NOTHING_DROPPED = np.empty(0, np.int64)


def cfd_delta(duration: int) -> Method:
    return cfd(CfdConfig(uplink_bits=2, downlink_bits=2, delta=True, cache_duration=duration))


def draws(method: Method, agreement: Agreement = AGREEMENT) -> Draws:
    return Draws(agreement, method.select, method.downlink.policy)


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

    def __init__(self, method: Method, agreement: Agreement = AGREEMENT) -> None:
        method = replace(method, uplink_bits=2, downlink_bits=2)
        self.draws = draws(method, agreement)
        self.server = Server(method, agreement, codec("compact", method, agreement), Ledger())
        self.stamps: list[Stamps] = [no_stamps(agreement.public_size)]  # as of the end of each round, from 0
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
        kind = DeltaAnswer if isinstance(server.method.uplink, DeltaLabels) else Answer
        server.take(sender, server.codec.encode(kind(round, attempt, sender, labels), Context(request)))
        closed = server.close_round()
        assert closed is not None and closed.answers == 1
        self.stamps.append(server.state.downlink.cache.stamp.copy())
        self.syncs.append(server.state.downlink.sync)

    def exceptional(self, round: int) -> bool:
        sync = self.syncs[round]
        return sync is not None and (sync.attempt > 0 or len(sync.dropped) > 0)

    def history(self, client: int, applied: int) -> History | None:
        """What the server sends to a client that applied the sync of a round last."""
        stamps: StampHistory | None = self.server.state.downlink.stamps
        round = self.server.state.round + 1
        if stamps is None:
            return None
        stamps.applied[client] = applied
        needed = stamps.needed(client, round - 2)
        if needed is None:
            return History(round, 0, client, round - 2, (), stamps.before)
        return History(round, 0, client, *needed, None) if needed[1] else None

    def before(self, replay: StampReplay, round: int, told: History | None) -> Stamps:
        """What a client takes for the stamps as of the end of a round; OutOfStep if it knows better."""
        context = Context(replay=replay, history=told)
        return context.before(self.draws, round + 1, checksum(self.stamps[round]))


@PROFILE
@given(methods, histories, st.integers(0, 3))
def test_stamps_that_are_played_are_those_of_the_server(method: Method, history: list[Round], seed: int) -> None:
    truth = Truth(method, replace(AGREEMENT, seed=seed))
    stamps = truth.stamps[0].copy()
    for number, each in enumerate(history, 1):
        truth.play(each.failures, each.silent)
        sync = truth.syncs[number]
        assert sync is not None
        played = truth.draws.play(stamps, number, sync.attempt, sync.dropped)
        assert np.array_equal(stamps, truth.stamps[number])
        assert np.array_equal(played.index, sync.index)
        assert np.array_equal(played.dropped, sync.dropped)
        assert (played.signal is None) == (sync.signal is None)
        if sync.signal is not None and played.signal is not None and not isinstance(method.downlink.policy, Unchanged):
            assert np.array_equal(played.signal, sync.signal)


@PROFILE
@given(methods, histories, st.sampled_from([1, 2, 4, 256]))
def test_a_client_that_misses_rounds_has_the_stamps_of_the_server(
    method: Method, history: list[Round], kept: int
) -> None:
    truth = Truth(method)
    clients = [StampReplay.empty(AGREEMENT.public_size) for _ in range(AGREEMENT.clients)]
    with patch("scarlet.protocol.stamps.KEPT_ROUNDS", kept):
        for number, each in enumerate(history, 1):
            truth.play(each.failures, each.silent)
            sync = truth.syncs[number]
            assert sync is not None
            for client in each.asked:
                replay = clients[client]
                told = truth.history(client, replay.round)
                for _ in range(2):  # a downlink may come twice
                    before = clients[client].until(truth.draws, number - 1, told)
                    assert np.array_equal(before, truth.stamps[number - 1])
                    stamps = before.copy()
                    truth.draws.play(stamps, number, sync.attempt, sync.dropped)
                    clients[client] = StampReplay(stamps, before, number)
                    assert np.array_equal(stamps, truth.server.state.downlink.cache.stamp)
                    request = truth.draws.request(stamps, number + 1, 0)
                    index = truth.draws.index(number + 1, 0)
                    asked = method.downlink.policy.request(truth.server.state.downlink.cache, index, number + 1)
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
    replay = StampReplay(truth.stamps[at].copy(), truth.stamps[max(0, at - 1)].copy(), at)
    missed = any(truth.exceptional(round) for round in range(at + 1, wanted + 1))
    try:
        found = truth.before(replay, wanted, None)
    except OutOfStep:
        assert missed or wanted < at - 1
    else:
        assert wanted >= at - 1
        assert np.array_equal(found, truth.stamps[wanted])
    assert np.array_equal(replay.stamps, truth.stamps[at])
    assert replay.round == at


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
    replay = StampReplay(truth.stamps[at].copy(), truth.stamps[max(0, at - 1)].copy(), at)
    told = truth.history(0, applied)
    try:
        found = truth.before(replay, last - 1, told)
    except OutOfStep:
        assert applied >= 0
        assert any(truth.exceptional(round) for round in range(at + 1, last))
        told = truth.history(0, -1)  # what a client that says so is sent
        found = truth.before(replay, last - 1, told)
    assert np.array_equal(found, truth.stamps[last - 1])


def test_the_history_of_the_exceptions_is_needed() -> None:
    truth = Truth(scarlet(ScarletConfig(cache_duration=4)))
    truth.play()
    truth.play(failures=1)
    truth.play(silent=0.5)
    truth.play()
    truth.play()
    replay = StampReplay.empty(AGREEMENT.public_size)
    without = replay.until(truth.draws, 4, None)
    told = truth.history(0, 0)
    assert told is not None
    assert [(each.round, each.attempt) for each in told.exceptions] == [(2, 1), (3, 0)]
    assert not np.array_equal(without, truth.stamps[4])
    assert np.array_equal(replay.until(truth.draws, 4, told), truth.stamps[4])
    half = replace(told, exceptions=told.exceptions[:1])
    assert not np.array_equal(replay.until(truth.draws, 4, half), truth.stamps[4])


def test_stamps_that_are_handed_out_are_copies() -> None:
    refresh = draws(METHODS["refresh"](3))
    replay = StampReplay.empty(AGREEMENT.public_size)
    given = np.full(AGREEMENT.public_size, 3, np.int32)
    told = History(9, 0, 0, 7, (), given)
    for round, history in ((0, None), (-1, None), (4, None), (7, told)):
        replay.until(refresh, round, history)[:] = 99
    assert (replay.stamps == ABSENT).all() and (replay.before == ABSENT).all() and (given == 3).all()


def test_a_sync_is_read_by_clients_only() -> None:
    with pytest.raises(MessageError, match="for clients"):
        Context().before(draws(METHODS["refresh"](3)), 3, 0)


def test_nothing_is_drawn_where_no_labels_are_exchanged() -> None:
    none, stamps = draws(fedavg(FedavgConfig())), no_stamps(AGREEMENT.public_size)
    assert none.index(1, 0).tolist() == []
    assert none.request(stamps, 1, 0).tolist() == []
    assert none.play(stamps, 1, 0, NOTHING_DROPPED).index.tolist() == []


def test_an_entry_of_age_D_hits_and_one_that_is_older_does_not() -> None:
    every = draws(scarlet(ScarletConfig(cache_duration=2)), replace(AGREEMENT, public_per_round=24))
    stamps = no_stamps(24)
    every.play(stamps, 1, 0, np.array([7]))
    assert stamps.tolist() == [1] * 7 + [-1] + [1] * 16
    assert every.request(stamps, 3, 0).tolist() == [7]
    assert every.request(stamps, 4, 0).tolist() == list(range(24))


def test_exceptions_of_rounds_outside_those_missed_make_no_difference() -> None:
    truth = Truth(METHODS["refresh"](3))
    for _ in range(5):
        truth.play()
    replay = StampReplay(truth.stamps[2].copy(), truth.stamps[1].copy(), 2)
    odd = tuple(Exceptional(round, 1, NOTHING_DROPPED) for round in (1, 2, 6))
    told = History(6, 0, 0, 0, odd, None)
    assert np.array_equal(replay.until(truth.draws, 4, told), truth.stamps[4])
