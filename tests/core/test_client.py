from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from scarlet.core.client import Client
from scarlet.core.types import Broadcast, Index, Labels, Report, Result, Sync, Uplink, Values
from scarlet.errors import MessageError
from scarlet.wire.codec import Reference
from tests.core.federation import METHODS, Town, entries, same_labels, soft_labels

CODEC = Reference()
SIZE, CLASSES = 10, 2


def i64(*numbers: int) -> Index:
    return np.array(numbers, np.int64)


def label(*rows: list[float]) -> Values:
    return np.array(rows, np.float32).reshape(len(rows), CLASSES)


def broadcast(round: int, taught: Labels, sync: Sync, request: Index | None = None) -> Broadcast:
    return Broadcast(round, 0, i64(0) if request is None else request, sync, taught.digest())


TAUGHT = Labels(i64(2, 5), label([0.25, 0.75], [1, 0]))
STORED = broadcast(2, TAUGHT, Sync(1, TAUGHT.index, i64(1, 1), TAUGHT.value, i64()))
REUSED = broadcast(3, TAUGHT, Sync(2, TAUGHT.index, i64(0, 0), label(), i64()))


def new_client() -> Client:
    return Client(4, SIZE, CLASSES, CODEC)


def client_in_round_2() -> Client:
    client = new_client()
    client.receive(CODEC.encode(STORED))
    return client


def test_the_first_round_has_nothing_to_teach() -> None:
    job = new_client().receive(CODEC.encode(Broadcast(1, 0, i64(1, 8), None, bytes(8))))
    assert (job.client, job.round, job.request.tolist()) == (4, 1, [1, 8])
    assert job.teacher.index.shape == (0,)
    assert job.teacher.value.shape == (0, CLASSES)


def test_labels_that_were_stored_in_one_round_are_recalled_in_the_next() -> None:
    client = new_client()
    assert same_labels(client.receive(CODEC.encode(STORED)).teacher, TAUGHT)
    assert client.state.round == 2
    assert same_labels(client.receive(CODEC.encode(REUSED)).teacher, TAUGHT)
    assert client.state.round == 3


@pytest.mark.parametrize("method", METHODS)
def test_a_downlink_that_arrives_twice_gives_the_same_job_and_the_same_cache(method: str) -> None:
    town = Town(METHODS[method]())
    for _ in range(15):
        downlink = town.server.open_round()[0]
        first = town.clients[0].receive(downlink)
        once = entries(town.clients[0].state.cache)
        second = town.clients[0].receive(downlink)
        assert same_labels(first.teacher, second.teacher)
        assert first.request.tolist() == second.request.tolist()
        assert entries(town.clients[0].state.cache) == once
        for data in town.clients[0].reply(first, Result(soft_labels(0, first.round, first.request), {})):
            town.server.take(0, data)
        town.server.close_round()


@pytest.mark.parametrize(
    "bad",
    [
        replace(REUSED, request=i64(0, SIZE)),
        broadcast(3, TAUGHT, Sync(2, i64(2, SIZE), i64(1, 1), TAUGHT.value, i64())),
        broadcast(3, TAUGHT, Sync(2, i64(2, SIZE), None, TAUGHT.value, i64())),
        broadcast(3, TAUGHT, Sync(2, i64(2, 5), i64(1, 1), TAUGHT.value, i64(3, SIZE))),
        Broadcast(3, 0, i64(SIZE), None, bytes(8)),
    ],
    ids=["requested", "cached", "taught without a cache", "dropped", "in the first round"],
)
def test_a_sample_beyond_the_public_set_is_refused_and_changes_nothing(bad: Broadcast) -> None:
    client = client_in_round_2()
    before = entries(client.state.cache)
    with pytest.raises(MessageError, match=r"^the broadcast names sample 10; this client's public set has 10$"):
        client.receive(CODEC.encode(bad))
    assert (entries(client.state.cache), client.state.round) == (before, 2)


