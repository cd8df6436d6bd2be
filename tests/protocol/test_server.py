from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from scarlet.errors import MessageError
from scarlet.methods.cfd import CfdConfig, cfd
from scarlet.methods.dsfl import DsflConfig, dsfl
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.protocol.cache import ABSENT
from scarlet.protocol.check import entropy
from scarlet.protocol.federation import Federation
from scarlet.protocol.method import Method
from scarlet.protocol.schedule import Known
from scarlet.protocol.server import REPORT_LIMIT, ClosedRound, Server
from scarlet.protocol.types import Broadcast, CatchUp, Index, Labels, Message, Report, Resync, Uplink, Values
from scarlet.wire.frame import SIZE, Frame, unwrap
from scarlet.wire.ledger import COLUMNS, Bytes, Ledger
from scarlet.wire.reference import Reference
from tests.protocol.federation import FEDERATION, METHODS, Reply, Town, entries, memory, same_labels, soft_labels

ROUNDS = 25
CODEC = Reference()
each_method = pytest.mark.parametrize("method", [build() for build in METHODS.values()], ids=METHODS)


def drawing(method: Method, *rounds: list[int]) -> Method:
    """The method with the samples of each round given instead of drawn."""
    left = iter(rounds)
    return replace(method, select=lambda rng, size, count: np.array(next(left), np.int64))


def silent_samples(round: int) -> set[int]:
    """In one round of three nobody knows a third of the samples."""
    return set(range(round % 3, FEDERATION.public_size, 3)) if round % 3 == 0 else set()


@each_method
def test_every_client_is_taught_what_the_server_taught_and_holds_the_same_cache(method: Method) -> None:
    town = Town(method)
    last: ClosedRound | None = None
    reused = dropped = 0
    for round in range(1, ROUNDS + 1):
        held = entries(town.server.state.cache)
        town.open()
        for client, job in zip(town.clients, town.jobs, strict=True):
            assert (job.client, job.round) == (client.number, round)
            assert entries(client.state.cache) == held
            assert len(job.teacher.index) == 0 if last is None else same_labels(job.teacher, last.taught)
        for reply in town.replies(silent_samples(round)):
            town.server.take(*reply)
        last = town.server.close_round()
        assert last is not None
        assert (last.round, last.attempt, last.answers, last.resets) == (round, 0, FEDERATION.clients, 0)
        assert not last.rejections
        assert town.server.state.digest == last.taught.digest()
        reused += round > 1 and last.hit_ratio > 0
        dropped += len(last.taught.index) < FEDERATION.public_per_round
    assert dropped > 3
    assert reused > 15 or method.cache == dsfl(DsflConfig()).cache


PARTIAL = replace(FEDERATION, clients=7, participation=0.5)


@each_method
@pytest.mark.parametrize("federation", [FEDERATION, PARTIAL], ids=["all clients", "half of the clients"])
def test_the_ledger_holds_the_bytes_that_were_handed_over(method: Method, federation: Federation) -> None:
    town = Town(method, federation)
    total = dict.fromkeys(COLUMNS, 0)
    for round in range(1, ROUNDS + 1):
        town.play(silent_samples(round))
        assert town.counted() == town.handed
        for columns in town.handed.values():
            for column, size in columns.items():
                total[column] += size
    assert {column: bytes.size for column, bytes in town.ledger.total.items()} == total
    assert (total["catch_up"] > 0) == (federation is PARTIAL and method.cache != dsfl(DsflConfig()).cache)


@each_method
@pytest.mark.parametrize("participation", [0.01, 0.3, 0.5, 0.99, 1.0])
def test_a_round_asks_and_bills_round_pK_clients_and_nobody_else(method: Method, participation: float) -> None:
    federation = replace(FEDERATION, clients=7, participation=participation)
    town, seen = Town(method, federation), set()
    for _ in range(60):
        downlinks = town.server.open_round()
        assert len(downlinks) == max(1, round(participation * 7))
        assert set(town.ledger.by_client()) == set(downlinks)
        seen |= set(downlinks)
        town.deliver(downlinks)
        for sender, data in town.replies():
            town.server.take(sender, data)
        assert town.server.close_round() is not None
        town.jobs = []
    assert seen == set(range(7))


