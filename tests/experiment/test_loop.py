"""The rounds over a second transport, to clients that are nodes with disks of their own, started for each message.

A transport across machines must be at least this. It may lose, repeat and delay what is sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scarlet.errors import ScarletError
from scarlet.experiment import loop
from scarlet.experiment.loop import ATTEMPTS, run_rounds
from scarlet.experiment.round_log import RoundLog
from scarlet.job import Job
from scarlet.node import Node
from scarlet.protocol.client import Client
from scarlet.protocol.codec_registry import codec
from scarlet.protocol.server import Participation, Server
from scarlet.protocol.state import arrays_of
from scarlet.records import RoundRecord
from scarlet.store import Folder
from scarlet.training.server_model import ServerModel
from scarlet.training.tensors import TorchState, resident, samples, weights_digest
from scarlet.training.train import Task, work
from scarlet.transport.client_setup import ClientSetup
from scarlet.transport.transport import Failure, LocalClients, Overhead, Transport
from scarlet.wire.ledger import COLUMNS, Ledger
from tests.transport.five_clients import AGREEMENT, CLIENTS, data, setup, transport

pytestmark = pytest.mark.xdist_group("loop")  # its fixtures are made once, in one process

Answer = tuple[int, bytes | Failure]
Disturb = Callable[[int, Iterable[Answer]], Iterable[Answer]]  # (number of the exchange, answers) -> what arrives


class Machines(AbstractContextManager["Machines"]):
    """A transport to clients that keep their state to themselves."""

    local: LocalClients | None = None

    def __init__(self, folder: Path, how: ClientSetup, disturb: Disturb = lambda number, answers: answers) -> None:
        self.folder, self.how, self.data, self.disturb = folder, how, data(), disturb
        self.up: Collection[int] = range(CLIENTS)
        self.exchanges: list[tuple[set[int], float]] = []  # who was asked, and until when

    def __exit__(self, *error: object) -> None: ...

    def available(self) -> Collection[int]:
        return self.up

    def overhead(self) -> Overhead:
        return Overhead(7, 5)

    def exchange(self, downlinks: Mapping[int, bytes], until: float) -> Iterator[Answer]:
        self.exchanges.append((set(downlinks), until))
        answers = ((number, sent) for number, data in downlinks.items() for sent in self.answer(number, data))
        yield from self.disturb(len(self.exchanges), answers)

    def answer(self, number: int, downlink: bytes) -> list[bytes]:
        how, kind = self.how, self.how.kind(number)
        model = kind.factory()
        model.load_state_dict(kind.weights)
        state = TorchState(model, kind.training.optimisers(model))
        client = Client(number, how.method(), AGREEMENT, codec(AGREEMENT.codec, how.method(), AGREEMENT))
        node = Node(client, state, dict, Folder(self.folder / str(number)))
        begun = node.begin(downlink)
        if not isinstance(begun, Job):
            return begun
        test = self.data.test[number]
        measured = samples(test.arrays(), model, "cpu") if test and how.evaluation.due(begun.round) else None
        own = samples(self.data.train[number].arrays(), model, "cpu")
        task = Task(self.data.names[number], begun, model, state.optimisers, own, measured)
        public = resident(self.data.public, model, "cpu")
        return node.finish(begun, work(task, public, kind.training, kind.weights))


class Ran:
    """A server that has run its rounds."""

    def __init__(self, clients: Transport, how: ClientSetup, share: float = 1.0, **options: Any) -> None:
        kind, held_out = how.kinds[0], data().held_out
        model = kind.factory()
        model.load_state_dict(kind.weights)
        assert held_out is not None
        test = samples(held_out.arrays(), model, "cpu")
        learner = ServerModel(model, resident(data().public, model, "cpu"), test, kind.training)
        wire = codec(AGREEMENT.codec, how.method(), AGREEMENT)
        self.server = Server(how.method(), AGREEMENT, wire, Ledger(), learner, Participation(share))
        self.log = RoundLog([], None, learner.arrays())
        with clients:
            run_rounds(self.server, clients, learner, self.log, how.evaluation, **options)
        self.weights = weights_digest(learner.model.state_dict())

    @property
    def records(self) -> list[RoundRecord]:
        return self.log.records

    def state(self) -> tuple[object, ...]:
        """All that a run comes to, but for what was rejected."""
        arrays = {name: array.tobytes() for name, array in arrays_of(self.server.state).items()}
        total = {column: self.server.ledger.total[column] for column in COLUMNS if column != "rejected"}
        measured = [(record.server_loss, record.client_accuracy, record.answers) for record in self.records]
        return arrays, total, measured, self.weights


@pytest.fixture(scope="module")
def undisturbed() -> Ran:
    return Ran(transport(), setup())


def test_a_run_over_another_transport_is_the_run_on_this_machine(undisturbed: Ran, tmp_path: Path) -> None:
    ran = Ran(Machines(tmp_path, setup()), setup())
    assert ran.state() == undisturbed.state()
    assert [(record.uplink_transport_bytes, record.downlink_transport_bytes) for record in ran.records] == [(7, 5)] * 4
    assert undisturbed.records[-1].server_loss is not None and undisturbed.records[-1].cache_hit_ratio


def test_double_and_unknown_senders_are_rejected_and_change_nothing(undisturbed: Ran, tmp_path: Path) -> None:
    def disturb(number: int, answers: Iterable[Answer]) -> Iterator[Answer]:
        for sender, answer in answers:
            yield sender, answer
            yield 99, answer
            yield sender, answer

    ran = Ran(Machines(tmp_path, setup(), disturb), setup())
    assert ran.state() == undisturbed.state()
    rejected = {"unknown client": 2 * CLIENTS, "second answer": CLIENTS, "second report": CLIENTS}
    assert [record.rejections for record in ran.records] == [rejected] * 4


def test_what_comes_late_is_rejected_in_the_next_round_and_the_client_is_caught_up(tmp_path: Path) -> None:
    held_back: list[Answer] = []

    def disturb(number: int, answers: Iterable[Answer]) -> Iterator[Answer]:
        if number == 3:
            yield from held_back
        for answer in answers:
            if number == 2 and answer[0] == 3:
                held_back.append(answer)
            else:
                yield answer

    ran = Ran(Machines(tmp_path, setup(), disturb), setup())
    assert [(record.asked, record.answers) for record in ran.records] == [(5, 5), (5, 4), (5, 5), (5, 5)]
    assert [record.rejections for record in ran.records] == [{}, {}, {"wrong round": 2}, {}]
    assert [record.resets for record in ran.records] == [0, 0, 0, 0]


def test_only_clients_that_are_available_are_asked(tmp_path: Path) -> None:
    machines = Machines(tmp_path, setup())
    machines.up = {1, 4}
    ran = Ran(machines, setup(), share=0.6)
    assert [asked for asked, _ in machines.exchanges] == [{1, 4}] * 4
    assert [(record.asked, record.answers) for record in ran.records] == [(2, 2)] * 4
    machines.up = {0, 1, 3, 4}
    Ran(machines, setup(), share=0.6)
    later = [asked for asked, _ in machines.exchanges[4:]]
    assert all(len(asked) == 3 for asked in later) and set().union(*later) == {0, 1, 3, 4}


def test_numbers_that_no_client_has_are_not_asked(tmp_path: Path) -> None:
    machines = Machines(tmp_path, setup())
    machines.up = {-1, 2, CLIENTS, 99}
    Ran(machines, setup())
    assert [asked for asked, _ in machines.exchanges] == [{2}] * 4


def test_a_client_that_fails_twice_and_one_that_was_not_asked_count_once_and_not_at_all(tmp_path: Path) -> None:
    def disturb(number: int, answers: Iterable[Answer]) -> Iterator[Answer]:
        yield from ((sender, Failure("gone")) for sender in (1, 1, 99))
        yield from (answer for answer in answers if answer[0] != 1)

    ran = Ran(Machines(tmp_path, setup(), disturb), setup())
    assert [record.failures for record in ran.records] == [{"gone": 1}] * 4


def test_clients_that_fail_are_counted_by_reason_and_the_others_go_on(tmp_path: Path) -> None:
    def disturb(number: int, answers: Iterable[Answer]) -> Iterator[Answer]:
        reasons = {0: "the node is gone", 2: "no answer", 4: "no answer"} if number == 3 else {}
        yield from ((sender, Failure(reason)) for sender, reason in reasons.items())
        yield from (answer for answer in answers if answer[0] not in reasons)

    ran = Ran(Machines(tmp_path, setup(), disturb), setup())
    assert [record.failures for record in ran.records] == [{}, {}, {"the node is gone": 1, "no answer": 2}, {}]
    assert [record.answers for record in ran.records] == [5, 5, 2, 5]


def test_a_round_in_which_all_fail_is_tried_ten_times_and_then_the_reason_is_named(tmp_path: Path) -> None:
    def disturb(number: int, answers: Iterable[Answer]) -> Iterator[Answer]:
        failures = ((sender, Failure("out of memory", "Traceback of 3")) for sender in range(CLIENTS))
        yield from answers if number == 1 else failures

    machines = Machines(tmp_path, setup(), disturb)
    with pytest.raises(ScarletError) as caught:
        Ran(machines, setup())
    assert len(machines.exchanges) == 1 + ATTEMPTS
    first, *trace = str(caught.value).splitlines()
    assert first.startswith(f"round 2 failed {ATTEMPTS} times with fewer than 1 answers")
    assert f"failed clients: {{'out of memory': {CLIENTS * ATTEMPTS}}}" in first
    assert trace == ["the last client that failed:", "Traceback of 3"]


class Clock:
    """Time goes on only when somebody says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: self.now))


