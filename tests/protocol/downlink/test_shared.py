"""A client's cache: what it stores, recalls and is told to forget, and when it says that it differs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scarlet.arrays import Labels, Values
from scarlet.errors import MessageError
from scarlet.job import Job, Result
from scarlet.protocol.cache import ABSENT
from scarlet.protocol.messages import LAST_ROUND, CatchUp, Message, Sync
from tests.protocol.federation import METHODS, Federation, contents, entries, same_labels, soft_labels
from tests.protocol.one_client import (
    CATCH_UP,
    CLASSES,
    NUMBER,
    RESET,
    REUSED,
    SIZE,
    STORED,
    TAUGHT,
    broadcast,
    client_in_round_2,
    first,
    i64,
    job_of,
    label,
    new_client,
    says_resync,
    sent,
)


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
    cache = client.state.downlink.cache
    cache.stamp[:], cache.value[:] = 1, 0.5
    assert same_labels(job_of(client, REUSED, RESET).teacher, TAUGHT)
    assert (cache.stamp != ABSENT).nonzero()[0].tolist() == [2, 5]


def test_a_reset_in_the_first_round_empties_the_cache() -> None:
    client = client_in_round_2()
    job = job_of(client, first(i64(1)), CatchUp(1, 0, NUMBER, True, Labels(i64(), label())))
    assert len(job.teacher.index) == 0
    assert (client.state.downlink.cache.stamp == ABSENT).all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("coding", ["reference", "compact"])
def test_a_downlink_that_arrives_again_before_its_reply_gives_the_same_job_and_the_same_state(
    method: str, coding: str
) -> None:
    federation = Federation(METHODS[method](), coding=coding)
    client = federation.clients[0]
    for _ in range(15):
        downlink = federation.server.open_round()[0]
        one = client.receive(downlink)
        once = contents(client.state)
        two = client.receive(downlink)
        assert isinstance(one, Job)
        assert isinstance(two, Job)
        assert same_labels(one.teacher, two.teacher)
        assert one.request.tolist() == two.request.tolist()
        assert contents(client.state) == once
        for data in client.reply(one, Result(soft_labels(0, one.round, one.request), {})):
            federation.server.take(0, data)
        federation.close()


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
def test_a_sample_beyond_the_public_dataset_is_refused_and_changes_nothing(bad: tuple[Message, ...]) -> None:
    client = client_in_round_2()
    before = contents(client.state)
    with pytest.raises(MessageError, match=r"^the downlink names sample 10; the public dataset has 10$"):
        client.receive(sent(client, *bad))
    assert contents(client.state) == before


def test_the_last_sample_of_the_public_dataset_is_within_it() -> None:
    job = job_of(client_in_round_2(), replace(REUSED, request=i64(SIZE - 1)))
    assert job.request.tolist() == [SIZE - 1]


@pytest.mark.parametrize("value", [np.ones((2, 1), np.float32), np.full((2, 3), 1 / 3, np.float32)])
def test_another_number_of_classes_is_refused_and_changes_nothing(value: Values) -> None:
    client = client_in_round_2()
    before = contents(client.state)
    taught = Labels(TAUGHT.index, value)
    for bad in (
        (broadcast(3, taught, Sync(2, taught.index, i64(1, 1), value, i64())),),
        (REUSED, replace(CATCH_UP, labels=taught)),
    ):
        with pytest.raises(MessageError, match=r"labels of shape \([13],\), not \(2,\)$"):
            client.receive(sent(client, *bad))
        assert contents(client.state) == before


@pytest.mark.parametrize("round", [1, 3, 9])
def test_a_sync_of_another_round_than_the_one_before_is_refused_and_changes_nothing(round: int) -> None:
    client = client_in_round_2()
    before = contents(client.state)
    assert REUSED.sync is not None
    with pytest.raises(MessageError, match=rf"^round 3 comes with the sync of round {round}$"):
        client.receive(sent(client, replace(REUSED, sync=replace(REUSED.sync, round=round))))
    assert contents(client.state) == before


def test_a_round_that_no_stamp_can_hold_is_refused() -> None:
    assert STORED.sync is not None
    for late, fits in ((LAST_ROUND, True), (LAST_ROUND + 1, False), (2**32 - 1, False)):
        client = new_client()
        downlink = sent(client, replace(STORED, round=late, sync=replace(STORED.sync, round=late - 1)))
        if fits:
            assert isinstance(client.receive(downlink), Job)
            assert client.state.downlink.cache.stamp.max() == late - 1
        else:
            with pytest.raises(MessageError):
                client.receive(downlink)


def test_every_wrong_digest_is_answered_by_a_resync_and_stores_nothing() -> None:
    for bit in range(64):
        wrong = (int.from_bytes(STORED.digest, "little") ^ 1 << bit).to_bytes(8, "little")
        client = new_client()
        before = contents(client.state)
        assert says_resync(client, replace(STORED, digest=wrong))
        assert contents(client.state) == before


def test_a_client_whose_cached_label_differs_in_one_bit_says_so() -> None:
    client = client_in_round_2()
    client.state.downlink.cache.value[5, 0] = np.nextafter(np.float32(1), np.float32(0))
    assert says_resync(client, REUSED)


def test_a_client_that_lost_its_cache_says_so_at_the_first_reuse_and_as_often_as_it_is_asked() -> None:
    client = new_client()
    assert says_resync(client, REUSED)
    assert says_resync(client, REUSED)


def test_a_reset_is_obeyed_even_after_an_answer_to_the_same_broadcast() -> None:
    client = client_in_round_2()
    client.reply(job_of(client, REUSED), Result(label([0.5, 0.5]), {}))
    client.state.downlink.cache.stamp[7] = 1
    assert same_labels(job_of(client, REUSED, RESET).teacher, TAUGHT)
    assert client.state.downlink.cache.stamp[7] == ABSENT


def test_a_digest_covers_the_samples_as_well_as_their_labels() -> None:
    assert TAUGHT.digest() != replace(TAUGHT, index=i64(2, 6)).digest()
    assert TAUGHT.digest() != replace(TAUGHT, value=TAUGHT.value[::-1]).digest()
    assert TAUGHT.digest() == Labels(TAUGHT.index.copy(), TAUGHT.value.copy()).digest()


def test_the_digest_of_some_labels_is_frozen() -> None:
    assert TAUGHT.digest().hex() == "db8c4872eacfe5ab"


def test_the_caches_of_a_federation_are_those_of_its_server() -> None:
    federation = Federation(METHODS["scarlet, refresh"]())
    for _ in range(6):
        federation.play()
    held = entries(federation.server.state.downlink.cache)
    federation.open()
    assert [entries(client.state.downlink.cache) for client in federation.clients] == [held] * 4
