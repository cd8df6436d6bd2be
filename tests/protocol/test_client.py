"""A client takes a downlink whole or not at all, and answers the same downlink by the same bytes."""

from __future__ import annotations

import math
import struct
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scarlet.arrays import Labels
from scarlet.errors import MessageError
from scarlet.job import Job, Result
from scarlet.methods.parts.clusters import nearest
from scarlet.methods.parts.mean import mean
from scarlet.protocol.downlink.personal import Lesson, Personal
from scarlet.protocol.downlink.shared import Shared
from scarlet.protocol.messages import EVERYBODY, Message, Report, Resync
from scarlet.protocol.method import Method
from scarlet.protocol.uplink.delta import Accepted, DeltaLabels
from scarlet.protocol.uplink.labels import Answer
from scarlet.protocol.uplink.weights import Parameters, Weights
from scarlet.wire import frame
from tests.protocol.federation import contents, same_labels
from tests.protocol.one_client import (
    AGREEMENT,
    CATCH_UP,
    CLASSES,
    CODEC,
    METHOD,
    NUMBER,
    RESET,
    REUSED,
    SIZE,
    STORED,
    TAUGHT,
    client_in_round_2,
    first,
    i64,
    job_of,
    label,
    new_client,
    sent,
)

PERSONAL = Method(mean(), downlink=Personal(2))
DELTA = replace(METHOD, uplink=DeltaLabels())
WEIGHTS = replace(METHOD, uplink=Weights())
LESSON = Lesson(3, 0, NUMBER, TAUGHT)
ACCEPTED = Accepted(3, 0, NUMBER, bytes(range(8)))
PARAMETERS = Parameters(3, 0, EVERYBODY, 0, np.zeros(3, np.float32))
FIRST = first(i64(0), round=3)


def test_a_job_has_all_that_training_must_know_of_the_method() -> None:
    method = Method(mean(), downlink=Shared(teachers=2, choose=nearest), distil_weight=0.5, restart=True)
    job = job_of(new_client(method), FIRST)
    assert (job.choose, job.distil_weight, job.restart, job.send_parameters) == (nearest, 0.5, True, False)
    assert job_of(new_client(PERSONAL), FIRST, LESSON).choose is None
    sent_on = job_of(new_client(WEIGHTS), FIRST, PARAMETERS)
    assert sent_on.send_parameters
    assert sent_on.parameters is not None
    assert sent_on.parameters.tolist() == PARAMETERS.value.tolist()


NOT_MEANT: dict[str, tuple[Method, tuple[Message, ...]]] = {
    "another's catch-up": (METHOD, (REUSED, replace(CATCH_UP, client=NUMBER + 1))),
    "an old catch-up": (METHOD, (REUSED, replace(CATCH_UP, round=2))),
    "another's reset": (METHOD, (REUSED, replace(RESET, client=0))),
    "another's lesson": (PERSONAL, (FIRST, replace(LESSON, client=NUMBER + 1))),
    "an old lesson": (PERSONAL, (FIRST, replace(LESSON, round=2))),
    "another's name": (DELTA, (REUSED, CATCH_UP, replace(ACCEPTED, client=NUMBER + 1))),
    "the name of another attempt": (DELTA, (REUSED, CATCH_UP, replace(ACCEPTED, attempt=1))),
    "another's model": (WEIGHTS, (REUSED, CATCH_UP, replace(PARAMETERS, client=NUMBER + 1))),
    "an old model": (WEIGHTS, (REUSED, CATCH_UP, replace(PARAMETERS, round=2))),
}


@pytest.mark.parametrize(("method", "messages"), NOT_MEANT.values(), ids=NOT_MEANT)
def test_what_goes_with_another_broadcast_or_to_another_client_is_refused_and_changes_nothing(
    method: Method, messages: tuple[Message, ...]
) -> None:
    client = client_in_round_2() if method is METHOD else new_client(method)
    before = contents(client.state)
    with pytest.raises(
        MessageError, match=r"^client 4 was sent (a [A-Za-z]+ that is not meant for it|parts of different rounds)$"
    ):
        client.receive(sent(client, *messages))
    assert contents(client.state) == before


