"""The fault simulator finds nothing in the software as it is, and finds each of several deliberate bugs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest

from scarlet.cli import main
from scarlet.methods.parts import aggregate, clusters
from scarlet.protocol.average import AverageOfModels
from scarlet.protocol.cache import ABSENT, CacheTable, Delta, Duration
from scarlet.protocol.client import Client, ClientState
from scarlet.protocol.delta import Memory, Sent
from scarlet.protocol.holdings import Holdings
from scarlet.protocol.method import Teachers
from scarlet.protocol.persist import Array, restore_client, restore_server
from scarlet.protocol.server import Server
from scarlet.protocol.server_state import ServerState
from scarlet.protocol.types import NOTHING, Index, Labels, Lesson, Parameters, Signal, Sync, Uplink, Values
from scarlet.store import Store
from scarlet.wire import frame
from scarlet.wire.ledger import Ledger
from scarlet.wire.reference import Reference
from tests.faults import nodes
from tests.faults.judge import Violation
from tests.faults.methods import METHODS
from tests.faults.schedule import _Play, play_schedule

SCHEDULES = 200
OF_EACH_METHOD = 40
Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("part", range(4))
def test_no_schedule_of_faults_breaks_an_invariant(part: int) -> None:
    events: Counter[str] = Counter()
    for seed in range(part * SCHEDULES // 4, (part + 1) * SCHEDULES // 4):
        events += play_schedule(seed)
    for event in (
        "drop",
        "delay",
        "duplicate",
        "tamper",
        "client crash",
        "server crash",
        "wipe",
        "client disk full",
        "resync",
        "rejected: unreadable",
        "rejected: wrong round",
        "rejected: second answer",
    ):
        assert events[event] > 0, f"the schedules never had: {event}"


# What is rare in a method's rounds, and must have been played.
RARE = {
    "scarlet": {"rounds of hits only", "resync"},
    "cfd": {"rounds of hits only", "labels not sent again", "labels announced as unchanged", "resync"},
    "comet": {"rounds of hits only", "resync"},
    "selective-fd": {"rounds of hits only", "samples that nobody answered", "resync"},
}


@pytest.mark.parametrize("method", METHODS)
def test_no_schedule_of_a_method_breaks_an_invariant(method: str) -> None:
    events: Counter[str] = Counter()
    for seed in range(OF_EACH_METHOD):
        events += play_schedule(seed, method=method)
    for event in {"client crash", "server crash", "wipe", "rejected: unreadable"} | RARE.get(method, set()):
        assert events[event] > 0, f"the schedules never had: {event}"


@pytest.mark.parametrize("method", ["scarlet", "cfd", "comet", "fedavg"])
def test_a_downlink_that_is_cut_between_two_of_its_messages_breaks_no_invariant(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left looks whole, and a cut at random hardly ever leaves it."""
    honest, cuts = _Play._tampered, 0

    def cut(self: _Play, data: bytes) -> bytes:
        nonlocal cuts
        parts = frame.split(data)
        cuts += len(parts) > 1
        return parts[0] if len(parts) > 1 else honest(self, data)

    monkeypatch.setattr(_Play, "_tampered", cut)
    for seed in range(2 * OF_EACH_METHOD):
        play_schedule(seed, method=method)
    assert cuts > 10


@pytest.mark.parametrize("name", METHODS)
def test_no_schedule_of_faults_breaks_an_invariant_where_draws_are_derived(name: str) -> None:
    for seed in range(25):
        play_schedule(seed, "compact", name)


def test_a_schedule_is_the_same_every_time() -> None:
    assert play_schedule(7) == play_schedule(7)


def acknowledge_on_send(patch: pytest.MonkeyPatch) -> None:
    honest = Server.open_round

    def open_round(self: Server) -> dict[int, bytes]:
        downlinks = honest(self)
        for client in downlinks:
            self.state.holdings.acknowledge(client, self.state.round)
        return downlinks

    patch.setattr(Server, "open_round", open_round)


