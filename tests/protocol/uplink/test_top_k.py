"""The seam for a method from outside: one file with an uplink of its own, and a method of one line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scarlet.arrays import Index, Labels, Values
from scarlet.errors import ConfigError
from scarlet.methods.parts.mean import mean
from scarlet.protocol.cache import Duration
from scarlet.protocol.codec import Context
from scarlet.protocol.codec_registry import codec
from scarlet.protocol.downlink.shared import Shared
from scarlet.protocol.method import Method
from scarlet.protocol.server import Participation
from scarlet.protocol.state import restore
from scarlet.wire import frame
from scarlet.wire.ledger import COLUMNS
from tests.protocol.federation import AGREEMENT, Federation, contents, memory, saved, soft_labels
from tests.protocol.messages import bytes_of_labels, content
from tests.protocol.uplink.top_k import TopK, TopKAnswer, spread

K, CLASSES = 3, 6
SIX = replace(AGREEMENT, classes=CLASSES)
METHOD = Method(mean(), uplink=TopK(3))
CACHED = replace(METHOD, downlink=Shared(Duration(4)))
each_codec = pytest.mark.parametrize("coding", ["reference", "compact"])
each_bits = pytest.mark.parametrize("bits", [None, 1, 4, 32])


@st.composite
def answers(draw: st.DrawFn) -> tuple[TopKAnswer, Index]:
    """An answer, and the request that it answers."""
    request = np.flatnonzero(draw(st.lists(st.booleans(), min_size=24, max_size=24)))
    index = request[draw(st.lists(st.booleans(), min_size=len(request), max_size=len(request)))]
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    classes = np.sort(rng.permuted(np.tile(np.arange(CLASSES), (len(index), 1)), axis=1)[:, :K], axis=1)
    value = rng.dirichlet([0.3] * (K + 1), len(index)).astype(np.float32)
    return TopKAnswer(draw(st.integers(0, 2**32 - 1)), 1, draw(st.integers(0, 99)), index, classes, value), request


@settings(deadline=None, max_examples=100)
@given(answers(), st.sampled_from(["reference", "compact"]), st.integers(1, 32))
def test_an_answer_is_decoded_as_it_is_said_to_be(case: tuple[TopKAnswer, Index], coding: str, bits: int) -> None:
    message, request = case
    known = codec(coding, replace(METHOD, uplink_bits=bits), SIX)
    data = known.encode(message, Context(request))
    expected = replace(message, value=known.decoded_by_server(message.value))
    assert content(known.decode(data, Context(request))) == content(expected)
    if coding == "reference":
        samples = len(message.index)
        assert known.payload(message, data) == 8 * samples * (1 + K) + bytes_of_labels(message.value, bits)


@each_codec
def test_no_answer_to_a_whole_request_is_longer_than_its_limit(coding: str) -> None:
    for bits in range(1, 33):
        method = replace(METHOD, uplink_bits=bits)
        federation = Federation(method, SIX, coding=coding)
        federation.open()
        limit = federation.server._here().answers.limit
        sizes = [len(data) for _, data in federation.replies()[::2]]
        assert max(sizes) <= limit
        assert coding == "compact" or max(sizes) == limit


def literal(client: int, round: int, index: Index, left: dict[int, Values]) -> dict[int, Values]:
    """What the server must make of a client's answer, sample by sample; `left` is what the client has left out."""
    rebuilt = {}
    for sample, label in zip(index.tolist(), soft_labels(client, round, index, CLASSES), strict=True):
        wanted = np.maximum(label + left.get(sample, np.zeros(CLASSES, np.float32)), 0)
        wanted = wanted / wanted.sum()
        largest = sorted(range(CLASSES), key=lambda each: (-wanted[each], each))[:K]
        rest = (1 - sum(wanted[each] for each in largest)) / (CLASSES - K)
        rebuilt[sample] = np.array([wanted[i] if i in largest else rest for i in range(CLASSES)], np.float32)
        left[sample] = wanted - rebuilt[sample]
    return rebuilt


