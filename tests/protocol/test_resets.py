"""Clients that lost their cache or restored an old one, and servers that ask again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scarlet.arrays import Array
from scarlet.errors import MessageError
from scarlet.job import Job
from scarlet.protocol.cache import ABSENT
from scarlet.protocol.client import Client
from scarlet.protocol.messages import CatchUp, Resync
from scarlet.protocol.server import ClosedRound
from scarlet.protocol.state import restore
from scarlet.wire import frame
from scarlet.wire.ledger import Bytes
from tests.protocol.federation import AGREEMENT, METHODS, Federation, contents, entries, memory, same_labels, saved

MODES = ("scarlet, delete", "scarlet, refresh")
HARMED = 1  # the client that things happen to
PAST = 6  # rounds before they do

Misfortune = Callable[[Federation, Mapping[str, Array]], None]


def lose_the_disk(federation: Federation, backup: Mapping[str, Array]) -> None:
    federation.clients[HARMED] = federation.new_client(HARMED)


def lose_the_labels(federation: Federation, backup: Mapping[str, Array]) -> None:
    federation.clients[HARMED].state.downlink.cache.value[:] = 0


def restore_an_old_backup(federation: Federation, backup: Mapping[str, Array]) -> None:
    federation.restore_client(HARMED, backup)


def flip_one_bit_of_each_label(federation: Federation, backup: Mapping[str, Array]) -> None:
    federation.clients[HARMED].state.downlink.cache.value.view(np.uint32)[:, 0] ^= 1


MISFORTUNES: tuple[Misfortune, ...] = (
    lose_the_disk,
    lose_the_labels,
    restore_an_old_backup,
    flip_one_bit_of_each_label,
)
each_misfortune = pytest.mark.parametrize("misfortune", MISFORTUNES, ids=lambda misfortune: misfortune.__name__)
each_mode = pytest.mark.parametrize("method", MODES)


def struck(method: str, misfortune: Misfortune) -> tuple[Federation, Federation, ClosedRound]:
    """A federation with a harmed client, its undisturbed twin, and what both were taught last."""
    federation, twin = Federation(METHODS[method]()), Federation(METHODS[method]())
    federation.play()
    backup = saved(federation.clients[HARMED].state)
    for _ in range(PAST):
        last = federation.play()
    for _ in range(PAST + 1):
        twin.play()
    misfortune(federation, backup)
    return federation, twin, last


@each_mode
@each_misfortune
def test_a_harmed_client_is_reset_once_before_it_trains_and_is_then_taught_what_all_are_taught(
    method: str, misfortune: Misfortune
) -> None:
    federation, twin, last = struck(method, misfortune)
    for later in range(20):
        federation.open()
        assert federation.resyncs == ([HARMED] if later == 0 else [])
        assert [job.client for job in federation.jobs] == list(range(AGREEMENT.clients))
        assert all(same_labels(job.teacher, last.taught) for job in federation.jobs)
        federation.take(federation.replies())
        closed, expected = federation.close(), twin.play()
        assert (closed.resets, closed.answers, closed.rejections) == (int(later == 0), AGREEMENT.clients, {})
        assert same_labels(closed.taught, expected.taught)
        assert closed.reports == expected.reports
        assert federation.counted() == federation.handed  # the second broadcast included
        last = closed


@each_mode
@each_misfortune
def test_a_reset_empties_the_cache_and_brings_all_that_the_round_before_reuses(
    method: str, misfortune: Misfortune
) -> None:
    federation, _, _ = struck(method, misfortune)
    server, harmed = federation.server, federation.clients[HARMED]
    downlink = server.open_round()[HARMED]
    task = harmed.receive(downlink)
    assert not isinstance(task, Job)
    assert [federation.codec.decode(data) for data in task] == [Resync(PAST + 2, 0, HARMED)]
    server.take(HARMED, task[0])
    (again,) = server.resets().values()
    broadcast, reset = frame.split(again)
    assert downlink.startswith(broadcast)
    message, sync = federation.codec.decode(reset), server.state.downlink.sync
    assert isinstance(message, CatchUp)
    assert (message.client, message.reset) == (HARMED, True)
    assert message.labels.index.tolist() == sync.index[sync.signal == 0].tolist()
    assert isinstance(harmed.receive(again), Job)
    stamps = harmed.state.downlink.cache.stamp
    assert set(np.flatnonzero(stamps != ABSENT)) <= set(sync.index.tolist())


def test_one_flipped_bit_of_one_label_is_noticed_in_the_first_round_that_reuses_it() -> None:
    federation = Federation(METHODS["scarlet, refresh"]())
    for _ in range(PAST):
        federation.play()
    noticed = 0
    for sample in np.flatnonzero(federation.server.state.downlink.cache.stamp != ABSENT).tolist():
        copy = deepcopy(federation)
        label = copy.clients[HARMED].state.downlink.cache.value[sample].view(np.uint32)
        label[2] ^= 1
        for _ in range(5):
            sync = copy.server.state.downlink.sync
            reused = sample in sync.index[sync.signal == 0]
            copy.open()
            assert copy.resyncs == ([HARMED] if reused else [])
            noticed += reused
            if reused or sample in sync.index:
                break
            copy.take(copy.replies())
            copy.close()
    assert noticed > 5


def test_a_client_without_a_cache_to_reuse_is_not_out_of_step() -> None:
    federation = Federation(METHODS["dsfl"]())
    for _ in range(5):
        lose_the_disk(federation, {})
        assert federation.play().resets == 0


def resync(federation: Federation, client: int) -> bytes:
    return federation.codec.encode(Resync(federation.server.state.round + 1, 0, client))


def take_rejected(federation: Federation, sender: int, data: bytes) -> None:
    before, counted = memory(federation.server), federation.ledger.round_total("rejected")
    federation.server.take(sender, data)
    assert memory(federation.server) == before
    assert federation.server.resets() == {}
    assert federation.ledger.round_total("rejected") == counted + Bytes(0, len(data))


@each_mode
def test_a_second_resync_in_a_round_is_counted_and_not_answered(method: str) -> None:
    federation, _, _ = struck(method, lose_the_disk)
    federation.open()
    assert federation.resyncs == [HARMED]
    for _ in range(3):
        take_rejected(federation, HARMED, resync(federation, HARMED))
    federation.take(federation.replies())
    take_rejected(federation, HARMED, resync(federation, HARMED))
    take_rejected(federation, 0, resync(federation, 0))  # after its answer
    closed = federation.close()
    assert (closed.resets, closed.answers) == (1, AGREEMENT.clients)
    assert closed.rejections == {"second reset": 5}


def test_a_second_resync_before_the_first_is_answered_is_counted_too() -> None:
    federation, _, _ = struck("scarlet, delete", lose_the_disk)
    server = federation.server
    (broadcast, *_) = frame.split(server.open_round()[HARMED])
    server.take(HARMED, resync(federation, HARMED))
    before = memory(server)
    server.take(HARMED, resync(federation, HARMED))
    assert memory(server) == before
    assert list(server.resets()) == [HARMED]
    assert server.resets() == {}
    assert federation.counted()[HARMED]["downlink"] == 2 * len(broadcast)


def test_each_round_grants_a_reset_of_its_own() -> None:
    federation = Federation(METHODS["scarlet, refresh"]())
    for _ in range(PAST):
        federation.play()
    for _ in range(5):
        lose_the_disk(federation, {})
        closed = federation.play()
        assert (closed.resets, closed.answers, closed.rejections) == (1, AGREEMENT.clients, {})


def test_a_reset_that_is_lost_is_made_good_by_catch_up_in_the_next_round() -> None:
    federation, _, _ = struck("scarlet, refresh", restore_an_old_backup)
    federation.jobs = []
    for client, downlink in federation.server.open_round().items():
        task = federation.clients[client].receive(downlink)
        if isinstance(task, Job):
            federation.jobs.append(task)
        else:
            federation.server.take(client, task[0])
    assert len(federation.server.resets()) == 1  # and nobody gets it
    federation.take(federation.replies())
    last = federation.close()
    assert last.answers == AGREEMENT.clients - 1
    for _ in range(20):
        federation.open()
        assert not federation.resyncs
        assert all(same_labels(job.teacher, last.taught) for job in federation.jobs)
        federation.take(federation.replies())
        last = federation.close()


@pytest.mark.parametrize("change", [{"public": "cafe"}, {"nonce": "1"}, {"rounds": 7}, {"method": "{}"}, {"seed": 6}])
def test_a_client_of_another_experiment_never_trains_and_both_digests_are_named(change: dict[str, Any]) -> None:
    agreement = replace(AGREEMENT, public="c0ffee")
    federation = Federation(METHODS["scarlet, refresh"](), agreement)
    theirs = replace(agreement, **change)
    other = Client(0, federation.method, theirs, federation.codec)
    for _ in range(3):
        downlink = federation.server.open_round()[0]
        before = contents(other.state)
        with pytest.raises(MessageError) as caught:
            other.receive(downlink)
        assert caught.value.reason == "other experiment"
        assert agreement.digest.hex() in str(caught.value)
        assert theirs.digest.hex() in str(caught.value)
        assert "\n" not in str(caught.value)
        assert contents(other.state) == before
        assert isinstance(federation.clients[0].receive(downlink), Job)
        federation.play()


@pytest.mark.parametrize("method", METHODS)
def test_a_repeated_downlink_is_answered_by_the_same_bytes_even_after_a_restart(method: str) -> None:
    federation = Federation(METHODS[method]())
    for _ in range(8):
        downlinks = federation.server.open_round()
        federation.jobs = []
        federation.deliver(downlinks)
        assert not federation.resyncs
        replies = federation.replies()
        for number, client in enumerate(list(federation.clients)):
            said = [data for sender, data in replies if sender == number]
            assert client.receive(downlinks[number]) == said
            federation.restore_client(number, saved(client.state))
            assert federation.clients[number].receive(downlinks[number]) == said
            restarted, before = federation.clients[number].state, client.state
            assert entries(restarted.downlink.cache) == entries(before.downlink.cache)
        federation.take(replies)
        federation.close()


def test_a_server_that_died_in_a_round_asks_again_and_nothing_is_trained_twice() -> None:
    """It comes back from the end of the round before, and opens the round again: the same bytes."""
    federation = Federation(METHODS["scarlet, delete"]())
    for _ in range(PAST):
        federation.play()
    arrays, totals = saved(federation.server.state), dict(federation.ledger.total)
    before = memory(federation.server)
    federation.open()
    replies = federation.replies()
    federation.take(replies[:5])

    again = Federation(METHODS["scarlet, delete"]())
    restore(again.server.state, arrays)
    again.ledger.total.update(totals)
    assert memory(again.server)[:-1] == before[:-1]  # all but the bytes of each client in a round that is over
    for number, downlink in again.server.open_round().items():
        task = federation.clients[number].receive(downlink)
        assert not isinstance(task, Job)
        for data in task:
            again.server.take(number, data)
    federation.take(replies[5:])
    assert same_labels(again.close().taught, federation.close().taught)
    assert memory(again.server) == memory(federation.server)