@each_method
def test_replies_in_another_order_give_the_same_state(method: Method) -> None:
    rng = np.random.default_rng(0)
    in_order, out_of_order = Town(method), Town(method)
    for round in range(1, ROUNDS + 1):
        silent = silent_samples(round)
        first = in_order.play(silent)
        second = out_of_order.play(silent, lambda replies: [replies[i] for i in rng.permutation(len(replies))])
        assert same_labels(first.taught, second.taught)
        assert (first.hit_ratio, first.reports) == (second.hit_ratio, second.reports)
        assert memory(in_order.server) == memory(out_of_order.server)


def literal_mean(round: int, sample: int) -> list[float]:
    rows = [soft_labels(client, round, np.array([sample]))[0] for client in range(FEDERATION.clients)]
    return [float(sum(row[i] for row in rows)) / len(rows) for i in range(FEDERATION.classes)]


def test_scarlet_teaches_the_mean_to_the_power_beta() -> None:
    taught = Town(scarlet(ScarletConfig(beta=1.7))).play().taught
    for sample, row in zip(taught.index.tolist(), taught.value, strict=True):
        powers = [z**1.7 for z in literal_mean(1, sample)]
        np.testing.assert_allclose(row, np.array(powers) / sum(powers), rtol=1e-5)


def test_ds_fl_teaches_the_softmax_of_the_mean_over_temperature() -> None:
    taught = Town(dsfl(DsflConfig(temperature=0.2))).play().taught
    for sample, row in zip(taught.index.tolist(), taught.value, strict=True):
        scores = [math.exp(z / 0.2) for z in literal_mean(1, sample)]
        np.testing.assert_allclose(row, np.array(scores) / sum(scores), rtol=1e-5)


def test_duration_0_and_beta_1_teach_the_plain_mean_of_every_round() -> None:
    town = Town(scarlet(ScarletConfig(beta=1, cache_duration=0)))
    for round in range(1, 6):
        closed = town.play()
        assert closed.hit_ratio == 0
        for sample, row in zip(closed.taught.index.tolist(), closed.taught.value, strict=True):
            np.testing.assert_allclose(row, literal_mean(round, sample), rtol=1e-5)


@pytest.mark.parametrize("on_expiry", ["delete", "refresh"])
def test_a_round_of_hits_alone_asks_for_nothing_and_still_teaches(on_expiry: str) -> None:
    method = scarlet(ScarletConfig(cache_duration=3, on_expiry=on_expiry))  # type: ignore[arg-type]
    town = Town(drawing(method, [1, 5, 9], [1, 5, 9], [2]))
    first, second = town.play(), town.play()
    assert [len(job.request) for job in town.jobs] == [0] * FEDERATION.clients
    assert second.hit_ratio == 1
    assert same_labels(second.taught, first.taught)
    town.open()
    assert all(same_labels(job.teacher, first.taught) for job in town.jobs)


def test_the_hit_ratio_is_the_share_of_the_round_that_was_not_requested() -> None:
    town = Town(drawing(scarlet(ScarletConfig(cache_duration=3)), [0, 1, 2, 3], [1, 2, 3, 4]))
    assert [town.play().hit_ratio, town.play().hit_ratio] == [0, 0.75]


@pytest.mark.parametrize("on_expiry", ["delete", "refresh"])
def test_a_requested_sample_that_nobody_answered_leaves_the_round_and_the_cache(on_expiry: str) -> None:
    method = scarlet(ScarletConfig(cache_duration=1, on_expiry=on_expiry))  # type: ignore[arg-type]
    # Sample 3 is new and unanswered in round 1, stored in round 2, expired and unanswered in round 4.
    town = Town(drawing(method, [1, 3], [3, 7], [0], [3, 5], [3, 5]))
    town.play(silent={3})
    assert town.server.state.cache.stamp[3] == ABSENT
    town.play()
    assert town.server.state.cache.stamp[3] == 2
    town.play()
    assert town.play(silent={3}).taught.index.tolist() == [5]
    assert town.jobs[0].request.tolist() == [3, 5]
    assert town.server.state.cache.stamp[3] == ABSENT
    town.open()
    for client, job in zip(town.clients, town.jobs, strict=True):
        assert job.teacher.index.tolist() == [5]
        assert job.request.tolist() == [3]
        assert client.state.cache.stamp[3] == ABSENT


@each_method
def test_a_round_in_which_nobody_knows_a_sample_teaches_nothing_new_and_the_next_goes_on(method: Method) -> None:
    town = Town(method)
    closed = town.play(silent=range(FEDERATION.public_size))
    assert closed.answers == FEDERATION.clients
    assert len(closed.taught.index) == 0
    assert math.isnan(closed.teacher_entropy)
    assert len(town.play().taught.index) == FEDERATION.public_per_round


