from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest

from scarlet.arrays import Index, Labels, Values
from scarlet.errors import MessageError
from scarlet.methods.cfd import CfdConfig, cfd
from scarlet.methods.dsfl import DsflConfig, dsfl
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.protocol.cache import ABSENT, OnExpiry
from scarlet.protocol.method import Method
from scarlet.protocol.server import ALL_CLIENTS, ClosedRound, Participation
from scarlet.wire.ledger import COLUMNS
from tests.protocol.federation import (
    AGREEMENT,
    METHODS,
    Federation,
    Table,
    drawing,
    entries,
    memory,
    same_labels,
    soft_labels,
)

ROUNDS = 25
SEVEN = replace(AGREEMENT, clients=7)
each_method = pytest.mark.parametrize("method", [build() for build in METHODS.values()], ids=METHODS)
each_mode = pytest.mark.parametrize("on_expiry", ["delete", "refresh"])


def silent_samples(round: int) -> set[int]:
    """In one round of three nobody knows a third of the samples."""
    return set(range(round % 3, AGREEMENT.public_size, 3)) if round % 3 == 0 else set()


@each_method
def test_every_client_is_taught_what_the_server_taught_and_holds_the_same_cache(method: Method) -> None:
    federation = Federation(method)
    last: ClosedRound | None = None
    reused = dropped = 0
    for round in range(1, ROUNDS + 1):
        held = entries(federation.server.state.downlink.cache)
        federation.open()
        for client, job in zip(federation.clients, federation.jobs, strict=True):
            assert (job.client, job.round) == (client.number, round)
            assert entries(client.state.downlink.cache) == held
            assert len(job.teacher.index) == 0 if last is None else same_labels(job.teacher, last.taught)
        federation.take(federation.replies(silent_samples(round)))
        last = federation.close()
        assert (last.round, last.attempt, last.answers, last.resets) == (round, 0, AGREEMENT.clients, 0)
        assert not last.rejections
        assert federation.server.state.downlink.digest == last.taught.digest()
        reused += round > 1 and last.hit_ratio > 0
        dropped += len(last.taught.index) < AGREEMENT.public_per_round
    assert dropped > 3
    assert reused > 15 or not method.downlink.policy.caches


@each_method
@pytest.mark.parametrize("share", [1.0, 0.5], ids=["all clients", "half of the clients"])
@pytest.mark.parametrize("coding", ["reference", "compact"])
def test_the_ledger_holds_the_bytes_that_were_handed_over(method: Method, share: float, coding: str) -> None:
    federation = Federation(method, SEVEN, Participation(share), coding=coding)
    total = dict.fromkeys(COLUMNS, 0)
    for round in range(1, ROUNDS + 1):
        federation.play(silent_samples(round))
        assert federation.counted() == federation.handed
        for columns in federation.handed.values():
            for column, size in columns.items():
                total[column] += size
    assert {column: bytes.size for column, bytes in federation.ledger.total.items()} == total
    assert (total["catch_up"] > 0) == (share < 1 and method.downlink.policy.caches)


@each_method
@pytest.mark.parametrize("share", [0.01, 0.3, 0.5, 0.99, 1.0])
def test_a_round_asks_and_bills_round_pK_clients_and_nobody_else(method: Method, share: float) -> None:
    federation, seen = Federation(method, SEVEN, Participation(share)), set()
    for _ in range(60):
        downlinks = federation.server.open_round()
        assert len(downlinks) == max(1, round(share * 7)) == federation.asked
        assert set(federation.ledger.by_client()) == set(downlinks)
        seen |= set(downlinks)
        federation.jobs = []
        federation.deliver(downlinks)
        federation.take(federation.replies())
        federation.close()
    assert seen == set(range(7))


@each_method
@pytest.mark.parametrize("available", [range(7), [6, 1, 3, 0], [2, 5], [4], []])
def test_clients_are_drawn_among_those_that_are_available(method: Method, available: Collection[int]) -> None:
    federation, seen = Federation(method, SEVEN, Participation(0.4)), set()
    for _ in range(30):
        downlinks = federation.server.open_round(available)
        assert len(downlinks) == min(3, len(available))
        seen |= set(downlinks)
        federation.jobs = []
        federation.deliver(downlinks)
        federation.take(federation.replies())
        assert (federation.server.close_round() is None) == (not available)
    assert seen == set(available)