def test_no_client_is_reset_after_the_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    def disturb(number: int, answers: Iterable[Answer]) -> Iterator[Answer]:
        if number == 3:
            (tmp_path / "3").rename(tmp_path / "lost")
        yield from answers
        clock.now += 60

    machines = Machines(tmp_path, setup(), disturb)
    ran = Ran(machines, setup(), deadline=60.0)
    assert [asked for asked, _ in machines.exchanges] == [set(range(CLIENTS))] * 4
    assert [(record.resets, record.answers) for record in ran.records] == [(0, 5), (0, 5), (1, 4), (0, 5)]


@pytest.mark.parametrize("deadline", [60.0, None])
def test_one_deadline_is_for_a_whole_attempt_resets_included(
    deadline: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)

    def disturb(number: int, answers: Iterable[Answer]) -> Iterator[Answer]:
        clock.now += 10
        if number == 3:  # a client has lost its disk, and must be reset
            (tmp_path / "3").rename(tmp_path / "lost")
        if number != 5:  # an attempt at the fourth round fails, and has a successor
            yield from answers

    machines = Machines(tmp_path, setup(), disturb)
    ran = Ran(machines, setup(), deadline=deadline)
    everybody = set(range(CLIENTS))
    assert [asked for asked, _ in machines.exchanges] == [everybody, everybody, everybody, {3}, everybody, everybody]
    assert [(record.resets, record.attempt) for record in ran.records] == [(0, 0), (0, 0), (1, 0), (0, 1)]
    ends = [1060.0, 1070.0, 1080.0, 1080.0, 1100.0, 1110.0] if deadline is not None else [math.inf] * 6
    assert [until for _, until in machines.exchanges] == ends
