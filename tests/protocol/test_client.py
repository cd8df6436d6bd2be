from __future__ import annotations

import math
import struct
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scarlet.errors import MessageError
from scarlet.protocol.cache import ABSENT
from scarlet.protocol.client import LAST_ROUND, Client
from scarlet.protocol.federation import Federation
from scarlet.protocol.types import (
    EVERYBODY,
    Accepted,
    Broadcast,
    CatchUp,
    Index,
    Job,
    Labels,
    Lesson,
    Message,
    Parameters,
    Report,
    Result,
    Resync,
    Sync,
    Uplink,
    Values,
)
from scarlet.wire import frame
from scarlet.wire.reference import Reference
from tests.protocol.federation import METHODS, Town, entries, same_labels, soft_labels

CODEC = Reference()
METHOD = METHODS["scarlet, delete"]()
SIZE, CLASSES, NUMBER = 10, 2, 4
PUBLIC = bytes.fromhex("00c0ffee00c0ffee")
FEDERATION = Federation(clients=5, public_size=SIZE, public_per_round=4, classes=CLASSES, seed=0, public=PUBLIC)


def i64(*numbers: int) -> Index:
    return np.array(numbers, np.int64)


def label(*rows: list[float]) -> Values:
    return np.array(rows, np.float32).reshape(len(rows), CLASSES)


def broadcast(round: int, taught: Labels, sync: Sync, request: Index | None = None) -> Broadcast:
    return Broadcast(round, 0, i64(0) if request is None else request, sync, taught.digest(), PUBLIC)


def first(request: Index, round: int = 1, attempt: int = 0) -> Broadcast:
    return Broadcast(round, attempt, request, None, bytes(8), PUBLIC)


TAUGHT = Labels(i64(2, 5), label([0.25, 0.75], [1, 0]))
STORED = broadcast(2, TAUGHT, Sync(1, TAUGHT.index, i64(1, 1), TAUGHT.value, i64()))
REUSED = broadcast(3, TAUGHT, Sync(2, TAUGHT.index, i64(0, 0), label(), i64()))
CATCH_UP = CatchUp(3, 0, NUMBER, False, TAUGHT)
RESET = replace(CATCH_UP, reset=True)
LESSON = Lesson(3, 0, NUMBER, TAUGHT)
ACCEPTED = Accepted(3, 0, NUMBER, bytes(range(8)))
PARAMETERS = Parameters(3, 0, EVERYBODY, 0, np.zeros(3, np.float32))


def sent(*messages: Message) -> bytes:
    """A downlink: some messages, one after the other."""
    return b"".join(CODEC.encode(message) for message in messages)


def new_client() -> Client:
    return Client(NUMBER, METHOD, FEDERATION, CODEC)


def job_of(client: Client, *messages: Message) -> Job:
    job = client.receive(sent(*messages))
    assert isinstance(job, Job)
    return job


def client_in_round_2() -> Client:
    """It holds the labels of round 1, and has answered round 2."""
    client = new_client()
    job = job_of(client, STORED)
    client.reply(job, Result(label([0.5, 0.5]), {}))
    return client


def says_resync(client: Client, *messages: Message) -> bool:
    """Whether the client's only answer is that its cache differs."""
    task = client.receive(sent(*messages))
    head = messages[0]
    return task == [CODEC.encode(Resync(head.round, head.attempt, NUMBER))]


def memory(client: Client) -> tuple[object, ...]:
    return *entries(client.state.cache), client.state.downlink, list(client.state.reply)


def test_the_first_round_has_nothing_to_teach() -> None:
    job = job_of(new_client(), first(i64(1, 8)))
    assert (job.client, job.round, job.request.tolist()) == (NUMBER, 1, [1, 8])
    assert job.teacher.index.shape == (0,)
    assert job.teacher.value.shape == (0, CLASSES)


def test_labels_that_were_stored_in_one_round_are_recalled_in_the_next() -> None:
    client = new_client()
    assert same_labels(job_of(client, STORED).teacher, TAUGHT)
    assert same_labels(job_of(client, REUSED).teacher, TAUGHT)


