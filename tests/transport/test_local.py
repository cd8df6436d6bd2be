from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib.format import open_memmap
from torch import nn

from scarlet.arrays import Inputs
from scarlet.errors import ConfigError
from scarlet.training.engines.choice import Engine
from scarlet.training.tensors import weights_digest
from scarlet.transport.fault_injection import FaultInjection
from scarlet.transport.local import worker_count
from scarlet.transport.transport import Failure, Overhead, States
from scarlet.transport.worker import Worker
from tests.transport.five_clients import (
    CLASSES,
    CLIENTS,
    EVERYBODY,
    SHAPE,
    Said,
    data,
    exchanged,
    kind,
    of_pools,
    play,
    play_round,
    server,
    transport,
)

PAST = 0.0  # a deadline that is over


@pytest.fixture(scope="module")
def in_process() -> tuple[list[Said], list[bytes]]:
    return play(workers=1)


@pytest.fixture
def asked_for(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What workers are asked for."""
    seen: list[str] = []
    ask = Worker.ask

    def spy(worker: Worker, what: str, about: object) -> None:
        seen.append(what)
        ask(worker, what, about)

    monkeypatch.setattr(Worker, "ask", spy)
    return seen


@pytest.mark.parametrize("workers", [2, 3])
def test_messages_and_weights_are_the_same_bytes_whatever_the_number_of_workers(
    workers: int, in_process: tuple[list[Said], list[bytes]]
) -> None:
    assert play(workers) == in_process


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("limit", [1, 2])
def test_messages_and_weights_are_the_same_bytes_however_many_clients_are_in_memory(
    workers: int, limit: int, in_process: tuple[list[Said], list[bytes]]
) -> None:
    assert play(workers, clients_in_memory=limit) == in_process


@pytest.mark.parametrize("workers", [1, 2])
def test_it_is_all_the_same_how_the_images_that_are_given_lie_in_memory(
    workers: int, in_process: tuple[list[Said], list[bytes]]
) -> None:
    def turned(images: Inputs) -> Inputs:
        return images.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)

    given = data()
    assert given.held_out is not None
    train, test = given.train[0].of, given.held_out.of
    other = of_pools(
        train._replace(inputs=turned(train.inputs)), test._replace(inputs=turned(test.inputs)), turned(given.public)
    )
    assert play(workers, other) == in_process


def play_with_some(workers: int) -> tuple[list[Said], list[bytes], dict[int, dict[str, bytes]]]:
    """What is said where only some take part, and the digests and states in the end."""
    head, rounds = server(), []
    turned = Engine("channels-last", "", channels_last=True).applied_to(kind().factory)
    with transport(workers, factory=turned, channels_last=True) as clients:
        for asked in ({0, 2, 4}, {0, 3}, {1, 3}, {0, 4}, {0, 1, 2, 3, 4}):
            clients.collect()
            rounds.append(play_round(head, clients, asked))
        states = dict(clients.states(EVERYBODY)) | dict(clients.states(EVERYBODY))
        held = {k: {name: array.tobytes() for name, array in own.items()} for k, own in states.items()}
        return rounds, clients.digests(), held


@pytest.mark.parametrize("workers", [2, 3])
def test_clients_go_where_there_is_less_to_do_and_what_they_say_is_the_same(workers: int, asked_for: list[str]) -> None:
    assert play_with_some(workers) == play_with_some(1)
    assert "take over" in asked_for


def test_clients_that_are_trained_together_stay_where_they_are(asked_for: list[str]) -> None:
    downlinks = server().open_round()
    for at_once in (2, None):
        with transport(2, clients_at_once=at_once) as clients:
            exchanged(clients, {client: downlinks[client] for client in (0, 2, 4)})
        assert ("take over" in asked_for) == (at_once is None)


def test_what_the_pipes_add_is_counted_once_and_nothing_is_added_within_the_process() -> None:
    for workers in (1, 2):
        with transport(workers) as clients:
            downlinks = server().open_round()
            answers = exchanged(clients, downlinks)
            added = clients.overhead()
            if workers == 2:
                assert added.uplink > 4 * len(answers) and added.downlink > 2 * len(downlinks)
            else:
                assert added == Overhead(0, 0)
            assert added.uplink < 40 * len(answers) and added.downlink < 40 * len(downlinks)
            assert clients.overhead() == Overhead(0, 0)


def test_every_client_says_two_things_a_round_and_no_client_says_what_another_says(
    in_process: tuple[list[Said], list[bytes]],
) -> None:
    rounds, digests = in_process
    assert all(len(messages) == 2 for said in rounds for messages in said.values())
    assert len({messages[0] for said in rounds for messages in said.values()}) == 4 * CLIENTS
    assert len(set(digests)) == CLIENTS


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_all_clients_start_from_the_weights_they_are_given(workers: int) -> None:
    with transport(workers) as clients:
        assert clients.digests() == [weights_digest(kind().weights)] * CLIENTS
        assert list(clients.available()) == list(EVERYBODY) and clients.local is clients


@pytest.mark.parametrize("limit", [1, None])
def test_only_clients_that_were_asked_have_a_state_and_the_others_have_the_first_weights(limit: int | None) -> None:
    with transport(2, clients_in_memory=limit) as clients:
        downlinks = server().open_round()
        exchanged(clients, {k: downlinks[k] for k in (1, 3)})
        assert set(clients.states(EVERYBODY)) == {1, 3}
        first, digests = weights_digest(kind().weights), clients.digests()
        assert [digest == first for digest in digests] == [True, False, True, False, True]


def test_the_files_that_hand_over_the_data_are_gone_once_the_workers_have_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Path] = []

    def spied(write: Callable[..., Any]) -> Callable[..., Any]:
        def spy(path: Path, *others: Any) -> Any:
            written.append(Path(path))
            return write(path, *others)

        return spy

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(np, "save", spied(np.save))
    monkeypatch.setattr("scarlet.data.federated.open_memmap", spied(open_memmap))
    with transport(2) as clients:
        assert len(set(written)) == 7 and all(path.is_relative_to(tmp_path) for path in written)
        assert not any(path.exists() or path.parent.exists() for path in written)
        answers = exchanged(clients, {4: server().open_round()[4]})
        assert [sender for sender, _ in answers] == [4, 4], "the images are still there"


@pytest.mark.parametrize(
    ("wanted", "cores", "clients", "device", "expected"),
    [
        (None, 2, 10, "cpu", 2),
        (None, 64, 10, "cpu", 10),
        (None, 1, 10, "cpu", 1),
        (None, 8, 10, "cuda", 1),
        (None, 8, 10, "cuda:1", 1),
        (3, 8, 10, "cuda", 3),
        (1, 8, 10, "cpu", 1),
        (8, 2, 10, "cpu", 8),
        (8, 2, 5, "cpu", 5),
    ],
)
def test_there_are_as_many_workers_as_are_wanted_or_as_there_are_cores_but_no_more_than_clients(
    wanted: int | None, cores: int, clients: int, device: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    assert worker_count(wanted, clients, device) == expected


@pytest.mark.parametrize("clients", [1, 100])
def test_more_than_four_workers_a_core_are_refused_however_many_clients_there_are(
    clients: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(2)))
    with pytest.raises(ConfigError, match=r"workers must be at most 8 on this machine, .* got 9; use fewer") as it:
        worker_count(9, clients)
    assert "\n" not in str(it.value)


@pytest.mark.parametrize("asked_again", [True, False])
def test_answers_after_the_deadline_come_in_the_next_exchange_and_nobody_is_asked_twice(asked_again: bool) -> None:
    downlinks = server().open_round()
    with transport(2) as clients:
        assert exchanged(clients, downlinks, PAST) == []
        if not asked_again:  # and answers that come while states are asked for are not lost
            assert set(clients.states(EVERYBODY)) == set(EVERYBODY)
        late = exchanged(clients, downlinks if asked_again else {})
    with transport(2) as clients:
        assert by_sender(late) == by_sender(exchanged(clients, downlinks))


def by_sender(answers: Collection[tuple[int, bytes | Failure]]) -> list[Any]:
    return sorted(answers, key=lambda each: (each[0], str(each[1])))


def test_one_worker_answers_nothing_after_the_deadline_either() -> None:
    downlinks = server().open_round()
    with transport() as clients:
        assert exchanged(clients, downlinks, PAST) == []
        assert {sender for sender, _ in exchanged(clients, downlinks)} == set(EVERYBODY)


def many_layers() -> nn.Module:
    """More weights than file descriptors can be sent at once."""
    layers = (nn.Linear(CLASSES, CLASSES, bias=False) for _ in range(300))
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(SHAPE), CLASSES), *layers)


def test_a_model_may_have_hundreds_of_weights() -> None:
    downlinks, answers = server().open_round(), []
    for workers in (1, 2):
        with transport(workers, factory=many_layers) as clients:
            answers.append(by_sender(exchanged(clients, downlinks)))
    assert len(answers[0]) >= CLIENTS and answers[0] == answers[1]


def same(a: States, b: States) -> bool:
    return a.keys() == b.keys() and all(
        a[k].keys() == b[k].keys() and all(np.array_equal(a[k][name], b[k][name]) for name in a[k]) for k in a
    )


def test_states_that_come_along_with_the_answers_are_those_that_would_be_asked_for(asked_for: list[str]) -> None:
    head, other = server(), server()
    with transport(2) as collecting, transport(2) as asking:
        for _ in range(2):
            collecting.collect()
            play_round(head, collecting)
            play_round(other, asking)
            expected = asking.states(EVERYBODY)
            asked_for.clear()
            assert same(collecting.states(EVERYBODY), expected) and asked_for == []
            assert same(collecting.states(EVERYBODY), expected)
            assert asked_for == ["states"] * 2, "what came along is handed out once"


def test_a_state_that_came_along_is_forgotten_when_its_client_is_asked_again() -> None:
    head = server()
    with transport(2) as clients:
        clients.collect()
        play_round(head, clients)
        clients.states([0])  # the others' have come, and are left
        play_round(head, clients)
        found = clients.states(EVERYBODY)
        assert set(found) == set(EVERYBODY) and same(found, clients.states(EVERYBODY))


def test_states_of_clients_that_are_lost_come_too(asked_for: list[str]) -> None:
    with transport(2, faults=FaultInjection(0, CLIENTS, dropout=0.9)) as clients:
        clients.collect()
        answered = {sender for sender, _ in exchanged(clients, server().open_round())}
        asked_for.clear()
        assert len(answered) < CLIENTS and set(clients.states(EVERYBODY)) == set(EVERYBODY)
        assert asked_for == []