def expire_a_round_early_in_the_request(patch: pytest.MonkeyPatch) -> None:
    def request(self: Duration, table: CacheTable, index: Index, round: int) -> Index:
        stamp = table.stamp[index]
        early: Index = index[~((stamp != ABSENT) & (round - stamp < self.duration))]
        return early

    patch.setattr(Duration, "request", request)


def digest_the_samples_but_not_the_values(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Labels, "digest", lambda self: blake2b(self.index.tobytes(), digest_size=8).digest())


def rename_without_sync(patch: pytest.MonkeyPatch) -> None:
    def install(self: Store, name: str, content: bytes) -> None:
        self._disk.write(f"{name}.part", content)
        self._disk.rename(f"{name}.part", name)

    patch.setattr(Store, "_install", install)


def add_a_duplicate_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Server, "_check_first", lambda self, sender, now: None)


def forget_to_keep_the_reply(patch: pytest.MonkeyPatch) -> None:
    honest = Client.receive

    def receive(self: Client, downlink: bytes) -> object:
        self.state.downlink = b""
        return honest(self, downlink)

    patch.setattr(Client, "receive", receive)


def take_an_expired_entry_for_held(patch: pytest.MonkeyPatch) -> None:
    honest = Holdings.commit

    def commit(self: Holdings, sync: object) -> None:
        before = self.drawn.copy()
        honest(self, sync)  # type: ignore[arg-type]
        self.drawn |= before

    patch.setattr(Holdings, "commit", commit)


BUGS: tuple[Patch, ...] = (
    acknowledge_on_send,
    expire_a_round_early_in_the_request,
    digest_the_samples_but_not_the_values,
    rename_without_sync,
    add_a_duplicate_twice,
    forget_to_keep_the_reply,
    take_an_expired_entry_for_held,
)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_deliberate_bug_is_found_within_200_schedules(bug: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    for seed in range(SCHEDULES):
        try:
            play_schedule(seed, method="scarlet")
        except Exception:  # a violation, or an error that the bug leads to
            return
    pytest.fail(f"{SCHEDULES} schedules did not find: {bug.__name__}")


def never_take_back_a_lost_answer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sent, "agree", lambda self, accepted: None)


def take_back_the_name_and_not_the_labels(patch: pytest.MonkeyPatch) -> None:
    def agree(self: Sent, accepted: bytes) -> None:
        self.memory.name = accepted

    patch.setattr(Sent, "agree", agree)


def take_an_answer_whatever_it_builds_on(patch: pytest.MonkeyPatch) -> None:
    """And no client looks what was accepted; otherwise it would not matter."""
    honest = Memory.whole

    def whole(self: Memory, uplink: Uplink) -> Labels:
        known = self.name != NOTHING and bool(self.known[uplink.same].all())
        return honest(self, replace(uplink, base=self.name)) if known else uplink.labels

    never_take_back_a_lost_answer(patch)
    patch.setattr(Memory, "whole", whole)


def compare_only_the_first_class(patch: pytest.MonkeyPatch) -> None:
    def split(self: Sent, labels: Labels) -> tuple[Labels, Index]:
        same = self.memory.known[labels.index] & (self.memory.value[labels.index, 0] == labels.value[:, 0])
        return Labels(labels.index[~same], labels.value[~same]), labels.index[same]

    patch.setattr(Sent, "split", split)


def note_the_name_and_not_the_labels(patch: pytest.MonkeyPatch) -> None:
    """Of what the server accepts after a first answer."""
    honest = Memory.take

    def take(self: Memory, labels: Labels, base: bytes, name: bytes) -> None:
        honest(self, labels if base == NOTHING else Labels(labels.index[:0], labels.value[:0]), base, name)

    original = Server.close_round

    def close_round(self: Server) -> object:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Memory, "take", take)
            return original(self)

    patch.setattr(Server, "close_round", close_round)