def test_that_all_are_available_goes_without_saying() -> None:
    one, other = (Federation(METHODS["dsfl"](), SEVEN, Participation(0.4)).server for _ in range(2))
    assert one.open_round() == other.open_round(range(7))


@each_method
def test_replies_in_another_order_give_the_same_state(method: Method) -> None:
    rng = np.random.default_rng(0)
    in_order, out_of_order = Federation(method), Federation(method)
    for round in range(1, ROUNDS + 1):
        silent = silent_samples(round)
        first = in_order.play(silent)
        second = out_of_order.play(silent, lambda replies: [replies[i] for i in rng.permutation(len(replies))])
        assert same_labels(first.taught, second.taught)
        assert (first.hit_ratio, first.reports) == (second.hit_ratio, second.reports)
        assert memory(in_order.server) == memory(out_of_order.server)


def literal_mean(round: int, sample: int) -> list[float]:
    rows = [soft_labels(client, round, np.array([sample]))[0] for client in range(AGREEMENT.clients)]
    return [float(sum(row[i] for row in rows)) / len(rows) for i in range(AGREEMENT.classes)]


def test_scarlet_teaches_the_mean_to_the_power_beta() -> None:
    taught = Federation(scarlet(ScarletConfig(beta=1.7))).play().taught
    for sample, row in zip(taught.index.tolist(), taught.value, strict=True):
        powers = [z**1.7 for z in literal_mean(1, sample)]
        np.testing.assert_allclose(row, np.array(powers) / sum(powers), rtol=1e-5)


def test_ds_fl_teaches_the_softmax_of_the_mean_over_temperature() -> None:
    taught = Federation(dsfl(DsflConfig(temperature=0.2))).play().taught
    for sample, row in zip(taught.index.tolist(), taught.value, strict=True):
        scores = [math.exp(z / 0.2) for z in literal_mean(1, sample)]
        np.testing.assert_allclose(row, np.array(scores) / sum(scores), rtol=1e-5)


def test_duration_0_and_beta_1_teach_the_plain_mean_of_every_round() -> None:
    federation = Federation(scarlet(ScarletConfig(beta=1, cache_duration=0)))
    for round in range(1, 6):
        closed = federation.play()
        assert closed.hit_ratio == 0
        for sample, row in zip(closed.taught.index.tolist(), closed.taught.value, strict=True):
            np.testing.assert_allclose(row, literal_mean(round, sample), rtol=1e-5)


@each_mode
def test_a_round_of_hits_alone_asks_for_nothing_and_still_teaches(on_expiry: OnExpiry) -> None:
    method = scarlet(ScarletConfig(cache_duration=3, on_expiry=on_expiry))
    federation = Federation(drawing(method, [1, 5, 9], [1, 5, 9], [2]))
    first, second = federation.play(), federation.play()
    assert [len(job.request) for job in federation.jobs] == [0] * AGREEMENT.clients
    assert second.hit_ratio == 1
    assert same_labels(second.taught, first.taught)
    federation.open()
    assert all(same_labels(job.teacher, first.taught) for job in federation.jobs)


def test_the_hit_ratio_is_the_share_of_the_round_that_was_not_requested() -> None:
    federation = Federation(drawing(scarlet(ScarletConfig(cache_duration=3)), [0, 1, 2, 3], [1, 2, 3, 4]))
    assert [federation.play().hit_ratio, federation.play().hit_ratio] == [0, 0.75]