def test_the_servers_own_model_learns_what_the_clients_will_be_taught() -> None:
    learned: list[tuple[int, Labels]] = []

    class Learner:
        def learn(self, labels: Labels, round: int) -> None:
            learned.append((round, labels))

    town = Town(METHODS["scarlet, refresh"]())
    town.server.learner = Learner()
    taught = [town.play().taught for _ in range(6)]
    assert [round for round, _ in learned] == [1, 2, 3, 4, 5, 6]
    assert all(same_labels(labels, expected) for (_, labels), expected in zip(learned, taught, strict=True))


def test_reports_are_kept_by_client() -> None:
    assert Town(METHODS["dsfl"]()).play().reports == {
        0: {"loss": 1.0},
        1: {"loss": 0.5},
        2: {"loss": 1 / 3},
        3: {"loss": 0.25},
    }


def uplink(request: Index, value: Values | None = None, *, round: int = 6, attempt: int = 0, client: int = 0) -> bytes:
    value = np.full((len(request), FEDERATION.classes), 1 / 3, np.float32) if value is None else value
    return CODEC.encode(Uplink(round, attempt, client, Labels(request, value)))


def rows(request: Index, *first: float) -> Values:
    """Good soft-labels, but for the last row."""
    value = np.full((len(request), len(first)), 1 / len(first), np.float32)
    value[-1] = first
    return value


BAD: dict[str, tuple[Callable[[Index], bytes], str]] = {
    "the round before": (lambda request: uplink(request, round=5), "wrong round"),
    "the round after": (lambda request: uplink(request, round=7), "wrong round"),
    "another attempt": (lambda request: uplink(request, attempt=1), "wrong round"),
    "an old report": (lambda _: CODEC.encode(Report(5, 0, 0, {})), "wrong round"),
    "a report of another attempt": (lambda _: CODEC.encode(Report(6, 1, 0, {})), "wrong round"),
    "an old resync": (lambda _: CODEC.encode(Resync(5, 0, 0)), "wrong round"),
    "an unrequested sample": (
        lambda request: uplink(np.setdiff1d(np.arange(FEDERATION.public_size), request)[:1]),
        "wrong samples",
    ),
    "one unrequested sample among requested ones": (
        lambda request: uplink(np.append(request[:-1], FEDERATION.public_size)),
        "wrong samples",
    ),
    "too many classes": (lambda request: uplink(request, rows(request, 1, 0, 0, 0)), "wrong shape"),
    "too few classes": (lambda request: uplink(request, rows(request, 1, 0)), "wrong shape"),
    "no classes": (lambda request: uplink(request, np.empty((len(request), 0), np.float32)), "wrong shape"),
    "NaN": (lambda request: uplink(request, rows(request, math.nan, 0.5, 0.5)), "not finite"),
    "infinity": (lambda request: uplink(request, rows(request, math.inf, 0, 0)), "not finite"),
    "minus infinity": (lambda request: uplink(request, rows(request, -math.inf, 1, 0)), "not finite"),
    "a negative entry": (lambda request: uplink(request, rows(request, -0.5, 1, 0.5)), "negative"),
    "a sum above 1": (lambda request: uplink(request, rows(request, 0.5, 0.5, 0.01)), "unnormalised"),
    "a sum below 1": (lambda request: uplink(request, rows(request, 0.5, 0.4, 0.09)), "unnormalised"),
    "a sum beyond all floats": (lambda request: uplink(request, rows(request, 3e38, 3e38, 3e38)), "unnormalised"),
    "zeros": (lambda request: uplink(request, rows(request, 0, 0, 0)), "unnormalised"),
    "another's report": (lambda _: CODEC.encode(Report(6, 0, 1, {"loss": 9})), "unknown client"),
    "another's answer": (lambda request: uplink(request, client=1), "unknown client"),
    "another's resync": (lambda _: CODEC.encode(Resync(6, 0, 1)), "unknown client"),
    "a broadcast": (lambda request: CODEC.encode(Broadcast(6, 0, request, None, bytes(8), bytes(8))), "wrong kind"),
    "a catch-up": (
        lambda request: CODEC.encode(CatchUp(6, 0, 0, True, Labels(request, rows(request, 0, 0, 1)))),
        "wrong kind",
    ),
    "half a message": (lambda request: uplink(request)[:-3], "unreadable"),
    "a changed byte": (lambda request: uplink(request)[:-1] + b"\xff", "unreadable"),
    "two messages in one": (lambda request: uplink(request) + CODEC.encode(Report(6, 0, 0, {})), "unreadable"),
    "no bytes": (lambda _: b"", "unreadable"),
    "as much junk as may be sent": (lambda _: bytes(REPORT_LIMIT), "unreadable"),
    "a byte more than may be sent": (lambda _: bytes(REPORT_LIMIT + 1), "too large"),
    "a report that is too long": (lambda _: CODEC.encode(Report(6, 0, 0, {"x" * REPORT_LIMIT: 1.0})), "too large"),
}