def look_up_the_labels_of_another_client(patch: pytest.MonkeyPatch) -> None:
    honest = Server._take_labels

    def take_labels(self: Server, message: Uplink, data: bytes, now: Any) -> None:
        accepted = self.state.accepted or {}
        own, other = accepted.get(message.client), accepted.get((message.client - 1) % self.federation.clients)
        if own is not None and other is not None:
            accepted[message.client] = Memory(other.value, np.ones_like(other.known), own.name)
        try:
            honest(self, message, data, now)
        finally:
            if own is not None:
                accepted[message.client] = own

    patch.setattr(Server, "_take_labels", take_labels)


def announce_as_unchanged_by_the_first_class(patch: pytest.MonkeyPatch) -> None:
    honest = Delta.commit

    def commit(self: Delta, table: CacheTable, fresh: Labels, index: Index, round: int) -> Sync:
        held = table.stamp[fresh.index] != ABSENT
        close = held & (table.value[fresh.index, 0] == fresh.value[:, 0])
        true = fresh.value.copy()
        fresh.value[close] = table.value[fresh.index[close]]
        sync = honest(self, table, fresh, index, round)
        table.value[fresh.index] = true
        return sync

    patch.setattr(Delta, "commit", commit)


def take_what_is_announced_for_held_by_all(patch: pytest.MonkeyPatch) -> None:
    honest = Holdings.commit

    def commit(self: Holdings, sync: Sync) -> None:
        assert sync.signal is not None
        self.acknowledged[:] |= 1  # everybody holds what is only announced
        honest(self, sync)
        self.drawn[sync.index[sync.signal == Signal.UNCHANGED]] |= 1

    patch.setattr(Holdings, "commit", commit)


def go_on_with_labels_finer_than_those_sent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reference, "heard_by_clients", lambda self, value: value)


def teach_the_mean_instead_of_the_model(patch: pytest.MonkeyPatch) -> None:
    def predict(self: nodes.ServerNode, index: Index) -> Values:
        target = self.server.state.target
        assert target is not None
        return np.asarray(target[index], np.float32)

    honest = Server._teach

    def teach(self: Server, now: Any) -> Labels:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(nodes.ServerNode, "predict", predict)
            return honest(self, now)

    patch.setattr(Server, "_teach", teach)


def lose_the_targets_of_hits(patch: pytest.MonkeyPatch) -> None:
    """At a restart the server's model learns from nothing what was not asked for again."""

    def restore(state: ServerState, ledger: Ledger, arrays: Mapping[str, Array], numbers: Mapping[str, object]) -> None:
        restore_server(state, ledger, arrays, numbers)
        if state.target is not None:
            state.target[:] = 0

    patch.setattr(nodes, "restore_server", restore)


def lose_the_accepted_labels(patch: pytest.MonkeyPatch) -> None:
    """At a restart the server knows the names of what it accepted, and not the labels."""

    def restore(state: ServerState, ledger: Ledger, arrays: Mapping[str, Array], numbers: Mapping[str, object]) -> None:
        restore_server(state, ledger, arrays, numbers)
        for memory in (state.accepted or {}).values():
            memory.value[:] = 0

    patch.setattr(nodes, "restore_server", restore)


def forget_ones_own_answers(patch: pytest.MonkeyPatch) -> None:
    """At a restart of a client."""

    def restore(state: ClientState, arrays: Mapping[str, Array]) -> None:
        restore_client(state, arrays)
        if state.sent is not None:
            state.sent.memory.forget()

    patch.setattr(nodes, "restore_client", restore)


def send_a_lesson_to_the_wrong_client(patch: pytest.MonkeyPatch) -> None:
    honest = Server._personal

    def personal(self: Server, message: Any, column: Any) -> bytes:
        if isinstance(message, Lesson):
            assert self.state.lessons is not None
            other = (message.client + 1) % self.federation.clients
            message = replace(message, labels=self.state.lessons.of(other))
        return honest(self, message, column)

    patch.setattr(Server, "_personal", personal)


def lose_the_lessons(patch: pytest.MonkeyPatch) -> None:
    def restore(state: ServerState, ledger: Ledger, arrays: Mapping[str, Array], numbers: Mapping[str, object]) -> None:
        restore_server(state, ledger, arrays, numbers)
        state.lessons = None

    patch.setattr(nodes, "restore_server", restore)