@pytest.mark.parametrize("method", [METHOD, CACHED], ids=["no cache", "cache"])
def test_the_server_teaches_what_a_plain_loop_makes_of_the_largest_entries(method: Method) -> None:
    federation = Federation(method, SIX)
    left: list[dict[int, Values]] = [{} for _ in range(SIX.clients)]
    for round in range(1, 9):
        federation.open()
        request = federation.server.request
        said = [literal(job.client, round, request, left[job.client]) for job in federation.jobs]
        federation.take(federation.replies())
        closed = federation.close()
        assert (closed.answers, closed.rejections) == (SIX.clients, {})
        fresh = np.isin(closed.taught.index, request)
        assert closed.taught.index[fresh].tolist() == request.tolist()
        for sample, row in zip(request.tolist(), closed.taught.value[fresh], strict=True):
            np.testing.assert_allclose(row, np.mean([each[sample] for each in said], axis=0), atol=2e-6)
    for client, expected in zip(federation.clients, left, strict=True):
        for sample, lost in expected.items():
            np.testing.assert_allclose(client.state.uplink.value[sample], lost, atol=2e-6)


def test_a_class_that_was_left_out_is_sent_later() -> None:
    label = np.array([0.3, 0.2, 0.19, 0.16, 0.1, 0.05], np.float32)
    federation = Federation(
        Method(mean(), uplink=TopK(1)), SIX, say=lambda client, round, index, classes: np.tile(label, (len(index), 1))
    )
    np.testing.assert_allclose(federation.play().taught.value[0], [0.3, 0.14, 0.14, 0.14, 0.14, 0.14], rtol=1e-6)
    sent = {int(best) for _ in range(20) for best in federation.play().taught.value.argmax(axis=1)}
    assert sent == {0, 1, 2}  # the others are below what is spread over them


def test_k_of_all_classes_but_one_teaches_the_plain_mean() -> None:
    every, whole = Federation(Method(mean(), uplink=TopK(CLASSES - 1)), SIX), Federation(Method(mean()), SIX)
    for _ in range(4):
        np.testing.assert_allclose(every.play().taught.value, whole.play().taught.value, atol=1e-6)


@each_codec
@each_bits
def test_the_ledger_counts_the_bytes_that_were_handed_over(coding: str, bits: int | None) -> None:
    federation = Federation(replace(CACHED, uplink_bits=bits), SIX, Participation(0.5), coding=coding)
    total = dict.fromkeys(COLUMNS, 0)
    for _ in range(12):
        closed = federation.play()
        assert not closed.rejections
        assert federation.counted() == federation.handed
        for columns in federation.handed.values():
            for column, size in columns.items():
                total[column] += size
    assert {column: counted.size for column, counted in federation.ledger.total.items()} == total
    assert federation.ledger.total["uplink"].payload > 0


BAD: dict[str, tuple[Callable[[TopKAnswer], TopKAnswer], str]] = {
    "a class that there is not": (lambda a: replace(a, classes=a.classes + CLASSES), "wrong classes"),
    "a class below 0": (lambda a: replace(a, classes=a.classes - CLASSES), "wrong classes"),
    "a class twice": (lambda a: replace(a, classes=np.zeros_like(a.classes)), "wrong classes"),
    "classes that descend": (lambda a: replace(a, classes=a.classes[:, ::-1]), "wrong classes"),
    "a sample that was not requested": (lambda a: replace(a, index=np.arange(24)[-len(a.index) :]), "wrong samples"),
    "NaN": (lambda a: replace(a, value=np.full_like(a.value, np.nan)), "not finite"),
    "a negative entry": (lambda a: replace(a, value=a.value - np.array([[0.9, 0, 0, -0.9]], np.float32)), "negative"),
    "a sum above 1": (lambda a: replace(a, value=a.value * np.float32(1.1)), "unnormalised"),
    "another's answer": (lambda a: replace(a, client=1), "unknown client"),
    "an old answer": (lambda a: replace(a, round=1), "wrong round"),
}