def pair(method: Method, rounds: int, federation: Federation = FEDERATION) -> tuple[Town, Town]:
    """Two towns with the same past."""
    towns = Town(method, federation), Town(method, federation)
    for _ in range(rounds):
        for town in towns:
            town.play()
    assert memory(towns[0].server) == memory(towns[1].server)
    return towns


def take_bad(town: Town, sender: int, *bad: bytes) -> None:
    """Messages that are counted as rejected, byte by byte, and change nothing else."""
    for data in bad:
        before, counted = memory(town.server), town.ledger.round_total("rejected")
        town.server.take(sender, data)
        assert memory(town.server) == before
        assert town.server.resets() == {}
        assert town.ledger.round_total("rejected") == counted + Bytes(payload=0, frame=len(data))


def assert_same(town: Town, closed: ClosedRound, undisturbed: Town, expected: ClosedRound) -> None:
    assert same_labels(closed.taught, expected.taught)
    assert (closed.reports, closed.answers, closed.resets) == (expected.reports, expected.answers, expected.resets)
    assert memory(town.server) == memory(undisturbed.server)
    assert not expected.rejections


@pytest.mark.parametrize(("make", "reason"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("mends", [True, False], ids=["then the honest one", "then silence"])
def test_a_bad_message_is_counted_by_its_reason_and_changes_nothing_else(
    make: Callable[[Index], bytes], reason: str, mends: bool
) -> None:
    """Client 0 sends it, and then either its honest answer and report, or nothing more."""
    town, undisturbed = pair(METHODS["scarlet, delete"](), 5)

    def honest(replies: list[Reply]) -> list[Reply]:
        return [reply for reply in replies if mends or reply[0] != 0]

    def disturb(replies: list[Reply]) -> list[Reply]:
        assert 1 < len(town.jobs[0].request) < FEDERATION.public_per_round
        take_bad(town, 0, make(town.jobs[0].request))
        return honest(replies)

    disturbed, expected = town.play(arrange=disturb), undisturbed.play(arrange=honest)
    assert disturbed.rejections == {reason: 1}
    assert_same(town, disturbed, undisturbed, expected)
    assert_same(town, town.play(), undisturbed, undisturbed.play())


def test_many_bad_messages_in_a_round_are_each_counted() -> None:
    town, undisturbed = pair(METHODS["scarlet, refresh"](), 5)

    def disturb(replies: list[Reply]) -> list[Reply]:
        for make, _ in BAD.values():
            take_bad(town, 0, make(town.jobs[0].request))
        return replies

    closed = town.play(arrange=disturb)
    assert closed.rejections == Counter(reason for _, reason in BAD.values())
    assert_same(town, closed, undisturbed, undisturbed.play())


def test_a_second_answer_is_counted_and_changes_nothing_else() -> None:
    town, undisturbed = pair(METHODS["dsfl"](), 0)

    def disturb(replies: list[Reply]) -> list[Reply]:
        town.server.take(*replies[0])
        take_bad(town, 0, replies[0][1], uplink(town.jobs[0].request, round=1))  # the same bytes, and others
        return replies[1:]

    closed = town.play(arrange=disturb)
    assert closed.rejections == {"second answer": 2}
    assert_same(town, closed, undisturbed, undisturbed.play())


def test_whoever_was_not_asked_is_counted_and_changes_nothing_else() -> None:
    town, undisturbed = pair(METHODS["scarlet, delete"](), 5, PARTIAL)

    def disturb(replies: list[Reply]) -> list[Reply]:
        idle = sorted(set(range(PARTIAL.clients)) - {job.client for job in town.jobs})
        for sender in (*idle, PARTIAL.clients, 10**9, -1):
            take_bad(town, sender, uplink(town.jobs[0].request, client=max(sender, 0)))
            take_bad(town, sender, CODEC.encode(Report(6, 0, max(sender, 0), {})), b"")
            take_bad(town, sender, CODEC.encode(Resync(6, 0, max(sender, 0))), bytes(10**6))
        return replies

    closed = town.play(arrange=disturb)
    assert closed.rejections == {"unknown client": 5 * (PARTIAL.clients - PARTIAL.asked + 3)}
    assert_same(town, closed, undisturbed, undisturbed.play())


def test_a_message_larger_than_any_answer_is_refused_before_it_is_decoded() -> None:
    class Watched(Reference):
        longest = 0

        def decode(self, data: bytes | Frame, known: Known | None = None) -> Message:
            self.longest = max(self.longest, len(unwrap(data).body))
            return super().decode(data, known)

    federation = replace(FEDERATION, public_size=600, public_per_round=500)
    codec = Watched()
    server = Server(METHODS["dsfl"](), federation, codec, Ledger())
    broadcast = CODEC.decode(server.open_round()[0])
    assert isinstance(broadcast, Broadcast)
    largest = uplink(broadcast.request, round=1)
    assert len(largest) > REPORT_LIMIT
    server.take(0, largest + b"x")
    server.take(0, bytes(10**6))
    assert codec.longest == 0
    server.take(0, largest)
    assert codec.longest == len(largest) - SIZE
    closed = server.close_round()
    assert closed is not None
    assert (closed.answers, closed.rejections) == (1, {"too large": 2})


def test_a_client_may_answer_a_part_of_the_request_or_nothing() -> None:
    town = Town(drawing(METHODS["dsfl"](), [2, 3, 4]))
    town.open()
    request = town.jobs[0].request
    town.server.take(0, uplink(request[:1], round=1))
    town.server.take(1, uplink(request[1:1], round=1, client=1))
    closed = town.server.close_round()
    assert closed is not None
    assert closed.taught.index.tolist() == [2]
    np.testing.assert_allclose(closed.taught.value, np.full((1, 3), 1 / 3), rtol=1e-6)


def test_the_rounding_of_a_float32_softmax_over_many_classes_is_no_reason_to_refuse() -> None:
    classes = 1000
    town = Town(METHODS["dsfl"](), replace(FEDERATION, classes=classes))
    town.open()
    scores = np.random.default_rng(0).normal(0, 5, (len(town.jobs[0].request), classes)).astype(np.float32)
    value = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True, dtype=np.float32)
    town.server.take(0, uplink(town.jobs[0].request, value, round=1))
    closed = town.server.close_round()
    assert closed is not None
    assert len(closed.taught.index) == FEDERATION.public_per_round


def test_taking_or_closing_without_an_open_round_is_a_programming_error() -> None:
    server = Server(METHODS["dsfl"](), FEDERATION, CODEC, Ledger())
    with pytest.raises(RuntimeError, match="no round is open"):
        server.take(0, uplink(np.array([1]), round=1))
    with pytest.raises(RuntimeError, match="no round is open"):
        server.close_round()
    with pytest.raises(RuntimeError, match="no round is open"):
        server.resets()


def test_entropy_is_0_of_a_point_mass_and_ln_N_of_a_uniform_label() -> None:
    value = np.array([[1, 0, 0, 0], [0.25] * 4, [0.5, 0.5, 0, 0]], np.float32)
    np.testing.assert_allclose(entropy(value), [0, math.log(4), math.log(2)])
    closed = ClosedRound(1, 0, Labels(np.arange(3), value), 0.0, 1, 0, {}, {})
    assert closed.teacher_entropy == pytest.approx(math.log(2))


def test_a_servers_model_that_has_diverged_is_not_taught() -> None:
    class Diverged:
        def learn(self, labels: Labels, round: int) -> None: ...

        def predict(self, index: Index) -> Values:
            return np.full((len(index), FEDERATION.classes), np.nan, np.float32)

        def parameters(self) -> Values:
            return np.zeros(1, np.float32)

        def load(self, parameters: Values) -> None: ...

    server = Server(cfd(CfdConfig(uplink_bits=32)), FEDERATION, CODEC, Ledger(), Diverged())
    broadcast = CODEC.decode(server.open_round()[0])
    assert isinstance(broadcast, Broadcast)
    server.take(0, uplink(broadcast.request, round=1))
    with pytest.raises(MessageError, match=r"^the server's model sends a soft-label with NaN or infinity"):
        server.close_round()
