"""Deliberate bugs in what only some methods do, by the method whose schedules must find them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scarlet.arrays import Array, Index, Labels, Values
from scarlet.methods.parts import clusters, mean
from scarlet.protocol.aggregation import Teachers
from scarlet.protocol.cache import ABSENT, CacheTable
from scarlet.protocol.client import ClientState
from scarlet.protocol.codec import Codec
from scarlet.protocol.downlink.personal import Lesson, PersonalServer, PersonalServerState
from scarlet.protocol.downlink.shared import SharedServer, SharedServerState
from scarlet.protocol.holdings import Holdings
from scarlet.protocol.messages import Message, Signal, Sync
from scarlet.protocol.server import ClosedRound, Server, ServerState
from scarlet.protocol.slots import Learner, Round
from scarlet.protocol.state import restore
from scarlet.protocol.unchanged_labels import Unchanged
from scarlet.protocol.uplink.delta import NOTHING, AcceptedState, DeltaAnswer, Memory, SentState
from scarlet.protocol.uplink.weights import MeanOfModels, Models, Parameters
from tests.faults import nodes
from tests.faults.bugs import Bug


def never_take_back_a_lost_answer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SentState, "agree", lambda self, accepted: None)


def take_back_the_name_and_not_the_labels(patch: pytest.MonkeyPatch) -> None:
    def agree(self: SentState, accepted: bytes) -> None:
        self.memory.name = accepted

    patch.setattr(SentState, "agree", agree)


def take_an_answer_whatever_it_builds_on(patch: pytest.MonkeyPatch) -> None:
    """And no client looks what was accepted; otherwise it would not matter."""
    honest = Memory.whole

    def whole(self: Memory, answer: DeltaAnswer) -> Labels:
        known = self.name != NOTHING and bool(self.known[answer.same].all())
        return honest(self, replace(answer, base=self.name)) if known else answer.labels

    never_take_back_a_lost_answer(patch)
    patch.setattr(Memory, "whole", whole)


def compare_only_the_first_class(patch: pytest.MonkeyPatch) -> None:
    def split(self: SentState, labels: Labels) -> tuple[Labels, Index]:
        same = self.memory.known[labels.index] & (self.memory.value[labels.index, 0] == labels.value[:, 0])
        return Labels(labels.index[~same], labels.value[~same]), labels.index[same]

    patch.setattr(SentState, "split", split)


def note_the_name_and_not_the_labels(patch: pytest.MonkeyPatch) -> None:
    """Of what the server accepts after a first answer."""
    take, close_round = Memory.take, Server.close_round

    def take_the_name(self: Memory, labels: Labels, base: bytes, name: bytes) -> None:
        take(self, labels if base == NOTHING else Labels(labels.index[:0], labels.value[:0]), base, name)

    def close(self: Server) -> ClosedRound | None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Memory, "take", take_the_name)
            return close_round(self)

    patch.setattr(Server, "close_round", close)


def look_up_the_labels_of_another_client(patch: pytest.MonkeyPatch) -> None:
    honest = Server._added

    def added(self: Server, message: Message, data: bytes) -> str:
        state = self.state.uplink
        accepted = state.accepted if isinstance(state, AcceptedState) else {}
        own, other = accepted.get(message.client), accepted.get((message.client - 1) % self.agreement.clients)
        if own is not None and other is not None:
            accepted[message.client] = Memory(other.value, np.ones_like(other.known), own.name)
        try:
            return honest(self, message, data)
        finally:
            if own is not None:
                accepted[message.client] = own

    patch.setattr(Server, "_added", added)


def announce_as_unchanged_by_the_first_class(patch: pytest.MonkeyPatch) -> None:
    honest = Unchanged.commit

    def commit(self: Unchanged, table: CacheTable, fresh: Labels, index: Index, round: int) -> Sync:
        held = table.stamp[fresh.index] != ABSENT
        close = held & (table.value[fresh.index, 0] == fresh.value[:, 0])
        true = fresh.value.copy()
        fresh.value[close] = table.value[fresh.index[close]]
        sync = honest(self, table, fresh, index, round)
        table.value[fresh.index] = true
        return sync

    patch.setattr(Unchanged, "commit", commit)


def take_what_is_announced_for_held_by_all(patch: pytest.MonkeyPatch) -> None:
    honest = Holdings.commit

    def commit(self: Holdings, sync: Sync) -> None:
        assert sync.signal is not None
        self.acknowledged[:] |= 1  # everybody holds what is only announced
        honest(self, sync)
        self.drawn[sync.index[sync.signal == Signal.UNCHANGED]] |= 1

    patch.setattr(Holdings, "commit", commit)


def go_on_with_labels_finer_than_those_sent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Codec, "decoded_by_clients", lambda self, value: value)


def teach_the_mean_instead_of_the_model(patch: pytest.MonkeyPatch) -> None:
    honest = SharedServer.close

    def close(self: SharedServer, now: Round, fresh: Labels, learner: Learner | None) -> Labels:
        def predict(model: nodes.LinearModel, index: Index) -> Values:
            assert self.state.target is not None
            return np.asarray(self.state.target[index], np.float32)

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(nodes.LinearModel, "predict", predict)
            return honest(self, now, fresh, learner)

    patch.setattr(SharedServer, "close", close)


def _restart_server_with(patch: pytest.MonkeyPatch, loss: Callable[[ServerState], None]) -> None:
    def lossy(state: ServerState, arrays: Mapping[str, Array]) -> None:
        restore(state, arrays)
        loss(state)

    patch.setattr(nodes, "restore", lossy)


def lose_the_targets_of_hits(patch: pytest.MonkeyPatch) -> None:
    """At a restart the server's model learns from nothing what was not asked for again."""

    def loss(state: ServerState) -> None:
        if isinstance(state.downlink, SharedServerState) and state.downlink.target is not None:
            state.downlink.target[:] = 0

    _restart_server_with(patch, loss)