@pytest.mark.parametrize(("spoil", "reason"), BAD.values(), ids=BAD)
def test_a_bad_answer_is_rejected_with_its_reason_and_changes_nothing_else(
    spoil: Callable[[TopKAnswer], TopKAnswer], reason: str
) -> None:
    federation = Federation(replace(METHOD, uplink_bits=32), SIX)
    federation.play()
    federation.open()
    replies = federation.replies()
    context = Context(federation.server.request)
    honest = federation.codec.decode(replies[0][1], context)
    assert isinstance(honest, TopKAnswer)
    before = memory(federation.server)
    bad = federation.codec.encode(spoil(honest), context)
    federation.server.take(0, bad)
    assert federation.server.rejections == {reason: 1}
    assert memory(federation.server) == before
    assert federation.ledger.round_total("rejected").size == len(bad)
    federation.take(replies)
    assert federation.close().answers == SIX.clients


@each_codec
@pytest.mark.parametrize("damage", [lambda body: body[:-1], lambda body: body + 5 * b"\1", lambda body: b""])
def test_a_damaged_answer_is_unreadable(coding: str, damage: Callable[[bytes], bytes]) -> None:
    federation = Federation(METHOD, SIX, coding=coding)
    federation.open()
    outer = frame.unwrap(federation.replies()[0][1])
    federation.server.take(0, frame.wrap(outer.kind, outer.round, outer.attempt, damage(bytes(outer.body))))
    assert federation.server.rejections == {"unreadable": 1}


@each_codec
@pytest.mark.parametrize("rounds", [0, 1, 5])
def test_what_was_left_out_survives_a_checkpoint(coding: str, rounds: int) -> None:
    federation, twin = Federation(CACHED, SIX, coding=coding), Federation(CACHED, SIX, coding=coding)
    for _ in range(rounds):
        federation.play()
    assert [bool(client.state.uplink.value.any()) for client in federation.clients] == [rounds > 0] * SIX.clients
    restore(twin.server.state, saved(federation.server.state))
    for client in federation.clients:
        twin.restore_client(client.number, saved(client.state))
        assert saved(client.state)["uplink.value"].shape == (SIX.public_size, CLASSES)
    for _ in range(4):
        federation.open()
        twin.open()
        replies = federation.replies()
        assert replies == twin.replies()
        federation.take(replies)
        twin.take(replies)
        assert federation.close().taught.digest() == twin.close().taught.digest()
        for one, other in zip(federation.clients, twin.clients, strict=True):
            assert contents(one.state) == contents(other.state)


def test_k_must_be_of_the_classes_that_there_are() -> None:
    with pytest.raises(ConfigError, match=r"^k must be 1 or more, got 0; "):
        TopK(0)
    with pytest.raises(ConfigError, match=r"^k must be less than the 6 classes, got 6; "):
        Federation(Method(mean(), uplink=TopK(6)), SIX)


def test_what_is_left_is_spread_over_the_other_classes() -> None:
    value = np.array([[0.5, 0.2, 0.3]], np.float32)
    np.testing.assert_allclose(spread(np.array([[1, 4]]), value, 5), [[0.1, 0.5, 0.1, 0.1, 0.2]], rtol=1e-6)


def test_a_client_that_knows_a_part_of_the_samples_leaves_nothing_out_of_the_others() -> None:
    federation = Federation(METHOD, SIX)
    federation.play()
    drawn = federation.server.state.downlink.sync.index
    untouched = np.setdiff1d(np.arange(SIX.public_size), drawn)
    for client in federation.clients:
        assert not client.state.uplink.value[untouched].any()
        assert Labels(drawn, client.state.uplink.value[drawn]).value.any()