def test_labels_of_a_catch_up_are_recalled_as_if_they_had_been_stored() -> None:
    client = new_client()
    assert same_labels(job_of(client, REUSED, CATCH_UP).teacher, TAUGHT)
    assert REUSED.sync is not None
    again = replace(REUSED, round=4, sync=replace(REUSED.sync, round=3))
    assert same_labels(job_of(client, again).teacher, TAUGHT)


def test_a_catch_up_replaces_an_old_version_and_leaves_the_rest() -> None:
    client = client_in_round_2()
    newer = Labels(i64(2), label([0.5, 0.5]))
    taught = Labels(TAUGHT.index, label([0.5, 0.5], [1, 0]))
    job = job_of(client, replace(REUSED, digest=taught.digest()), replace(CATCH_UP, labels=newer))
    assert same_labels(job.teacher, taught)


def test_a_reset_empties_the_cache_before_it_fills_it() -> None:
    client = new_client()
    client.state.cache.stamp[:], client.state.cache.value[:] = 1, 0.5
    assert same_labels(job_of(client, REUSED, RESET).teacher, TAUGHT)
    assert (client.state.cache.stamp != ABSENT).nonzero()[0].tolist() == [2, 5]


def test_a_reset_in_the_first_round_empties_the_cache() -> None:
    client = client_in_round_2()
    job = job_of(client, first(i64(1)), CatchUp(1, 0, NUMBER, True, Labels(i64(), label())))
    assert len(job.teacher.index) == 0
    assert (client.state.cache.stamp == ABSENT).all()


@pytest.mark.parametrize("method", METHODS)
def test_a_downlink_that_arrives_again_before_its_reply_gives_the_same_job_and_the_same_cache(method: str) -> None:
    town = Town(METHODS[method]())
    for _ in range(15):
        downlink = town.server.open_round()[0]
        one = town.clients[0].receive(downlink)
        once = entries(town.clients[0].state.cache)
        two = town.clients[0].receive(downlink)
        assert isinstance(one, Job)
        assert isinstance(two, Job)
        assert same_labels(one.teacher, two.teacher)
        assert one.request.tolist() == two.request.tolist()
        assert entries(town.clients[0].state.cache) == once
        for data in town.clients[0].reply(one, Result(soft_labels(0, one.round, one.request), {})):
            town.server.take(0, data)
        town.server.close_round()


BEYOND: dict[str, tuple[Message, ...]] = {
    "requested": (replace(REUSED, request=i64(0, SIZE)),),
    "cached": (broadcast(3, TAUGHT, Sync(2, i64(2, SIZE), i64(1, 1), TAUGHT.value, i64())),),
    "taught without a cache": (broadcast(3, TAUGHT, Sync(2, i64(2, SIZE), None, TAUGHT.value, i64())),),
    "dropped": (broadcast(3, TAUGHT, Sync(2, i64(2, 5), i64(1, 1), TAUGHT.value, i64(3, SIZE))),),
    "in the first round": (first(i64(SIZE), round=3),),
    "caught up": (REUSED, replace(CATCH_UP, labels=Labels(i64(2, SIZE), TAUGHT.value))),
    "reset": (REUSED, replace(RESET, labels=Labels(i64(2, SIZE), TAUGHT.value))),
}


@pytest.mark.parametrize("bad", BEYOND.values(), ids=BEYOND)
def test_a_sample_beyond_the_public_set_is_refused_and_changes_nothing(bad: tuple[Message, ...]) -> None:
    client = client_in_round_2()
    before = memory(client)
    with pytest.raises(MessageError, match=r"^the downlink names sample 10; this client's public set has 10$"):
        client.receive(sent(*bad))
    assert memory(client) == before


def test_the_last_sample_of_the_public_set_is_within_it() -> None:
    job = job_of(client_in_round_2(), replace(REUSED, request=i64(SIZE - 1)))
    assert job.request.tolist() == [SIZE - 1]


