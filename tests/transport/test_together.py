"""A host that trains its clients together says what one that trains them one after another says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from scarlet.protocol.types import Result, Uplink
from scarlet.training.batched import Task
from scarlet.transport import client_runner as host
from scarlet.transport.client_runner import Setup
from scarlet.transport.fault_injection import Troubles
from scarlet.transport.local import LocalTransport
from scarlet.wire.codecs import codec
from tests.transport.test_local import CLIENTS, data, one_thread, play, server, setup

__all__ = ["one_thread"]

Kinds = list[tuple[int, str]]  # sender and kind of each message


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The clients of each piece of work that was done together."""
    seen: list[list[int]] = []
    together = host.work_together

    def spy(tasks: Sequence[Task], *others: object) -> list[Result]:
        seen.append([task.job.client for task in tasks])
        return together(tasks, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(host, "work_together", spy)
    return seen


def labels(answers: Sequence[tuple[int, bytes]]) -> dict[int, np.ndarray]:
    """The soft-labels that each client sent."""
    decoded = ((sender, codec("reference").decode(message)) for sender, message in answers)
    return {sender: message.labels.value for sender, message in decoded if isinstance(message, Uplink)}


def one_round(how: Setup) -> list[tuple[int, bytes]]:
    with LocalTransport(how, data(), 1) as transport:
        return list(transport.exchange(server().open_round()))


def kinds(answers: Sequence[tuple[int, bytes]]) -> Kinds:
    return [(sender, type(codec("reference").decode(message)).__name__) for sender, message in answers]


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
    alone = one_round(setup())
    together = one_round(replace(setup(), at_once=at_once, clients_in_memory=in_memory))
    assert groups == expected
    assert kinds(together) == kinds(alone)
    for client, value in labels(alone).items():
        np.testing.assert_allclose(labels(together)[client], value, atol=1e-3)


@pytest.mark.parametrize("workers", [1, 2])
def test_clients_that_are_trained_together_go_to_disk_and_come_back(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = replace(setup(), at_once=2)
    monkeypatch.setattr("tests.transport.test_local.setup", lambda: pairs)
    expected = play(workers)
    spilling = replace(pairs, clients_in_memory=2 * workers)
    monkeypatch.setattr("tests.transport.test_local.setup", lambda: spilling)
    assert play(workers) == expected


def test_the_same_clients_are_lost_and_the_same_are_hostile(groups: list[list[int]]) -> None:
    troubles = Troubles(seed=3, clients=CLIENTS, dropout=0.8, hostile=0.4, attack="random")
    alone = one_round(replace(setup(), troubles=troubles))
    together = one_round(replace(setup(), troubles=troubles, at_once=CLIENTS))
    (trained,) = groups
    assert len(set(dict(together))) < len(trained) < CLIENTS, "some are lost before training, and some after"
    assert kinds(together) == kinds(alone)
    for client, value in labels(alone).items():
        np.testing.assert_allclose(labels(together)[client], value, atol=1e-3)


def test_a_client_that_is_asked_again_sends_the_same_bytes_and_is_not_trained_again(groups: list[list[int]]) -> None:
    downlinks = server().open_round()
    with LocalTransport(replace(setup(), at_once=CLIENTS), data(), 1) as transport:
        some = dict(transport.exchange({client: downlinks[client] for client in (1, 3)}))
        everybody = dict(transport.exchange(downlinks))
        assert {client: everybody[client] for client in (1, 3)} == some
        assert dict(transport.exchange(downlinks)) == everybody
    assert groups == [[1, 3], [0, 2, 4]]


def test_answers_that_come_too_late_are_kept(groups: list[list[int]]) -> None:
    downlinks = server().open_round()
    with LocalTransport(replace(setup(), at_once=CLIENTS), data(), 1) as transport:
        for _ in transport.exchange(downlinks):
            break
        assert len({sender for sender, _ in transport.exchange(downlinks)}) == CLIENTS
    assert len(groups) == 1


def test_a_client_whose_cache_differs_says_so_while_the_others_are_trained(groups: list[list[int]]) -> None:
    head = server()
    with LocalTransport(setup(), data(), 1) as transport:
        for _ in range(2):
            for sender, message in transport.exchange(head.open_round()):
                head.take(sender, message)
            head.close_round()
        saved = transport.states([0, 1, 2, 4])
    downlinks, said = head.open_round(), []
    for at_once in (None, CLIENTS):
        with LocalTransport(replace(setup(), at_once=at_once), data(), 1, saved=saved) as transport:
            said.append(kinds(list(transport.exchange(downlinks))))
    assert groups == [[0, 1, 2, 4]]
    assert said[0] == said[1]
    assert [sender for sender, _ in said[1]] == [0, 0, 1, 1, 2, 2, 3, 4, 4]
    assert (3, "Resync") in said[1]
