"""Clients that lost their cache, servers that ask again, and rounds that are tried again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from scarlet.errors import MessageError
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.protocol.cache import ABSENT
from scarlet.protocol.client import Client, ClientState
from scarlet.protocol.persist import client_arrays, restore_client, restore_server, server_arrays, server_numbers
from scarlet.protocol.server import ClosedRound
from scarlet.protocol.types import Broadcast, CatchUp, Job, Resync, Uplink
from scarlet.wire import frame
from scarlet.wire.ledger import Bytes
from tests.protocol.federation import FEDERATION, METHODS, Reply, Town, entries, memory, same_labels

MODES = ("scarlet, delete", "scarlet, refresh")
HARMED = 1  # the client that things happen to
PAST = 6  # rounds before they do

Misfortune = Callable[[Town, ClientState], None]


def lose_the_disk(town: Town, backup: ClientState) -> None:
    town.clients[HARMED] = town.new_client(HARMED)


def lose_the_labels(town: Town, backup: ClientState) -> None:
    town.clients[HARMED].state.cache.value[:] = 0


def restore_an_old_backup(town: Town, backup: ClientState) -> None:
    town.clients[HARMED].state = deepcopy(backup)


def flip_one_bit_of_each_label(town: Town, backup: ClientState) -> None:
    town.clients[HARMED].state.cache.value.view(np.uint32)[:, 0] ^= 1


MISFORTUNES: tuple[Misfortune, ...] = (
    lose_the_disk,
    lose_the_labels,
    restore_an_old_backup,
    flip_one_bit_of_each_label,
)
each_misfortune = pytest.mark.parametrize("misfortune", MISFORTUNES, ids=lambda misfortune: misfortune.__name__)


def struck(method: str, misfortune: Misfortune) -> tuple[Town, Town, ClosedRound]:
    """A town with a harmed client, its undisturbed twin, and what both were taught last."""
    town, twin = Town(METHODS[method]()), Town(METHODS[method]())
    town.play()
    backup = deepcopy(town.clients[HARMED].state)
    for _ in range(PAST):
        last = town.play()
    for _ in range(PAST + 1):
        twin.play()
    misfortune(town, backup)
    return town, twin, last


@pytest.mark.parametrize("method", MODES)
@each_misfortune
def test_a_harmed_client_is_reset_once_before_it_trains_and_is_then_taught_what_all_are_taught(
    method: str, misfortune: Misfortune
) -> None:
    town, twin, last = struck(method, misfortune)
    for later in range(20):
        town.open()
        assert town.resyncs == ([HARMED] if later == 0 else [])
        assert [job.client for job in town.jobs] == list(range(FEDERATION.clients))
        assert all(same_labels(job.teacher, last.taught) for job in town.jobs)
        for sender, data in town.replies():
            town.server.take(sender, data)
        closed, expected = town.server.close_round(), twin.play()
        assert closed is not None
        assert (closed.resets, closed.answers, closed.rejections) == (int(later == 0), FEDERATION.clients, {})
        assert same_labels(closed.taught, expected.taught)
        assert closed.reports == expected.reports
        assert town.counted() == town.handed  # the second broadcast included
        last = closed


@pytest.mark.parametrize("method", MODES)
@each_misfortune
def test_a_reset_empties_the_cache_and_brings_all_that_the_round_before_reuses(
    method: str, misfortune: Misfortune
) -> None:
    town, _, _ = struck(method, misfortune)
    downlink = town.server.open_round()[HARMED]
    task = town.clients[HARMED].receive(downlink)
    assert not isinstance(task, Job)
    assert [town.codec.decode(data) for data in task] == [Resync(PAST + 2, 0, HARMED)]
    town.server.take(HARMED, task[0])
    (again,) = town.server.resets().values()
    broadcast, reset = frame.split(again)
    assert downlink.startswith(broadcast)
    message, sync = town.codec.decode(reset), town.server.state.sync
    assert isinstance(message, CatchUp)
    assert sync is not None
    assert (message.client, message.reset) == (HARMED, True)
    assert message.labels.index.tolist() == sync.index[sync.signal == 0].tolist()
    assert isinstance(town.clients[HARMED].receive(again), Job)
    stamps = town.clients[HARMED].state.cache.stamp
    assert set(np.flatnonzero(stamps != ABSENT)) <= set(sync.index.tolist())


def test_one_flipped_bit_of_one_label_is_noticed_in_the_first_round_that_reuses_it() -> None:
    town = Town(METHODS["scarlet, refresh"]())
    for _ in range(PAST):
        town.play()
    noticed = 0
    for sample in np.flatnonzero(town.server.state.cache.stamp != ABSENT).tolist():
        copy = deepcopy(town)
        label = copy.clients[HARMED].state.cache.value[sample].view(np.uint32)
        label[2] ^= 1
        for _ in range(5):
            sync = copy.server.state.sync
            assert sync is not None
            reused = sample in sync.index[sync.signal == 0]
            copy.open()
            assert copy.resyncs == ([HARMED] if reused else [])
            noticed += reused
            if reused or sample in sync.index:
                break
            for reply in copy.replies():
                copy.server.take(*reply)
            copy.server.close_round()
    assert noticed > 5


def test_a_client_without_a_cache_to_reuse_is_not_out_of_step() -> None:
    town = Town(METHODS["dsfl"]())
    for _ in range(5):
        lose_the_disk(town, town.clients[HARMED].state)
        assert town.play().resets == 0


def resync(town: Town, client: int, attempt: int = 0) -> bytes:
    return town.codec.encode(Resync(town.server.state.round + 1, attempt, client))


def take_rejected(town: Town, sender: int, data: bytes) -> None:
    before, counted = memory(town.server), town.ledger.round_total("rejected")
    town.server.take(sender, data)
    assert memory(town.server) == before
    assert town.server.resets() == {}
    assert town.ledger.round_total("rejected") == counted + Bytes(0, len(data))


@pytest.mark.parametrize("method", MODES)
def test_a_second_resync_in_a_round_is_counted_and_not_answered(method: str) -> None:
    town, _, _ = struck(method, lose_the_disk)
    town.open()
    assert town.resyncs == [HARMED]
    for _ in range(3):
        take_rejected(town, HARMED, resync(town, HARMED))
    for reply in town.replies():
        town.server.take(*reply)
    take_rejected(town, HARMED, resync(town, HARMED))
    take_rejected(town, 0, resync(town, 0))  # after its answer
    closed = town.server.close_round()
    assert closed is not None
    assert (closed.resets, closed.answers) == (1, FEDERATION.clients)
    assert closed.rejections == {"second reset": 5}


def test_a_second_resync_before_the_first_is_answered_is_counted_too() -> None:
    town, _, _ = struck("scarlet, delete", lose_the_disk)
    (broadcast, *_) = frame.split(town.server.open_round()[HARMED])
    town.server.take(HARMED, resync(town, HARMED))
    before = memory(town.server)
    town.server.take(HARMED, resync(town, HARMED))
    assert memory(town.server) == before
    assert list(town.server.resets()) == [HARMED]
    assert town.server.resets() == {}
    assert town.counted()[HARMED]["downlink"] == 2 * len(broadcast)


def test_each_round_grants_a_reset_of_its_own() -> None:
    town = Town(METHODS["scarlet, refresh"]())
    for _ in range(PAST):
        town.play()
    for _ in range(5):
        lose_the_disk(town, town.clients[HARMED].state)
        closed = town.play()
        assert (closed.resets, closed.answers, closed.rejections) == (1, FEDERATION.clients, {})


def test_a_reset_that_is_lost_is_made_good_by_catch_up_in_the_next_round() -> None:
    town, _, last = struck("scarlet, refresh", restore_an_old_backup)
    town.jobs = []
    for client, downlink in town.server.open_round().items():
        task = town.clients[client].receive(downlink)
        if isinstance(task, Job):
            town.jobs.append(task)
        else:
            town.server.take(client, task[0])
    assert len(town.server.resets()) == 1  # and nobody gets it
    for reply in town.replies():
        town.server.take(*reply)
    closed = town.server.close_round()
    assert closed is not None
    assert closed.answers == FEDERATION.clients - 1
    last = closed
    for _ in range(20):
        town.open()
        assert not town.resyncs
        assert all(same_labels(job.teacher, last.taught) for job in town.jobs)
        for reply in town.replies():
            town.server.take(*reply)
        closed = town.server.close_round()
        assert closed is not None
        last = closed


def test_a_client_with_another_public_set_never_trains_and_both_fingerprints_are_named() -> None:
    federation = replace(FEDERATION, public=bytes.fromhex("0123456789abcdef"))
    town = Town(METHODS["scarlet, refresh"](), federation)
    fingerprint = bytes.fromhex("fedcba9876543210")
    other = Client(0, town.server.method, replace(federation, public=fingerprint), town.codec)
    for _ in range(3):
        downlink = town.server.open_round()[0]
        before = entries(other.state.cache)
        with pytest.raises(MessageError) as caught:
            other.receive(downlink)
        assert caught.value.reason == "other public set"
        assert "fedcba9876543210" in str(caught.value)
        assert "0123456789abcdef" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert entries(other.state.cache) == before
        assert isinstance(town.clients[0].receive(downlink), Job)
        town.play()


@pytest.mark.parametrize("method", METHODS)
def test_a_repeated_downlink_is_answered_by_the_same_bytes_even_after_a_restart(method: str) -> None:
    town = Town(METHODS[method]())
    for _ in range(8):
        downlinks = town.server.open_round()
        town.jobs = []
        for number, downlink in downlinks.items():
            task = town.clients[number].receive(downlink)
            assert isinstance(task, Job)
            town.jobs.append(task)
        replies = town.replies()
        for client in town.clients:
            said = [data for sender, data in replies if sender == client.number]
            assert client.receive(downlinks[client.number]) == said
            restarted = town.new_client(client.number)
            restore_client(restarted.state, client_arrays(client.state))
            assert restarted.receive(downlinks[client.number]) == said
            assert entries(restarted.state.cache) == entries(client.state.cache)
            town.clients[client.number] = restarted
        for reply in replies:
            town.server.take(*reply)
        town.server.close_round()


def test_a_server_that_died_in_a_round_asks_again_and_nothing_is_trained_twice() -> None:
    """It comes back from the end of the round before, and opens the round again: the same bytes."""
    town = Town(METHODS["scarlet, delete"]())
    for _ in range(PAST):
        town.play()
    arrays = deepcopy(server_arrays(town.server.state))
    numbers = json.loads(json.dumps(server_numbers(town.server.state, town.ledger)))
    before = memory(town.server)
    town.open()
    replies = town.replies()
    for reply in replies[:5]:
        town.server.take(*reply)

    again = Town(METHODS["scarlet, delete"]())
    restore_server(again.server.state, again.ledger, arrays, numbers)
    assert memory(again.server)[:-1] == before[:-1]  # all but the bytes of each client in a round that is over
    for number, downlink in again.server.open_round().items():
        task = town.clients[number].receive(downlink)
        assert not isinstance(task, Job)
        for data in task:
            again.server.take(number, data)
    for reply in replies[5:]:
        town.server.take(*reply)
    expected, closed = town.server.close_round(), again.server.close_round()
    assert expected is not None
    assert closed is not None
    assert same_labels(closed.taught, expected.taught)
    assert memory(again.server) == memory(town.server)


STRICT = replace(FEDERATION, clients=8, participation=0.5, min_answers=3)


@pytest.fixture(params=MODES)
def failed(request: pytest.FixtureRequest) -> Iterator[tuple[Town, list[Job], tuple[object, ...]]]:
    """A town after an attempt with two answers where three are needed; its jobs, and the state before."""
    town = Town(METHODS[request.param](), STRICT)
    for _ in range(PAST):
        town.play()
    before = memory(town.server)
    town.open()
    jobs = town.jobs
    two = {job.client for job in jobs[:2]}
    for sender, data in town.replies():
        if sender in two:
            town.server.take(sender, data)
    assert town.server.close_round() is None
    yield town, jobs, before


Failed = tuple[Town, list[Job], tuple[object, ...]]


def test_too_few_answers_change_nothing_but_the_attempt_and_what_is_acknowledged(failed: Failed) -> None:
    town, jobs, before = failed
    after = memory(town.server)
    value, stamp, acknowledged, drawn, round, attempt, *rest = after
    assert (value, stamp, drawn, round) == (before[0], before[1], before[3], before[4])
    assert (before[5], attempt) == (0, 1)
    assert rest[:2] == list(before[6:8])  # the sync and the digest
    newly = np.array(acknowledged, np.uint64) & ~np.array(before[2], np.uint64)
    assert np.flatnonzero(newly.any(axis=1)).tolist() == [job.client for job in jobs[:2]]
    assert {int(bits).bit_count() for bits in newly[newly != 0]} == {1}


def test_the_next_attempt_has_its_own_number_and_its_own_draws(failed: Failed) -> None:
    town, jobs, _ = failed
    downlinks = town.server.open_round()
    (first, *_) = downlinks.values()
    broadcast = town.codec.decode(frame.split(first)[0])
    assert isinstance(broadcast, Broadcast)
    assert (broadcast.round, broadcast.attempt) == (PAST + 1, 1)
    assert set(downlinks) != {job.client for job in jobs}
    assert broadcast.request.tolist() != jobs[0].request.tolist()


def test_who_answered_the_failed_attempt_is_not_caught_up_again(failed: Failed) -> None:
    town, jobs, _ = failed
    sync = town.server.state.sync
    assert sync is not None
    hits = sync.index[sync.signal == 0]
    assert len(hits)
    for job in jobs[:2]:
        assert not town.server.state.holdings.lacks(job.client, hits).any()


def test_an_answer_to_the_failed_attempt_is_of_another_round(failed: Failed) -> None:
    town, jobs, _ = failed
    late = [(job.client, town.clients[job.client].state.reply[0]) for job in jobs]
    town.open()
    asked = {job.client for job in town.jobs}
    for sender, data in late:
        take_rejected(town, sender, data)
    for reply in town.replies():
        town.server.take(*reply)
    closed = town.server.close_round()
    assert closed is not None
    strangers = sum(sender not in asked for sender, _ in late)
    assert strangers < len(late)
    assert closed.rejections == {
        reason: count
        for reason, count in (("wrong round", len(late) - strangers), ("unknown client", strangers))
        if count
    }


def test_the_attempt_that_succeeds_says_so_and_the_next_round_starts_from_0(failed: Failed) -> None:
    town, _, _ = failed
    for attempt in (1, 2):
        town.open()
        if attempt == 2:
            for reply in town.replies():
                town.server.take(*reply)
        closed = town.server.close_round()
        assert (closed is None) == (attempt == 1)
    assert closed is not None
    assert (closed.round, closed.attempt, closed.answers) == (PAST + 1, 2, STRICT.asked)
    town.open()
    assert {(job.round, job.attempt) for job in town.jobs} == {(PAST + 2, 0)}
    assert all(same_labels(job.teacher, closed.taught) for job in town.jobs)
    assert not town.resyncs


def test_as_many_answers_as_are_needed_are_enough() -> None:
    town = Town(METHODS["dsfl"](), STRICT)

    def three(replies: list[Reply]) -> list[Reply]:
        return [reply for reply in replies if reply[0] in {job.client for job in town.jobs[:3]}]

    assert town.play(arrange=three).answers == 3


def test_an_answer_that_is_rejected_is_none_of_those_that_are_needed() -> None:
    town = Town(METHODS["dsfl"](), STRICT)
    town.open()
    replies = [reply for reply in town.replies() if isinstance(town.codec.decode(reply[1]), Uplink)]
    for sender, data in replies[:2]:
        town.server.take(sender, data)
        town.server.take(sender, data)
    town.server.take(replies[2][0], replies[2][1][:-1])
    assert town.server.close_round() is None


def test_what_a_failed_attempt_rejected_and_cost_is_counted_with_the_round() -> None:
    town = Town(METHODS["scarlet, refresh"](), STRICT)
    town.open()
    town.server.take(town.jobs[0].client, b"junk")
    assert town.server.close_round() is None
    closed = town.play()
    assert (closed.attempt, closed.rejections) == (1, {"unreadable": 1})
    for column in ("uplink", "downlink", "rejected"):
        assert town.ledger.round_total(column) == town.ledger.total[column]


def test_a_server_that_restarts_between_two_attempts_goes_on_with_the_second(failed: Failed) -> None:
    town, _, _ = failed
    again = Town(town.server.method, STRICT)
    numbers = json.loads(json.dumps(server_numbers(town.server.state, town.ledger)))
    restore_server(again.server.state, again.ledger, deepcopy(server_arrays(town.server.state)), numbers)
    assert again.server.open_round() == town.server.open_round()


def test_a_new_server_saves_and_restores_as_well() -> None:
    town, again = (Town(scarlet(ScarletConfig())) for _ in range(2))
    restore_server(
        again.server.state,
        again.ledger,
        server_arrays(town.server.state),
        server_numbers(town.server.state, town.ledger),
    )
    assert memory(again.server) == memory(town.server)
    assert again.server.open_round() == town.server.open_round()
