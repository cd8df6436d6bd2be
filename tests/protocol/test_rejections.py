"""A message that breaks a rule is counted by its reason, byte by byte, and changes nothing else."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from scarlet.arrays import Index, Labels, Values
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.codec_registry import codec
from scarlet.protocol.messages import Broadcast, CatchUp, Report, Resync
from scarlet.protocol.method import Method
from scarlet.protocol.server import ALL_CLIENTS, REPORT_LIMIT, ClosedRound, Participation, Server
from scarlet.protocol.uplink.labels import Answer
from scarlet.protocol.uplink.weights import Parameters, Weights
from scarlet.wire import frame
from scarlet.wire.body import Body
from scarlet.wire.frame import SIZE
from scarlet.wire.ledger import Bytes, Ledger
from tests.protocol.federation import AGREEMENT, METHODS, Federation, Reply, drawing, memory, same_labels

CODEC = codec("reference", METHODS["dsfl"](), AGREEMENT)
SEVEN = replace(AGREEMENT, clients=7)
HALF = Participation(0.5)


def answer(request: Index, value: Values | None = None, *, round: int = 6, attempt: int = 0, client: int = 0) -> bytes:
    value = np.full((len(request), AGREEMENT.classes), 1 / 3, np.float32) if value is None else value
    return CODEC.encode(Answer(round, attempt, client, Labels(request, value)))


def rows(request: Index, *first: float) -> Values:
    """Good soft-labels, but for the last row."""
    value = np.full((len(request), len(first)), 1 / len(first), np.float32)
    value[-1] = first
    return value


def of_kind(kind: int) -> Callable[[Index], bytes]:
    """A sound answer, said to be of another kind."""
    return lambda request: frame.wrap(kind, 6, 0, answer(request)[SIZE:])


BAD: dict[str, tuple[Callable[[Index], bytes], str]] = {
    "the round before": (lambda request: answer(request, round=5), "wrong round"),
    "the round after": (lambda request: answer(request, round=7), "wrong round"),
    "another attempt": (lambda request: answer(request, attempt=1), "wrong round"),
    "an old report": (lambda _: CODEC.encode(Report(5, 0, 0, {})), "wrong round"),
    "a report of another attempt": (lambda _: CODEC.encode(Report(6, 1, 0, {})), "wrong round"),
    "an old resync": (lambda _: CODEC.encode(Resync(5, 0, 0)), "wrong round"),
    "an unrequested sample": (
        lambda request: answer(np.setdiff1d(np.arange(AGREEMENT.public_size), request)[:1]),
        "wrong samples",
    ),
    "one unrequested sample among requested ones": (
        lambda request: answer(np.append(request[:-1], AGREEMENT.public_size)),
        "wrong samples",
    ),
    "too many classes": (lambda request: answer(request, rows(request, 1, 0, 0, 0)), "wrong shape"),
    "too few classes": (lambda request: answer(request, rows(request, 1, 0)), "wrong shape"),
    "no classes": (lambda request: answer(request, np.empty((len(request), 0), np.float32)), "wrong shape"),
    "NaN": (lambda request: answer(request, rows(request, math.nan, 0.5, 0.5)), "not finite"),
    "infinity": (lambda request: answer(request, rows(request, math.inf, 0, 0)), "not finite"),
    "minus infinity": (lambda request: answer(request, rows(request, -math.inf, 1, 0)), "not finite"),
    "a negative entry": (lambda request: answer(request, rows(request, -0.5, 1, 0.5)), "negative"),
    "a sum above 1": (lambda request: answer(request, rows(request, 0.5, 0.5, 0.01)), "unnormalised"),
    "a sum below 1": (lambda request: answer(request, rows(request, 0.5, 0.4, 0.09)), "unnormalised"),
    "a sum beyond all floats": (lambda request: answer(request, rows(request, 3e38, 3e38, 3e38)), "unnormalised"),
    "zeros": (lambda request: answer(request, rows(request, 0, 0, 0)), "unnormalised"),
    "another's report": (lambda _: CODEC.encode(Report(6, 0, 1, {"loss": 9})), "unknown client"),
    "another's answer": (lambda request: answer(request, client=1), "unknown client"),
    "another's resync": (lambda _: CODEC.encode(Resync(6, 0, 1)), "unknown client"),
    "an accuracy above 1": (lambda _: CODEC.encode(Report(6, 0, 0, {"accuracy": 1.5})), "wrong report"),
    "an accuracy below 0": (lambda _: CODEC.encode(Report(6, 0, 0, {"accuracy": -0.1})), "wrong report"),
    "a broadcast": (lambda request: CODEC.encode(Broadcast(6, 0, request, None, bytes(8), bytes(8))), "wrong kind"),
    "a catch-up": (
        lambda request: CODEC.encode(CatchUp(6, 0, 0, True, Labels(request, rows(request, 0, 0, 1)))),
        "wrong kind",
    ),
    "what another method's server sends": (of_kind(7), "wrong kind"),
    "a kind that there is not": (of_kind(200), "wrong kind"),
    "half a message": (lambda request: answer(request)[:-3], "unreadable"),
    "a changed byte": (lambda request: answer(request)[:-1] + b"\xff", "unreadable"),
    "two messages in one": (lambda request: answer(request) + CODEC.encode(Report(6, 0, 0, {})), "unreadable"),
    "no bytes": (lambda _: b"", "unreadable"),
    "as much junk as may be sent": (lambda _: bytes(REPORT_LIMIT), "unreadable"),
    "a byte more than may be sent": (lambda _: bytes(REPORT_LIMIT + 1), "too large"),
    "a report that is too long": (lambda _: CODEC.encode(Report(6, 0, 0, {"x" * REPORT_LIMIT: 1.0})), "too large"),
}


def pair(
    method: Method, rounds: int, agreement: Agreement = AGREEMENT, participation: Participation = ALL_CLIENTS
) -> tuple[Federation, Federation]:
    """Two federations with the same past."""
    both = Federation(method, agreement, participation), Federation(method, agreement, participation)
    for _ in range(rounds):
        for federation in both:
            federation.play()
    assert memory(both[0].server) == memory(both[1].server)
    return both


def take_bad(federation: Federation, sender: int, *bad: bytes) -> None:
    """Messages that are counted as rejected, byte by byte, and change nothing else."""
    for data in bad:
        before, counted = memory(federation.server), federation.ledger.round_total("rejected")
        federation.server.take(sender, data)
        assert memory(federation.server) == before
        assert federation.server.resets() == {}
        assert federation.ledger.round_total("rejected") == counted + Bytes(payload=0, frame=len(data))


def assert_same(federation: Federation, closed: ClosedRound, undisturbed: Federation, expected: ClosedRound) -> None:
    assert same_labels(closed.taught, expected.taught)
    assert (closed.reports, closed.answers, closed.resets) == (expected.reports, expected.answers, expected.resets)
    assert memory(federation.server) == memory(undisturbed.server)
    assert not expected.rejections


@pytest.mark.parametrize(("make", "reason"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("mends", [True, False], ids=["then the honest one", "then silence"])
def test_a_bad_message_is_counted_by_its_reason_and_changes_nothing_else(
    make: Callable[[Index], bytes], reason: str, mends: bool
) -> None:
    """Client 0 sends it, and then either its honest answer and report, or nothing more."""
    federation, undisturbed = pair(METHODS["scarlet, delete"](), 5)

    def honest(replies: list[Reply]) -> list[Reply]:
        return [reply for reply in replies if mends or reply[0] != 0]

    def disturb(replies: list[Reply]) -> list[Reply]:
        assert 1 < len(federation.jobs[0].request) < AGREEMENT.public_per_round
        take_bad(federation, 0, make(federation.jobs[0].request))
        return honest(replies)

    disturbed, expected = federation.play(arrange=disturb), undisturbed.play(arrange=honest)
    assert disturbed.rejections == {reason: 1}
    assert_same(federation, disturbed, undisturbed, expected)
    assert_same(federation, federation.play(), undisturbed, undisturbed.play())


def test_many_bad_messages_in_a_round_are_each_counted() -> None:
    federation, undisturbed = pair(METHODS["scarlet, refresh"](), 5)

    def disturb(replies: list[Reply]) -> list[Reply]:
        for make, _ in BAD.values():
            take_bad(federation, 0, make(federation.jobs[0].request))
        return replies

    closed = federation.play(arrange=disturb)
    assert closed.rejections == Counter(reason for _, reason in BAD.values())
    assert_same(federation, closed, undisturbed, undisturbed.play())


def test_a_second_answer_or_report_is_counted_and_changes_nothing_else() -> None:
    federation, undisturbed = pair(METHODS["dsfl"](), 0)

    def disturb(replies: list[Reply]) -> list[Reply]:
        federation.take(replies[:2])
        take_bad(
            federation, 0, replies[0][1], answer(federation.jobs[0].request, round=1)
        )  # the same bytes, and others
        take_bad(federation, 0, replies[1][1])
        return replies[2:]

    closed = federation.play(arrange=disturb)
    assert closed.rejections == {"second answer": 2, "second report": 1}
    assert_same(federation, closed, undisturbed, undisturbed.play())


def test_whoever_was_not_asked_is_counted_and_changes_nothing_else() -> None:
    federation, undisturbed = pair(METHODS["scarlet, delete"](), 5, SEVEN, HALF)

    def disturb(replies: list[Reply]) -> list[Reply]:
        idle = sorted(set(range(SEVEN.clients)) - {job.client for job in federation.jobs})
        for sender in (*idle, SEVEN.clients, 10**9, -1):
            take_bad(federation, sender, answer(federation.jobs[0].request, client=max(sender, 0)))
            take_bad(federation, sender, CODEC.encode(Report(6, 0, max(sender, 0), {})), b"")
            take_bad(federation, sender, CODEC.encode(Resync(6, 0, max(sender, 0))), bytes(10**6))
        return replies

    closed = federation.play(arrange=disturb)
    assert closed.rejections == {"unknown client": 5 * (SEVEN.clients - federation.asked + 3)}
    assert_same(federation, closed, undisturbed, undisturbed.play())


def test_weights_are_of_the_wrong_kind_where_labels_are_exchanged() -> None:
    federation, undisturbed = pair(METHODS["scarlet, delete"](), 5)
    of_weights = codec("reference", replace(federation.method, uplink=Weights()), AGREEMENT)
    model = of_weights.encode(Parameters(6, 0, 0, 3, np.ones(5, np.float32)))

    def disturb(replies: list[Reply]) -> list[Reply]:
        take_bad(federation, 0, model)
        return replies

    closed = federation.play(arrange=disturb)
    assert closed.rejections == {"wrong kind": 1}
    assert_same(federation, closed, undisturbed, undisturbed.play())


def test_a_message_larger_than_any_answer_is_refused_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    agreement = replace(AGREEMENT, public_size=600, public_per_round=500)
    method = METHODS["dsfl"]()
    server = Server(method, agreement, codec("reference", method, agreement), Ledger())
    server.open_round()
    largest = answer(server.request, round=1)
    assert len(largest) > REPORT_LIMIT
    decoded: list[int] = []
    read = Body.__init__

    def watched(self: Body, data: memoryview, round: int = 0, attempt: int = 0) -> None:
        decoded.append(len(data))
        read(self, data, round, attempt)

    monkeypatch.setattr(Body, "__init__", watched)
    server.take(0, largest + b"x")
    server.take(0, bytes(10**6))
    assert decoded == []
    server.take(0, largest)
    assert decoded == [len(largest) - SIZE]
    closed = server.close_round()
    assert closed is not None
    assert (closed.answers, closed.rejections) == (1, {"too large": 2})


def test_a_client_may_answer_a_part_of_the_request_or_nothing() -> None:
    federation = Federation(drawing(METHODS["dsfl"](), [2, 3, 4]))
    federation.open()
    request = federation.jobs[0].request
    federation.server.take(0, answer(request[:1], round=1))
    federation.server.take(1, answer(request[1:1], round=1, client=1))
    closed = federation.close()
    assert closed.taught.index.tolist() == [2]
    np.testing.assert_allclose(closed.taught.value, np.full((1, 3), 1 / 3), rtol=1e-6)


def test_the_rounding_of_a_float32_softmax_over_many_classes_is_no_reason_to_refuse() -> None:
    classes = 1000
    federation = Federation(METHODS["dsfl"](), replace(AGREEMENT, classes=classes))
    federation.open()
    request = federation.jobs[0].request
    scores = np.random.default_rng(0).normal(0, 5, (len(request), classes)).astype(np.float32)
    value = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True, dtype=np.float32)
    federation.server.take(0, answer(request, value, round=1))
    assert len(federation.close().taught.index) == AGREEMENT.public_per_round