@each_mode
def test_a_requested_sample_that_nobody_answered_leaves_the_round_and_the_cache(on_expiry: OnExpiry) -> None:
    method = scarlet(ScarletConfig(cache_duration=1, on_expiry=on_expiry))
    # Sample 3 is new and unanswered in round 1, stored in round 2, expired and unanswered in round 4.
    federation = Federation(drawing(method, [1, 3], [3, 7], [0], [3, 5], [3, 5]))
    cache = federation.server.state.downlink.cache
    federation.play(silent={3})
    assert cache.stamp[3] == ABSENT
    federation.play()
    assert cache.stamp[3] == 2
    federation.play()
    assert federation.play(silent={3}).taught.index.tolist() == [5]
    assert federation.jobs[0].request.tolist() == [3, 5]
    assert cache.stamp[3] == ABSENT
    federation.open()
    for client, job in zip(federation.clients, federation.jobs, strict=True):
        assert job.teacher.index.tolist() == [5]
        assert job.request.tolist() == [3]
        assert client.state.downlink.cache.stamp[3] == ABSENT


@each_method
def test_a_round_in_which_nobody_knows_a_sample_teaches_nothing_new_and_the_next_goes_on(method: Method) -> None:
    federation = Federation(method)
    closed = federation.play(silent=range(AGREEMENT.public_size))
    assert closed.answers == AGREEMENT.clients
    assert len(closed.taught.index) == 0
    assert math.isnan(closed.teacher_entropy)
    assert len(federation.play().taught.index) == AGREEMENT.public_per_round


def test_the_servers_own_model_learns_what_the_clients_will_be_taught() -> None:
    learned: list[tuple[int, Labels]] = []

    class Learner(Table):
        def learn(self, labels: Labels, round: int) -> None:
            learned.append((round, labels))

    federation = Federation(METHODS["scarlet, refresh"](), learner=Learner())
    taught = [federation.play().taught for _ in range(6)]
    assert [round for round, _ in learned] == [1, 2, 3, 4, 5, 6]
    assert all(same_labels(labels, expected) for (_, labels), expected in zip(learned, taught, strict=True))


def test_reports_are_kept_by_client() -> None:
    assert Federation(METHODS["dsfl"]()).play().reports == {
        0: {"loss": 1.0},
        1: {"loss": 0.5},
        2: {"loss": 1 / 3},
        3: {"loss": 0.25},
    }


def test_a_rejected_answer_has_no_part_in_the_beta_that_the_server_chooses() -> None:
    def some_nan(client: int, round: int, index: Index, classes: int) -> Values:
        return soft_labels(client, round, index, classes) * (np.float32("nan") if client == 2 else 1)

    method = METHODS["scarlet, adaptive"]()
    broken, others = Federation(method, say=some_nan), Federation(method)
    closed = broken.play()
    assert closed.rejections == {"not finite": 1}
    others.open()
    others.take([reply for reply in others.replies() if reply[0] != 2])
    beta = others.close().beta
    assert closed.beta == beta and beta is not None and 1 < beta < 8
    assert Federation(method).play().beta != beta
    assert Federation(METHODS["scarlet, refresh"]()).play().beta == 1.5
    assert Federation(METHODS["dsfl"]()).play().beta is None


def test_the_teachers_entropy_is_the_mean_over_its_labels() -> None:
    value = np.array([[1, 0, 0, 0], [0.25] * 4, [0.5, 0.5, 0, 0]], np.float32)
    closed = ClosedRound(1, 0, Labels(np.arange(3), value), 0.0, 1, 0, {}, {})
    assert closed.teacher_entropy == pytest.approx(math.log(2))


def test_a_servers_model_that_has_diverged_is_not_taught() -> None:
    class Diverged(Table):
        def predict(self, index: Index) -> Values:
            return np.full((len(index), AGREEMENT.classes), np.nan, np.float32)

    federation = Federation(cfd(CfdConfig(uplink_bits=32)), participation=ALL_CLIENTS, learner=Diverged())
    with pytest.raises(MessageError, match=r"^the server's model sends a soft-label with NaN or infinity"):
        federation.play()


def test_taking_or_closing_without_an_open_round_is_a_programming_error() -> None:
    federation = Federation(METHODS["dsfl"]())
    server = federation.server
    for step in (lambda: server.take(0, b""), server.close_round, server.resets, lambda: server.request):
        with pytest.raises(RuntimeError, match="no round is open"):
            step()
    federation.play()
    with pytest.raises(RuntimeError, match="no round is open"):
        server.close_round()
