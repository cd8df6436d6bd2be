"""Clients that are trained together say what clients that are trained one after another say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from scarlet.arrays import Values
from scarlet.job import Result
from scarlet.protocol.uplink.labels import Answer
from scarlet.training.engines import batched
from scarlet.training.train import Task
from scarlet.transport import client_runner
from scarlet.transport.client_runner import ClientRunner
from scarlet.transport.fault_injection import FaultInjection
from scarlet.transport.local import LocalTransport
from scarlet.transport.transport import Failure
from tests.transport.five_clients import (
    CLIENTS,
    CODEC,
    data,
    exchanged,
    play,
    play_round,
    server,
    setup,
    transport,
)

Answers = Sequence[tuple[int, bytes | Failure]]


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The clients of each piece of work that was done together."""
    seen: list[list[int]] = []
    together = batched.work_together

    def spy(tasks: Sequence[Task], *others: Any) -> list[Result]:
        seen.append([task.job.client for task in tasks])
        return together(tasks, *others)

    monkeypatch.setattr(client_runner, "work_together", spy)
    return seen


def decoded(answers: Answers) -> list[tuple[int, Any]]:
    return [(sender, CODEC.decode(message)) for sender, message in answers if isinstance(message, bytes)]


def labels(answers: Answers) -> dict[int, Values]:
    """The soft-labels that each client sent."""
    return {sender: message.labels.value for sender, message in decoded(answers) if isinstance(message, Answer)}


def kinds(answers: Answers) -> list[tuple[int, str]]:
    """The sender and the kind of each message."""
    return [(sender, type(message).__name__) for sender, message in decoded(answers)]


def one_round(**changes: Any) -> Answers:
    with transport(**changes) as clients:
        return exchanged(clients, server().open_round())


def check_alike(together: Answers, alone: Answers) -> None:
    assert kinds(together) == kinds(alone)
    for client, value in labels(alone).items():
        np.testing.assert_allclose(labels(together)[client], value, atol=1e-3)


@pytest.mark.parametrize(
    ("at_once", "in_memory", "expected"),
    [
        (None, None, []),
        (100, None, [[0, 1, 2, 3, 4]]),
        (2, None, [[0, 1], [2, 3], [4]]),
        (100, 3, [[0, 1, 2], [3, 4]]),
        (3, 1, [[0], [1], [2], [3], [4]]),
    ],
)
def test_as_many_work_together_as_may_and_as_are_in_memory(
    at_once: int | None, in_memory: int | None, expected: list[list[int]], groups: list[list[int]]
) -> None:
    check_alike(one_round(clients_at_once=at_once, clients_in_memory=in_memory), one_round())
    assert groups == expected


@pytest.mark.parametrize(
    ("wanted", "workers", "limit"),
    [(None, 1, 5), (None, 2, 5), (5, 3, 5), (4, 2, 2), (1, 2, 1), (3, 2, 1)],
)
def test_workers_share_the_room_and_where_there_is_enough_none_of_them_spills(
    wanted: int | None, workers: int, limit: int, groups: list[list[int]]
) -> None:
    runner = ClientRunner(setup(clients_in_memory=wanted, clients_at_once=100), data(), {}, workers)
    dict(runner.exchange(server().open_round()))
    runner.close()
    assert max(map(len, groups)) == limit, "those in memory are trained together"


@pytest.mark.parametrize("workers", [1, 2])
def test_clients_that_are_trained_together_go_to_disk_and_come_back(workers: int) -> None:
    expected = play(workers, clients_at_once=2)
    assert play(workers, clients_at_once=2, clients_in_memory=2 * workers) == expected


def test_the_same_clients_are_lost_and_the_same_are_hostile(groups: list[list[int]]) -> None:
    faults = FaultInjection(seed=3, clients=CLIENTS, dropout=0.8, hostile=0.4, attack="random")
    together = one_round(faults=faults, clients_at_once=CLIENTS)
    (trained,) = groups
    assert len(set(dict(together))) < len(trained) < CLIENTS, "some are lost before training, and some after"
    check_alike(together, one_round(faults=faults))


def test_a_client_that_is_asked_again_sends_the_same_bytes_and_is_not_trained_again(groups: list[list[int]]) -> None:
    downlinks = server().open_round()
    with transport(clients_at_once=CLIENTS) as clients:
        some = dict(exchanged(clients, {client: downlinks[client] for client in (1, 3)}))
        everybody = dict(exchanged(clients, downlinks))
        assert {client: everybody[client] for client in (1, 3)} == some
        assert dict(exchanged(clients, downlinks)) == everybody
    assert groups == [[1, 3], [0, 2, 4]]


def test_answers_that_come_too_late_are_kept(groups: list[list[int]]) -> None:
    downlinks = server().open_round()
    with transport(clients_at_once=CLIENTS) as clients:
        assert exchanged(clients, downlinks, until=0.0) == []
        assert len({sender for sender, _ in exchanged(clients, downlinks)}) == CLIENTS
    assert len(groups) == 1


def test_a_client_whose_cache_differs_says_so_while_the_others_are_trained(groups: list[list[int]]) -> None:
    head = server()
    with transport() as clients:
        for _ in range(2):
            play_round(head, clients)
        saved = clients.states([0, 1, 2, 4])
    downlinks, said = head.open_round(), []
    for at_once in (None, CLIENTS):
        with LocalTransport(setup(clients_at_once=at_once), data(), 1, saved=saved) as clients:
            said.append(kinds(exchanged(clients, downlinks)))
    assert groups == [[0, 1, 2, 4]]
    assert said[0] == said[1]
    assert [sender for sender, _ in said[1]] == [0, 0, 1, 1, 2, 2, 3, 4, 4]
    assert (3, "Resync") in said[1]