@pytest.mark.parametrize(
    ("method", "messages", "missing"),
    [
        (PERSONAL, (FIRST,), "Lesson"),
        (DELTA, (REUSED, CATCH_UP), "Accepted"),
        (DELTA, (FIRST,), "Accepted"),
        (WEIGHTS, (REUSED, CATCH_UP), "Parameters"),
    ],
)
def test_a_downlink_without_what_its_method_needs_is_refused_by_name_and_changes_nothing(
    method: Method, messages: tuple[Message, ...], missing: str
) -> None:
    client = new_client(method)
    before = contents(client.state)
    with pytest.raises(MessageError, match=rf"a Broadcast without the {missing} that go(es)? with it$"):
        client.receive(sent(client, *messages))
    assert contents(client.state) == before


def test_a_client_of_another_experiment_is_told_both_digests() -> None:
    client = client_in_round_2()
    before, other = contents(client.state), bytes(range(8))
    for messages in (
        (replace(REUSED, agreement=other),),
        (replace(REUSED, agreement=other), RESET),
        (replace(REUSED, agreement=other, request=i64(SIZE)),),  # another dataset may well have more samples
    ):
        both = rf"in experiment {AGREEMENT.digest.hex()}, and the downlink is of 0001020304050607"
        with pytest.raises(MessageError, match=both) as caught:
            client.receive(sent(client, *messages))
        assert caught.value.reason == "other experiment"
        assert contents(client.state) == before


NO_DOWNLINK: dict[str, tuple[Method, tuple[Message, ...], str]] = {
    "nothing": (METHOD, (), "nothing"),
    "an answer": (METHOD, (Answer(1, 0, 0, TAUGHT),), "Answer"),
    "a report": (METHOD, (Report(1, 0, 0, {}),), "Report"),
    "a resync": (METHOD, (Resync(1, 0, 0),), "Resync"),
    "a catch-up alone": (METHOD, (CATCH_UP,), "CatchUp"),
    "two broadcasts": (METHOD, (REUSED, REUSED), "Broadcast, Broadcast"),
    "a catch-up first": (METHOD, (CATCH_UP, REUSED), "CatchUp, Broadcast"),
    "two catch-ups": (METHOD, (REUSED, CATCH_UP, CATCH_UP), "Broadcast, CatchUp, CatchUp"),
    "two lessons": (PERSONAL, (FIRST, LESSON, LESSON), "Broadcast, Lesson, Lesson"),
    "two names": (DELTA, (REUSED, ACCEPTED, ACCEPTED), "Broadcast, Accepted, Accepted"),
    "two models": (WEIGHTS, (REUSED, PARAMETERS, PARAMETERS), "Broadcast, Parameters, Parameters"),
    "a name first": (DELTA, (ACCEPTED, REUSED), "Accepted, Broadcast"),
    "a resync behind": (METHOD, (REUSED, Resync(3, 0, NUMBER)), "Broadcast, Resync"),
    "an answer behind": (METHOD, (REUSED, Answer(3, 0, NUMBER, TAUGHT)), "Broadcast, Answer"),
}


@pytest.mark.parametrize(("method", "messages", "kinds"), NO_DOWNLINK.values(), ids=NO_DOWNLINK)
def test_what_is_not_a_broadcast_and_at_most_one_of_each_other_kind_is_refused_by_name(
    method: Method, messages: tuple[Message, ...], kinds: str
) -> None:
    client = client_in_round_2() if method is METHOD else new_client(method)
    before = contents(client.state)
    expected = rf"^client 4 was sent {kinds}, not a Broadcast and what goes with it$"
    with pytest.raises(MessageError, match=expected):
        client.receive(sent(client, *messages))
    assert contents(client.state) == before


def test_a_message_of_another_method_is_refused() -> None:
    client, other = new_client(), new_client(PERSONAL)
    with pytest.raises(MessageError, match="kind 7, which nobody sends here"):
        client.receive(sent(client, REUSED) + sent(other, LESSON))