def test_the_last_sample_of_the_public_set_is_within_it() -> None:
    job = client_in_round_2().receive(CODEC.encode(replace(REUSED, request=i64(SIZE - 1))))
    assert job.request.tolist() == [SIZE - 1]


@pytest.mark.parametrize("value", [np.ones((2, 1), np.float32), np.full((2, 3), 1 / 3, np.float32)])
def test_another_number_of_classes_is_refused_and_changes_nothing(value: Values) -> None:
    client = client_in_round_2()
    before = entries(client.state.cache)
    taught = Labels(TAUGHT.index, value)
    with pytest.raises(MessageError, match=rf"has {value.shape[1]} classes where there are 2$"):
        client.receive(CODEC.encode(broadcast(3, taught, Sync(2, taught.index, i64(1, 1), value, i64()))))
    assert (entries(client.state.cache), client.state.round) == (before, 2)


def test_every_wrong_digest_is_refused() -> None:
    for bit in range(64):
        wrong = (int.from_bytes(STORED.digest, "little") ^ 1 << bit).to_bytes(8, "little")
        client = new_client()
        with pytest.raises(MessageError, match=r"^client 4 holds other labels of round 1 than the server$"):
            client.receive(CODEC.encode(replace(STORED, digest=wrong)))
        assert client.state.round == 0


def test_a_client_whose_cached_label_differs_in_one_bit_notices() -> None:
    client = client_in_round_2()
    client.state.cache.value[5, 0] = np.nextafter(np.float32(1), np.float32(0))
    with pytest.raises(MessageError, match="holds other labels of round 2"):
        client.receive(CODEC.encode(REUSED))


def test_a_digest_covers_the_samples_as_well_as_their_labels() -> None:
    assert TAUGHT.digest() != replace(TAUGHT, index=i64(2, 6)).digest()
    assert TAUGHT.digest() != replace(TAUGHT, value=TAUGHT.value[::-1]).digest()
    assert TAUGHT.digest() == Labels(TAUGHT.index.copy(), TAUGHT.value.copy()).digest()


def test_the_digest_of_some_labels_is_frozen() -> None:
    assert TAUGHT.digest().hex() == "db8c4872eacfe5ab"


def test_a_client_that_lost_its_cache_notices_the_first_reuse() -> None:
    with pytest.raises(MessageError, match="reuses 2 samples that are not in the cache, first 2"):
        new_client().receive(CODEC.encode(REUSED))


@pytest.mark.parametrize("message", [Uplink(1, 0, 0, TAUGHT), Report(1, 0, 0, {})], ids=["Uplink", "Report"])
def test_a_message_that_is_no_broadcast_is_refused_by_name(message: Uplink | Report) -> None:
    with pytest.raises(MessageError, match=rf"^client 4 was sent a {type(message).__name__}, not a Broadcast$"):
        new_client().receive(CODEC.encode(message))


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(MessageError):
        new_client().receive(CODEC.encode(STORED)[:-1])


def test_the_reply_labels_the_request_and_reports_apart() -> None:
    client = new_client()
    job = client.receive(CODEC.encode(Broadcast(1, 7, i64(1, 8), None, bytes(8))))
    answer = Result(label([0.5, 0.5], [0, 1]), {"loss": 0.5, "accuracy": math.nan, "norm": math.inf})
    uplink, report = (CODEC.decode(data) for data in client.reply(job, answer))
    assert isinstance(uplink, Uplink)
    assert (uplink.round, uplink.attempt, uplink.client) == (1, 7, 4)
    assert same_labels(uplink.labels, Labels(i64(1, 8), answer.value))
    assert report == Report(1, 7, 4, {"loss": 0.5})  # what is not a number is not reported


def test_the_reply_to_an_empty_request_is_an_empty_answer() -> None:
    client = client_in_round_2()
    job = client.receive(CODEC.encode(replace(REUSED, request=i64())))
    uplink, _ = (CODEC.decode(data) for data in client.reply(job, Result(label(), {})))
    assert isinstance(uplink, Uplink)
    assert uplink.labels.value.shape == (0, CLASSES)
