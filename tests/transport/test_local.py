from __future__ import annotations

import math
import multiprocessing
import os
import signal
from collections.abc import Iterator
from dataclasses import fields, replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from scarlet.data import Augment
from scarlet.errors import MessageError
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.models.registry import initial_weights, model_factory
from scarlet.protocol.federation import Federation
from scarlet.protocol.server import Server
from scarlet.protocol.types import Images
from scarlet.training.runtime import Made
from scarlet.training.train import Training
from scarlet.transport import local
from scarlet.transport.client_runner import Resident, Setup, weights_digest
from scarlet.transport.fault_injection import Troubles
from scarlet.transport.local import LocalTransport, WorkerError, default_workers
from scarlet.wire.codecs import codec
from scarlet.wire.ledger import Ledger

CLIENTS, CLASSES, SHAPE = 5, 3, (3, 16, 16)

Said = dict[int, list[bytes]]  # for each client, its messages in the order it sent them


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """As in a run; the sums of several threads may differ in their last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def data() -> Resident:
    rng = np.random.default_rng(0)
    return Resident(
        train_images=rng.integers(0, 256, (60, *SHAPE), np.uint8),
        train_labels=rng.integers(0, CLASSES, 60),
        test_images=rng.integers(0, 256, (20, *SHAPE), np.uint8),
        test_labels=rng.integers(0, CLASSES, 20),
        public=rng.integers(0, 256, (30, *SHAPE), np.uint8),
    )


FEDERATION = Federation(clients=CLIENTS, public_size=30, public_per_round=10, classes=CLASSES, seed=0)


def setup() -> Setup:
    """Five clients with batch norm and augmentation, so that all that draws or remembers takes part."""
    factory = model_factory("cnn32", CLASSES, SHAPE)
    return Setup(
        method=ScarletConfig(cache_duration=1),
        build=scarlet,
        factory=factory,
        weights=initial_weights(factory, 0),
        private=[np.arange(12 * k, 12 * k + 12) for k in range(CLIENTS)],
        test=[np.arange(4 * k, 4 * k + 4) for k in range(CLIENTS)],
        federation=FEDERATION,
        training=Training(1, 1, 0.1, 0.1, 5, Augment(padding=2, flip=True), seed=0),
        codec="reference",
        bits=(None, None),
        device="cpu",
        rounds=4,
        eval_every=2,
        troubles=Troubles(seed=0, clients=CLIENTS),
    )


def server() -> Server:
    return Server(scarlet(ScarletConfig(cache_duration=1)), FEDERATION, codec("reference"), Ledger())


def children() -> list[BaseProcess]:
    return [child for child in multiprocessing.active_children() if child.name.startswith("scarlet-")]


def play(workers: int, images: Resident | None = None) -> tuple[list[Said], list[bytes]]:
    """What every client says in four rounds, and the digests of its weights in the end."""
    head, rounds = server(), []
    with LocalTransport(setup(), images or data(), workers) as transport:
        assert len(children()) == (workers if workers > 1 else 0)
        for _ in range(4):
            said: Said = {client: [] for client in range(CLIENTS)}
            for sender, message in transport.exchange(head.open_round()):
                said[sender].append(message)
                head.take(sender, message)
            head.close_round()
            rounds.append(said)
        return rounds, transport.digests()


@pytest.fixture(scope="module")
def in_process() -> tuple[list[Said], list[bytes]]:
    return play(workers=1)


@pytest.mark.parametrize("workers", [2, 3])
def test_messages_and_weights_are_the_same_bytes_whatever_the_number_of_workers(
    workers: int, in_process: tuple[list[Said], list[bytes]]
) -> None:
    assert play(workers) == in_process


@pytest.mark.parametrize("workers", [1, 2])
def test_it_is_all_the_same_how_the_images_that_are_given_lie_in_memory(
    workers: int, in_process: tuple[list[Said], list[bytes]]
) -> None:
    def turned(images: Images) -> Images:
        return np.ascontiguousarray(images.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)

    given = data()
    given = replace(
        given,
        train_images=turned(given.train_images),
        test_images=turned(given.test_images),
        public=turned(given.public),
    )
    assert play(workers, given) == in_process


@pytest.mark.parametrize("turned", [False, True])
def test_workers_find_the_data_as_it_is_and_need_not_turn_the_public_images(turned: bool, tmp_path: Path) -> None:
    local._save(data(), tmp_path, turned=turned)
    found = local._load(tmp_path, turned=turned)
    assert all(np.array_equal(getattr(found, each.name), getattr(data(), each.name)) for each in fields(Resident))
    layout = torch.channels_last if turned else torch.contiguous_format
    assert torch.from_numpy(found.public).is_contiguous(memory_format=layout)


def play_with_some(workers: int) -> tuple[list[Said], list[bytes], dict[int, dict[str, bytes]], list[list[int]]]:
    """What is said where only some take part, the digests and states in the end, and who lived where in each round."""
    head, rounds, homes = server(), [], []
    turned = replace(setup(), factory=Made(setup().factory, channels_last=True, compilation=None))
    with LocalTransport(turned, data(), workers) as transport:
        for asked in ({0, 2, 4}, {0, 3}, {1, 3}, {0, 4}, {0, 1, 2, 3, 4}):
            said: Said = {client: [] for client in asked}
            downlinks = {client: data for client, data in head.open_round().items() if client in asked}
            for sender, message in transport.exchange(downlinks, keep=True):
                said[sender].append(message)
                head.take(sender, message)
            head.close_round()
            rounds.append(said)
            homes.append([transport._placement.home(client) for client in range(CLIENTS)])
        states = transport.states(range(CLIENTS)) | transport.states(range(CLIENTS))
        held = {k: {name: array.tobytes() for name, array in own.items()} for k, own in states.items()}
        return rounds, transport.digests(), held, homes


@pytest.mark.parametrize("workers", [2, 3])
def test_clients_go_where_there_is_less_to_do_and_what_they_say_is_the_same(workers: int) -> None:
    *found, homes = play_with_some(workers)
    *expected, _ = play_with_some(1)
    assert found == expected
    assert len({tuple(each) for each in homes}) > 1


def test_clients_that_are_trained_together_stay_where_they_are() -> None:
    downlinks = server().open_round()
    with LocalTransport(replace(setup(), at_once=2), data(), 2) as transport:
        list(transport.exchange({client: downlinks[client] for client in (0, 2, 4)}))
        assert [transport._placement.home(client) for client in range(CLIENTS)] == [0, 1, 0, 1, 0]


def test_what_the_pipes_add_is_counted_once_and_nothing_is_added_within_the_process() -> None:
    for workers in (1, 2):
        with LocalTransport(setup(), data(), workers) as transport:
            downlinks = server().open_round()
            answers = [len(message) for _, message in transport.exchange(downlinks)]
            up, down = transport.overhead()
            assert (up > 4 * len(answers) and down > 2 * len(downlinks)) if workers == 2 else (up, down) == (0, 0)
            assert up < 40 * len(answers) and down < 40 * len(downlinks)
            assert transport.overhead() == (0, 0)


def test_every_client_says_two_things_a_round_and_no_client_says_what_another_says(
    in_process: tuple[list[Said], list[bytes]],
) -> None:
    rounds, digests = in_process
    assert all(len(messages) == 2 for said in rounds for messages in said.values())
    assert len({messages[0] for said in rounds for messages in said.values()}) == 4 * CLIENTS
    assert len(set(digests)) == CLIENTS


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_all_clients_start_from_the_weights_they_are_given(workers: int) -> None:
    with LocalTransport(setup(), data(), workers) as transport:
        assert transport.digests() == [weights_digest(setup().weights)] * CLIENTS


def test_a_worker_that_is_killed_is_an_error_of_one_line_and_close_leaves_no_child() -> None:
    transport = LocalTransport(setup(), data(), 2)
    victim, survivor = children()
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    with pytest.raises(WorkerError) as caught:
        list(transport.exchange(server().open_round()))
    text = str(caught.value)
    assert text.startswith(f"worker process {victim.pid} died with exit code -9;") and "\n" not in text
    assert survivor.is_alive()
    transport.close()
    assert children() == [] and not survivor.is_alive()


def test_a_worker_that_is_killed_is_noticed_when_the_digests_are_asked_for() -> None:
    with LocalTransport(setup(), data(), 2) as transport:
        victim = children()[0]
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        with pytest.raises(WorkerError, match=f"worker process {victim.pid} died"):
            transport.digests()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_corrupted_downlink_surfaces_as_the_clients_message_error(workers: int) -> None:
    with LocalTransport(setup(), data(), workers) as transport:
        downlink = server().open_round()[3]
        corrupted = downlink[:-1] + bytes([downlink[-1] ^ 1])
        with pytest.raises(MessageError, match="checksum"):
            list(transport.exchange({3: corrupted}))
    assert children() == []


def test_an_error_while_workers_start_leaves_no_child() -> None:
    with pytest.raises(WorkerError, match="Missing key"):
        LocalTransport(replace(setup(), weights={}), data(), 2)
    assert children() == []


def test_the_files_that_hand_over_the_images_are_gone_once_the_workers_have_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Path] = []
    save = np.save

    def spy(path: Path, array: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> None:
        written.append(Path(path))
        save(path, array)

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(np, "save", spy)
    with LocalTransport(setup(), data(), 2) as transport:
        assert len(written) == 9 and all(path.is_relative_to(tmp_path) for path in written)
        assert not any(path.exists() or path.parent.exists() for path in written)
        downlink = server().open_round()[4]
        assert [sender for sender, _ in transport.exchange({4: downlink})] == [4, 4], "the images are still there"


def test_closing_a_second_time_does_nothing() -> None:
    transport = LocalTransport(setup(), data(), 2)
    assert len(children()) == 2
    transport.close()
    assert children() == []
    transport.close()
    assert children() == []


def test_a_transport_ends_its_workers_when_the_block_it_serves_fails() -> None:
    with pytest.raises(KeyError), LocalTransport(setup(), data(), 2):
        assert len(children()) == 2
        raise KeyError("something of the caller's")
    assert children() == []


@pytest.mark.parametrize(("cores", "clients", "expected"), [(2, 10, 2), (64, 10, 10), (1, 10, 1)])
def test_there_are_as_many_workers_as_cores_but_no_more_than_clients(
    cores: int, clients: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    assert default_workers(clients) == expected


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_one_worker_drives_a_gpu(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert default_workers(10, device) == 1


def test_answers_after_the_deadline_come_in_the_next_exchange_and_nobody_is_asked_twice() -> None:
    downlinks = server().open_round()
    with LocalTransport(setup(), data(), 2, deadline=1e-9) as transport:
        assert list(transport.exchange(downlinks)) == []
        transport._deadline = math.inf
        late = sorted(transport.exchange(downlinks))
    with LocalTransport(setup(), data(), 2) as transport:
        assert late == sorted(transport.exchange(downlinks))


def test_one_worker_answers_nothing_after_the_deadline_either() -> None:
    downlinks = server().open_round()
    with LocalTransport(setup(), data(), 1, deadline=1e-9) as transport:
        assert list(transport.exchange(downlinks)) == []
        transport._deadline = math.inf
        assert {sender for sender, _ in transport.exchange(downlinks)} == set(range(CLIENTS))


def many_layers() -> nn.Module:
    """More weights than file descriptors can be sent at once."""
    layers = (nn.Linear(CLASSES, CLASSES, bias=False) for _ in range(300))
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(SHAPE), CLASSES), *layers)


def test_a_model_may_have_hundreds_of_weights() -> None:
    deep = replace(setup(), factory=many_layers, weights=initial_weights(many_layers, 0))
    downlinks, answers = server().open_round(), []
    for workers in (1, 2):
        with LocalTransport(deep, data(), workers) as transport:
            answers.append(sorted(transport.exchange(downlinks)))
    assert len(answers[0]) >= CLIENTS and answers[0] == answers[1]


def test_answers_that_come_while_states_are_asked_for_are_not_lost() -> None:
    downlinks = server().open_round()
    with LocalTransport(setup(), data(), 2, deadline=1e-9) as transport:
        assert list(transport.exchange(downlinks)) == []
        assert set(transport.states(range(CLIENTS))) == set(range(CLIENTS))
        transport._deadline = math.inf
        late = sorted(transport.exchange({}))
    with LocalTransport(setup(), data(), 2) as transport:
        assert late == sorted(transport.exchange(downlinks))


def same(a: dict[int, dict[str, np.ndarray]], b: dict[int, dict[str, np.ndarray]]) -> bool:
    return a.keys() == b.keys() and all(
        a[k].keys() == b[k].keys() and all(np.array_equal(a[k][name], b[k][name]) for name in a[k]) for k in a
    )


def test_states_that_come_along_with_the_answers_are_those_that_would_be_asked_for() -> None:
    head, other = server(), server()
    with LocalTransport(setup(), data(), 2) as kept, LocalTransport(setup(), data(), 2) as asked:
        for _ in range(2):
            for transport, keep, each in ((kept, True, head), (asked, False, other)):
                for sender, message in transport.exchange(each.open_round(), keep=keep):
                    each.take(sender, message)
                each.close_round()
            before = [worker.unanswered for worker in kept._workers]
            assert set(kept._kept) == set(range(CLIENTS)) and before == [0, 0]
            assert same(kept.states(range(CLIENTS)), asked.states(range(CLIENTS)))
            assert not kept._kept, "they are handed out once"


def test_a_state_that_was_kept_is_forgotten_when_its_client_is_asked_again() -> None:
    head = server()
    with LocalTransport(setup(), data(), 2) as transport:
        for keep in (True, False):
            for sender, message in transport.exchange(head.open_round(), keep=keep):
                head.take(sender, message)
            head.close_round()
        found = transport.states(range(CLIENTS))
        assert same(found, transport.states(range(CLIENTS))) and set(found) == set(range(CLIENTS))


def test_states_of_clients_that_are_lost_come_too() -> None:
    troubled = replace(setup(), troubles=Troubles(0, CLIENTS, dropout=0.9))
    with LocalTransport(troubled, data(), 2) as transport:
        answered = {sender for sender, _ in transport.exchange(server().open_round(), keep=True)}
        assert len(answered) < CLIENTS and set(transport._kept) == set(range(CLIENTS))