def test_every_truncation_and_every_bit_flip_of_a_downlink_is_refused_and_changes_nothing() -> None:
    client = client_in_round_2()
    whole, alone = sent(client, REUSED, RESET), len(sent(client, REUSED))
    before = contents(client.state)
    damaged = [whole[:length] for length in range(len(whole)) if length != alone]  # what is cut there is a broadcast
    damaged += [flipped(whole, bit) for bit in range(8 * len(whole))]
    damaged += [whole + bytes([byte]) for byte in range(256)]
    for data in damaged:
        with pytest.raises(MessageError):
            client.receive(data)
    assert contents(client.state) == before


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@settings(deadline=None, max_examples=500)
@given(
    st.lists(
        st.binary(max_size=60)
        | st.sampled_from([CODEC.encode(m) for m in (REUSED, STORED, CATCH_UP, RESET)])
        | st.builds(frame.wrap, st.integers(0, 6), st.integers(0, 4), st.integers(0, 1), st.binary(max_size=60)),
        max_size=4,
    )
)
def test_any_bytes_are_a_downlink_or_a_message_error(pieces: list[bytes]) -> None:
    client = client_in_round_2()
    before = contents(client.state)
    try:
        client.receive(b"".join(pieces))
    except MessageError:
        assert contents(client.state) == before


def test_a_damaged_body_under_a_right_checksum_is_a_downlink_or_a_message_error() -> None:
    rng = np.random.default_rng(0)
    outcomes = dict.fromkeys(("job", "resync", "refused"), 0)
    start = client_in_round_2()
    before = contents(start.state)
    for _ in range(3_000):
        client = deepcopy(start)
        bodies = [bytearray(CODEC.encode(message)[frame.SIZE :]) for message in (REUSED, CATCH_UP)]
        body = bodies[rng.integers(2)]
        at = int(rng.integers(len(body) - 3))
        extreme = int(rng.choice([0, 1, 2, 3, 9, 10, 2**16, 2**31 - 1, 2**31, 2**32 - 1]))
        body[at : at + 4] = struct.pack("<I", extreme)
        data = frame.wrap(1, 3, 0, bytes(bodies[0])) + frame.wrap(4, 3, 0, bytes(bodies[1]))
        try:
            task = client.receive(data)
        except MessageError:
            outcomes["refused"] += 1
            assert contents(client.state) == before
        else:
            outcomes["job" if isinstance(task, Job) else "resync"] += 1
            if isinstance(task, Job):
                assert task.teacher.digest() == REUSED.digest
    assert min(outcomes.values()) > 100, outcomes


def test_the_reply_labels_the_request_and_reports_apart() -> None:
    client = new_client()
    job = job_of(client, first(i64(1, 8), attempt=7))
    result = Result(label([0.5, 0.5], [0, 1]), {"loss": 0.5, "accuracy": math.nan, "norm": math.inf})
    answer, report = (CODEC.decode(data) for data in client.reply(job, result))
    assert isinstance(answer, Answer)
    assert (answer.round, answer.attempt, answer.client) == (1, 7, NUMBER)
    assert same_labels(answer.labels, Labels(i64(1, 8), result.value))
    assert report == Report(1, 7, NUMBER, {"loss": 0.5})  # what is not a number is not reported


def test_the_reply_to_an_empty_request_is_an_empty_answer() -> None:
    client = client_in_round_2()
    job = job_of(client, replace(REUSED, request=i64()))
    answer, _ = (CODEC.decode(data) for data in client.reply(job, Result(label(), {})))
    assert isinstance(answer, Answer)
    assert answer.labels.value.shape == (0, CLASSES)


def test_an_answered_downlink_that_arrives_again_is_answered_by_the_same_bytes() -> None:
    client = new_client()
    said = list(client.reply(job_of(client, STORED), Result(label([0.5, 0.5]), {"loss": 1.5})))
    stored, again = sent(client, STORED), sent(client, replace(STORED, attempt=1))
    assert client.receive(stored) == said
    assert client.receive(stored) == said
    other = client.receive(again)  # the next attempt is work of its own
    assert isinstance(other, Job)
    assert (other.round, other.attempt) == (2, 1)
    assert client.receive(stored) == said  # which does not count until it is answered
    new = client.reply(other, Result(label([0, 1]), {}))
    assert client.receive(again) == new != said


def test_a_reply_is_kept_under_its_own_downlink_whatever_was_received_since() -> None:
    client = new_client()
    job = job_of(client, STORED)
    job_of(client, REUSED)  # arrives while the client works
    said = list(client.reply(job, Result(label([0.5, 0.5]), {})))
    assert client.receive(sent(client, STORED)) == said
    assert isinstance(client.receive(sent(client, REUSED)), Job)