def lose_the_accepted_labels(patch: pytest.MonkeyPatch) -> None:
    """At a restart the server knows the names of what it accepted, and not the labels."""

    def loss(state: ServerState) -> None:
        if isinstance(state.uplink, AcceptedState):
            for memory in state.uplink.accepted.values():
                memory.value[:] = 0

    _restart_server_with(patch, loss)


def lose_the_lessons(patch: pytest.MonkeyPatch) -> None:
    def loss(state: ServerState) -> None:
        if isinstance(state.downlink, PersonalServerState):
            state.downlink.lessons = None

    _restart_server_with(patch, loss)


def forget_ones_own_answers(patch: pytest.MonkeyPatch) -> None:
    """At a restart of a client."""

    def lossy(state: ClientState, arrays: Mapping[str, Array]) -> None:
        restore(state, arrays)
        if isinstance(state.uplink, SentState):
            state.uplink.memory.forget()

    patch.setattr("scarlet.node.restore", lossy)


def send_a_lesson_to_the_wrong_client(patch: pytest.MonkeyPatch) -> None:
    honest = PersonalServer.personal

    def personal(self: PersonalServer, now: Round, client: int, *, reset: bool) -> Iterator[Message]:
        for message in honest(self, now, client, reset=reset):
            assert isinstance(message, Lesson) and self.state.lessons is not None
            other = (client + 1) % self._agreement.clients
            yield replace(message, labels=self.state.lessons.of(other))

    patch.setattr(PersonalServer, "personal", personal)


def teach_the_centres_of_another_sample(patch: pytest.MonkeyPatch) -> None:
    honest = clusters._Clustered.finish

    def finish(self: clusters._Clustered) -> Teachers:
        found = honest(self)
        return replace(found, value=np.roll(found.value, 1, axis=0))

    patch.setattr(clusters._Clustered, "finish", finish)


def add_a_partial_answer_from_the_top(patch: pytest.MonkeyPatch) -> None:
    honest = mean._Mean.add

    def add(self: mean._Mean, client: int, labels: Labels) -> None:
        honest(self, client, Labels(self._request[: len(labels.index)], labels.value))

    patch.setattr(mean._Mean, "add", add)


def ignore_the_counts_of_samples(patch: pytest.MonkeyPatch) -> None:
    honest = MeanOfModels.add
    patch.setattr(MeanOfModels, "add", lambda self, message: honest(self, replace(message, samples=1)))


def keep_the_old_model(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Models, "finish", lambda self: self._no_labels)


def average_with_the_server(patch: pytest.MonkeyPatch) -> None:
    honest = Models.__init__

    def begin(self: Models, now: Round, learner: Learner, *rest: Any) -> None:
        honest(self, now, learner, *rest)
        self._mean.add(Parameters(now.number, now.attempt, 0, 1, learner.parameters()))

    patch.setattr(Models, "__init__", begin)


BUGS_OF: Mapping[str, Iterable[Bug]] = {
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
