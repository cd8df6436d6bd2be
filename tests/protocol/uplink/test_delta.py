"""A client's memory of what it sent, and the server's of what it accepted."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from scarlet.arrays import Index, Labels
from scarlet.methods.cfd import CfdConfig, cfd
from scarlet.methods.parts.mean import mean
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.codec import Codec, Context
from scarlet.protocol.codec_registry import codec
from scarlet.protocol.method import Method
from scarlet.protocol.server import Server
from scarlet.protocol.state import restore
from scarlet.protocol.uplink.delta import NOTHING, DeltaAnswer, DeltaLabels, Memory, SentState, name_of
from scarlet.protocol.uplink.labels import Answer
from scarlet.wire.ledger import Ledger
from tests.protocol.federation import (
    AGREEMENT,
    METHODS,
    Federation,
    Reply,
    Table,
    contents,
    few_labels,
    memory,
    saved,
)

SMALL = Agreement(clients=1, public_size=8, public_per_round=7, classes=3, seed=1)
DELTA = Method(aggregate=mean(), uplink=DeltaLabels(), uplink_bits=1)
CODED = cfd(CfdConfig(uplink_bits=1, downlink_bits=1, delta=True, cache_duration=2))
CODED_UP = cfd(CfdConfig(uplink_bits=1, downlink_bits=32, delta=True))
A, B, C = (bytes([number] * 8) for number in (1, 2, 3))
each_codec = pytest.mark.parametrize("coding", ["reference", "compact"])


def i64(*numbers: int) -> Index:
    return np.array(numbers, np.int64)


def labels(*rows: tuple[int, int]) -> Labels:
    """One-hot labels of (sample, class)."""
    index = i64(*(sample for sample, _ in rows))
    return Labels(index, np.eye(3, dtype=np.float32)[[best for _, best in rows]])


def new_sent() -> SentState:
    return SentState(Memory.empty(8, 3))


def answered(sent: SentState, said: Labels, name: bytes) -> tuple[list[int], list[int]]:
    """Give an answer; the samples that were sent and those that were not."""
    changed, same = sent.split(said)
    sent.add(said, name)
    return changed.index.tolist(), same.tolist()


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
        self.codec: Codec = codec("reference", DELTA, SMALL)
        self.server = Server(DELTA, SMALL, self.codec, Ledger())
        self.server.open_round()
        self.known: list[int] = self.server.request.tolist()
        data = self.codec.encode(DeltaAnswer(1, 0, 0, labels(*((sample, 0) for sample in self.known))))
        self.server.take(0, data)
        self.server.close_round()
        self.name = name_of(data)
        self.server.open_round()
        self.request: list[int] = self.server.request.tolist()
        self.both = [sample for sample in self.request if sample in self.known]

    def reasons(self, said: Labels, same: list[int], base: bytes) -> dict[str, int]:
        self.server.take(0, self.codec.encode(DeltaAnswer(2, 0, 0, said, i64(*same), base)))
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
    assert np.flatnonzero(asked.server.state.uplink.accepted[0].known).tolist() == asked.both[:1]


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


@each_codec
def test_an_answer_that_refers_to_others_is_rejected_where_nothing_is_kept(coding: str) -> None:
    federation = Federation(METHODS["dsfl"](), coding=coding)
    federation.open()
    context = Context(federation.server.request)
    answer = federation.codec.decode(federation.replies()[0][1], context)
    assert isinstance(answer, Answer)
    index, value = answer.labels.index, answer.labels.value
    delta = codec(coding, replace(federation.method, uplink=DeltaLabels()), AGREEMENT)
    said = DeltaAnswer(1, 0, 0, Labels(index[1:], value[1:]), index[:1], A)
    federation.server.take(0, delta.encode(said, context))
    assert federation.server.rejections == {"wrong base": 1}


@each_codec
def test_labels_that_never_change_are_sent_once_by_each_client(coding: str) -> None:
    every = replace(AGREEMENT, public_per_round=AGREEMENT.public_size)
    always = partial(few_labels, round=0)
    federation = Federation(
        CODED_UP,
        every,
        learner=Table(),
        say=lambda client, round, index, classes: always(client, index=index),
        coding=coding,
    )
    for round in range(1, 5):
        federation.open()
        for sender, data in federation.replies()[::2]:
            answer = federation.codec.decode(data, Context(federation.server.request))
            assert isinstance(answer, DeltaAnswer)
            assert (len(answer.labels.index), len(answer.same)) == ((24, 0) if round == 1 else (0, 24))
            federation.server.take(sender, data)
        federation.close()


def without(replies: list[Reply], client: int) -> list[Reply]:
    return [(sender, data) for sender, data in replies if sender != client]


def damaged(replies: list[Reply], client: int) -> list[Reply]:
    return [(sender, data[:-1] if sender == client else data) for sender, data in replies]


@each_codec
def test_a_rejected_answer_leaves_what_was_accepted_and_is_taken_back_by_its_client(coding: str) -> None:
    """In round 3 client 1's labels are damaged on their way in one federation, and lost in the other."""
    federations = []
    for arrange in (damaged, without):
        federation = Federation(CODED, learner=Table(), say=few_labels, coding=coding)
        for round in range(1, 7):
            federation.play(arrange=partial(arrange, client=1) if round == 3 else list)
        federations.append(federation)
    assert memory(federations[0].server) == memory(federations[1].server)
    for one, other in zip(federations[0].clients, federations[1].clients, strict=True):
        assert contents(one.state) == contents(other.state)


@each_codec
@pytest.mark.parametrize("rounds", range(6))
def test_a_federation_that_is_restored_from_its_arrays_goes_on_byte_for_byte(rounds: int, coding: str) -> None:
    """In each odd round a client's answer is lost, so there is something to take back."""
    model = Table()
    federation = Federation(CODED, learner=model, say=few_labels, coding=coding)

    def play(federation: Federation, round: int) -> tuple[dict[int, bytes], list[Reply]]:
        federation.jobs = []
        downlinks = federation.server.open_round()
        federation.deliver(downlinks)
        replies = federation.replies()
        federation.take(without(replies, round % AGREEMENT.clients) if round % 2 else replies)
        federation.close()
        return downlinks, replies

    for round in range(rounds):
        play(federation, round)
    twin = Federation(CODED, learner=deepcopy(model), say=few_labels, coding=coding)
    restore(twin.server.state, saved(federation.server.state))
    for client in federation.clients:
        twin.restore_client(client.number, saved(client.state))
    for round in range(rounds, rounds + 8):
        assert play(federation, round) == play(twin, round)
        assert contents(federation.server.state) == contents(twin.server.state)
    assert [contents(client.state) for client in federation.clients] == [
        contents(client.state) for client in twin.clients
    ]