@pytest.mark.parametrize("value", [np.ones((2, 1), np.float32), np.full((2, 3), 1 / 3, np.float32)])
def test_another_number_of_classes_is_refused_and_changes_nothing(value: Values) -> None:
    client = client_in_round_2()
    before = memory(client)
    taught = Labels(TAUGHT.index, value)
    for bad in (
        (broadcast(3, taught, Sync(2, taught.index, i64(1, 1), value, i64())),),
        (REUSED, replace(CATCH_UP, labels=taught)),
    ):
        with pytest.raises(MessageError, match=r"labels of another shape than \[2\]$"):
            client.receive(sent(*bad))
        assert memory(client) == before


@pytest.mark.parametrize(
    "bad",
    [replace(CATCH_UP, client=NUMBER + 1), replace(CATCH_UP, round=2), replace(RESET, client=0)],
    ids=["another's", "of another round", "another's reset"],
)
def test_a_catch_up_that_is_not_meant_for_it_is_refused_and_changes_nothing(bad: CatchUp) -> None:
    client = client_in_round_2()
    before = memory(client)
    with pytest.raises(
        MessageError, match=r"^client 4 was sent (a CatchUp that is not meant for it|parts of different rounds)$"
    ):
        client.receive(sent(REUSED, bad))
    assert memory(client) == before


NOT_MEANT: dict[str, Message] = {
    "another's lesson": replace(LESSON, client=NUMBER + 1),
    "an old lesson": replace(LESSON, round=2),
    "another's name": replace(ACCEPTED, client=NUMBER + 1),
    "the name of another attempt": replace(ACCEPTED, attempt=1),
    "another's model": replace(PARAMETERS, client=NUMBER + 1),
    "an old model": replace(PARAMETERS, round=2),
}


@pytest.mark.parametrize("bad", NOT_MEANT.values(), ids=NOT_MEANT)
def test_what_goes_with_another_broadcast_or_to_another_client_is_refused_and_changes_nothing(bad: Message) -> None:
    client = client_in_round_2()
    before = memory(client)
    with pytest.raises(
        MessageError, match=r"^client 4 was sent (a [A-Z][a-z]+ that is not meant for it|parts of different rounds)$"
    ):
        client.receive(sent(REUSED, CATCH_UP, bad))
    assert memory(client) == before


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        (Labels(i64(2, SIZE), TAUGHT.value), "names sample 10; this client's public set has 10"),
        (Labels(TAUGHT.index, np.ones((2, 3), np.float32)), r"labels of another shape than \[2\]"),
    ],
    ids=["samples", "classes"],
)
def test_a_lesson_of_samples_or_classes_that_there_are_not_is_refused_and_changes_nothing(
    bad: Labels, complaint: str
) -> None:
    client = client_in_round_2()
    before = memory(client)
    with pytest.raises(MessageError, match=complaint):
        client.receive(sent(REUSED, replace(LESSON, labels=bad)))
    assert memory(client) == before


@pytest.mark.parametrize("round", [1, 3, 9])
def test_a_sync_of_another_round_than_the_one_before_is_refused_and_changes_nothing(round: int) -> None:
    client = client_in_round_2()
    before = memory(client)
    assert REUSED.sync is not None
    with pytest.raises(MessageError, match=rf"^round 3 comes with the sync of round {round}$"):
        client.receive(sent(replace(REUSED, sync=replace(REUSED.sync, round=round))))
    assert memory(client) == before


def test_a_round_that_no_stamp_can_hold_is_refused() -> None:
    assert STORED.sync is not None
    for late, fits in ((LAST_ROUND, True), (LAST_ROUND + 1, False), (2**32 - 1, False)):
        client = new_client()
        downlink = sent(replace(STORED, round=late, sync=replace(STORED.sync, round=late - 1)))
        if fits:
            assert isinstance(client.receive(downlink), Job)
            assert client.state.cache.stamp.max() == late - 1
        else:
            with pytest.raises(MessageError):
                client.receive(downlink)