def teach_the_centres_of_another_sample(patch: pytest.MonkeyPatch) -> None:
    honest = clusters._Clustered.finish

    def finish(self: clusters._Clustered) -> Teachers:
        found = honest(self)
        return replace(found, value=np.roll(found.value, 1, axis=0))

    patch.setattr(clusters._Clustered, "finish", finish)


def add_a_partial_answer_from_the_top(patch: pytest.MonkeyPatch) -> None:
    honest = aggregate._Mean.add

    def add(self: aggregate._Mean, client: int, labels: Labels) -> None:
        honest(self, client, Labels(self._request[: len(labels.index)], labels.value))

    patch.setattr(aggregate._Mean, "add", add)


def ignore_the_counts_of_samples(patch: pytest.MonkeyPatch) -> None:
    honest = AverageOfModels.add
    patch.setattr(AverageOfModels, "add", lambda self, message: honest(self, replace(message, samples=1)))


def keep_the_old_model(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(nodes.ServerNode, "load", lambda self, parameters: None)


def average_with_the_server(patch: pytest.MonkeyPatch) -> None:
    honest = Server.open_round

    def open_round(self: Server) -> dict[int, bytes]:
        downlinks = honest(self)
        now = self._now()
        if now.average is not None and self.learner is not None:
            now.average.add(Parameters(now.round, now.attempt, 0, 1, self.learner.parameters()))
        return downlinks

    patch.setattr(Server, "open_round", open_round)


BUGS_OF: dict[str, tuple[Patch, ...]] = {
    "cfd": (
        never_take_back_a_lost_answer,
        take_back_the_name_and_not_the_labels,
        take_an_answer_whatever_it_builds_on,
        compare_only_the_first_class,
        note_the_name_and_not_the_labels,
        look_up_the_labels_of_another_client,
        announce_as_unchanged_by_the_first_class,
        take_what_is_announced_for_held_by_all,
        go_on_with_labels_finer_than_those_sent,
        teach_the_mean_instead_of_the_model,
        lose_the_targets_of_hits,
        lose_the_accepted_labels,
        forget_ones_own_answers,
    ),
    "comet": (
        send_a_lesson_to_the_wrong_client,
        lose_the_lessons,
        teach_the_centres_of_another_sample,
        lose_the_targets_of_hits,
    ),
    "selective-fd": (add_a_partial_answer_from_the_top,),
    "fedavg": (ignore_the_counts_of_samples, keep_the_old_model, average_with_the_server),
}


@pytest.mark.parametrize(
    ("method", "bug"),
    [pytest.param(method, bug, id=f"{method}: {bug.__name__}") for method, bugs in BUGS_OF.items() for bug in bugs],
)
def test_a_deliberate_bug_in_a_method_is_found_within_200_of_its_schedules(
    method: str, bug: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    for seed in range(SCHEDULES):
        try:
            play_schedule(seed, method=method)
        except Violation:
            return
    pytest.fail(f"{SCHEDULES} schedules of {method} did not find: {bug.__name__}")


def test_the_simulator_finds_clients_that_keep_the_stamps_of_rounds_that_never_happened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("scarlet.protocol.schedule.checksum", lambda stamps: 0)
    monkeypatch.setattr("scarlet.protocol.server.checksum", lambda stamps: 0)
    for seed in range(SCHEDULES):
        try:
            play_schedule(seed, "compact", "scarlet")
        except Violation:
            return
    pytest.fail(f"{SCHEDULES} schedules did not find that stamps are not compared")


def test_a_failing_schedule_prints_the_command_that_replays_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add_a_duplicate_twice(monkeypatch)
    assert main(["chaos", "--schedules", "40"]) == 1
    complaint = capsys.readouterr().err
    command = next(line for line in complaint.splitlines() if "replay: " in line).partition("replay: scarlet ")[2]
    assert main(command.split()) == 1
    monkeypatch.undo()
    assert main(command.split()) == 0