def test_a_client_with_another_public_set_is_told_both_fingerprints() -> None:
    client = client_in_round_2()
    before = memory(client)
    for messages in ((replace(REUSED, public=bytes(range(8))),), (replace(REUSED, public=bytes(range(8))), RESET)):
        with pytest.raises(MessageError, match=r"\(00c0ffee00c0ffee\) than the server \(0001020304050607\)") as caught:
            client.receive(sent(*messages))
        assert caught.value.reason == "other public set"
        assert memory(client) == before


def test_every_wrong_digest_is_answered_by_a_resync_and_stores_nothing() -> None:
    for bit in range(64):
        wrong = (int.from_bytes(STORED.digest, "little") ^ 1 << bit).to_bytes(8, "little")
        client = new_client()
        before = memory(client)
        assert says_resync(client, replace(STORED, digest=wrong))
        assert memory(client) == before


def test_a_client_whose_cached_label_differs_in_one_bit_says_so() -> None:
    client = client_in_round_2()
    client.state.cache.value[5, 0] = np.nextafter(np.float32(1), np.float32(0))
    assert says_resync(client, REUSED)


def test_a_client_that_lost_its_cache_says_so_at_the_first_reuse() -> None:
    assert says_resync(new_client(), REUSED)


def test_a_client_says_that_its_cache_differs_as_often_as_it_is_asked() -> None:
    client = new_client()
    assert says_resync(client, REUSED)
    assert says_resync(client, REUSED)


def test_a_digest_covers_the_samples_as_well_as_their_labels() -> None:
    assert TAUGHT.digest() != replace(TAUGHT, index=i64(2, 6)).digest()
    assert TAUGHT.digest() != replace(TAUGHT, value=TAUGHT.value[::-1]).digest()
    assert TAUGHT.digest() == Labels(TAUGHT.index.copy(), TAUGHT.value.copy()).digest()


def test_the_digest_of_some_labels_is_frozen() -> None:
    assert TAUGHT.digest().hex() == "db8c4872eacfe5ab"


NO_DOWNLINK: dict[str, tuple[tuple[Message, ...], str]] = {
    "nothing": ((), "nothing"),
    "an uplink": ((Uplink(1, 0, 0, TAUGHT),), "Uplink"),
    "a report": ((Report(1, 0, 0, {}),), "Report"),
    "a resync": ((Resync(1, 0, 0),), "Resync"),
    "a catch-up alone": ((CATCH_UP,), "CatchUp"),
    "two broadcasts": ((REUSED, REUSED), "Broadcast, Broadcast"),
    "a catch-up first": ((CATCH_UP, REUSED), "CatchUp, Broadcast"),
    "two catch-ups": ((REUSED, CATCH_UP, CATCH_UP), "Broadcast, CatchUp, CatchUp"),
    "two lessons": ((REUSED, LESSON, LESSON), "Broadcast, Lesson, Lesson"),
    "two names": ((REUSED, ACCEPTED, ACCEPTED), "Broadcast, Accepted, Accepted"),
    "two models": ((REUSED, PARAMETERS, PARAMETERS), "Broadcast, Parameters, Parameters"),
    "a name first": ((ACCEPTED, REUSED), "Accepted, Broadcast"),
    "a resync behind": ((REUSED, Resync(3, 0, NUMBER)), "Broadcast, Resync"),
}


@pytest.mark.parametrize(("messages", "kinds"), NO_DOWNLINK.values(), ids=NO_DOWNLINK)
def test_what_is_not_a_broadcast_and_at_most_one_of_each_other_kind_is_refused_by_name(
    messages: tuple[Message, ...], kinds: str
) -> None:
    client = client_in_round_2()
    before = memory(client)
    expected = rf"^client 4 was sent {kinds}, not a Broadcast and what goes with it$"
    with pytest.raises(MessageError, match=expected):
        client.receive(sent(*messages))
    assert memory(client) == before


def test_every_truncation_and_every_bit_flip_of_a_downlink_is_refused_and_changes_nothing() -> None:
    client, whole = client_in_round_2(), sent(REUSED, RESET)
    before, alone = memory(client), len(sent(REUSED))
    damaged = [whole[:length] for length in range(len(whole)) if length != alone]  # what is cut there is a broadcast
    damaged += [flipped(whole, bit) for bit in range(8 * len(whole))]
    damaged += [whole + bytes([byte]) for byte in range(256)]
    for data in damaged:
        with pytest.raises(MessageError):
            client.receive(data)
        assert memory(client) == before


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
    before = memory(client)
    data = b"".join(pieces)
    assert b"".join(frame.split(data)) == data
    try:
        client.receive(data)
    except MessageError:
        assert memory(client) == before


def test_a_damaged_body_under_a_right_checksum_is_a_downlink_or_a_message_error() -> None:
    rng = np.random.default_rng(0)
    outcomes = dict.fromkeys(("job", "resync", "refused"), 0)
    start = client_in_round_2()
    for _ in range(3_000):
        client = deepcopy(start)
        before = memory(client)
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
            assert memory(client) == before
        else:
            outcomes["job" if isinstance(task, Job) else "resync"] += 1
            if isinstance(task, Job):
                assert task.teacher.digest() == REUSED.digest
    assert min(outcomes.values()) > 100, outcomes


def test_the_reply_labels_the_request_and_reports_apart() -> None:
    client = new_client()
    job = job_of(client, first(i64(1, 8), attempt=7))
    answer = Result(label([0.5, 0.5], [0, 1]), {"loss": 0.5, "accuracy": math.nan, "norm": math.inf})
    uplink, report = (CODEC.decode(data) for data in client.reply(job, answer))
    assert isinstance(uplink, Uplink)
    assert (uplink.round, uplink.attempt, uplink.client) == (1, 7, NUMBER)
    assert same_labels(uplink.labels, Labels(i64(1, 8), answer.value))
    assert report == Report(1, 7, NUMBER, {"loss": 0.5})  # what is not a number is not reported


def test_the_reply_to_an_empty_request_is_an_empty_answer() -> None:
    client = client_in_round_2()
    job = job_of(client, replace(REUSED, request=i64()))
    uplink, _ = (CODEC.decode(data) for data in client.reply(job, Result(label(), {})))
    assert isinstance(uplink, Uplink)
    assert uplink.labels.value.shape == (0, CLASSES)


def test_an_answered_downlink_that_arrives_again_is_answered_by_the_same_bytes() -> None:
    client = new_client()
    job = job_of(client, STORED)
    said = list(client.reply(job, Result(label([0.5, 0.5]), {"loss": 1.5})))
    assert client.receive(sent(STORED)) == said
    assert client.receive(sent(STORED)) == said
    other = job_of(client, replace(STORED, attempt=1))  # the next attempt is work of its own
    assert (other.round, other.attempt) == (2, 1)
    assert client.receive(sent(STORED)) == said  # which does not count until it is answered
    new = client.reply(job_of(client, replace(STORED, attempt=1)), Result(label([0, 1]), {}))
    assert client.receive(sent(replace(STORED, attempt=1))) == new != said


def test_a_reset_is_obeyed_even_after_an_answer_to_the_same_broadcast() -> None:
    client = client_in_round_2()
    client.reply(job_of(client, REUSED), Result(label([0.5, 0.5]), {}))
    client.state.cache.stamp[7] = 1
    assert same_labels(job_of(client, REUSED, RESET).teacher, TAUGHT)
    assert client.state.cache.stamp[7] == ABSENT


def test_a_reply_is_kept_under_its_own_downlink_whatever_was_received_since() -> None:
    client = new_client()
    job = job_of(client, STORED)
    job_of(client, REUSED)  # arrives while the client works
    said = list(client.reply(job, Result(label([0.5, 0.5]), {})))
    assert client.receive(sent(STORED)) == said
    assert isinstance(client.receive(sent(REUSED)), Job)
