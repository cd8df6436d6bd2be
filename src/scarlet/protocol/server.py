"""The server of a federation: a state machine of three steps, open_round, take and close_round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from scarlet.errors import MessageError
from scarlet.protocol.average import AverageOfModels
from scarlet.protocol.cache import CacheTable, member, recall
from scarlet.protocol.check import check_distributions, entropy
from scarlet.protocol.delta import Memory, name_of
from scarlet.protocol.federation import Federation
from scarlet.protocol.holdings import Holdings
from scarlet.protocol.method import Fold, Method, Teachers
from scarlet.protocol.schedule import Known, Rules, checksum
from scarlet.protocol.server_state import Lessons, Progress, ServerState
from scarlet.protocol.types import (
    DIGEST_BYTES,
    EVERYBODY,
    NOTHING,
    Accepted,
    Broadcast,
    CatchUp,
    History,
    Index,
    Labels,
    Lesson,
    Parameters,
    Report,
    Resync,
    Uplink,
    Values,
)
from scarlet.rng import draw, stream
from scarlet.wire import frame
from scarlet.wire.codec import FROM_CLIENTS, Codec
from scarlet.wire.ledger import Column, Ledger

REPORT_LIMIT = 4096  # bytes; a client's metrics are a few numbers
_FROM_CLIENTS = Uplink, Report, Resync, Parameters


class Learner(Protocol):
    """The server's own model."""

    def learn(self, labels: Labels, round: int) -> None:
        """Distil soft-labels."""
        ...

    def predict(self, index: Index) -> Values:
        """The model's own soft-labels of public samples."""
        ...

    def parameters(self) -> Values:
        """All weights and buffers, f32[M]."""
        ...

    def load(self, parameters: Values) -> None:
        """Replace all weights and buffers."""
        ...


@dataclass(slots=True)
class _OpenRound:
    round: int
    attempt: int
    index: Index
    request: Index
    known: Known  # for whoever reads an answer
    fold: Fold
    broadcast: bytes
    payload: int  # of the broadcast
    asked: frozenset[int]
    size_limit: int
    average: AverageOfModels | None  # where weights are exchanged
    answered: set[int] = field(default_factory=set)
    given: dict[int, tuple[Labels, bytes, bytes]] = field(default_factory=dict)  # labels, base and name, under delta
    reset: set[int] = field(default_factory=set)
    waiting: dict[int, bytes] = field(default_factory=dict)  # resets to be sent
    reports: dict[int, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClosedRound:
    """What a round came to."""

    round: int
    attempt: int
    taught: Labels
    hit_ratio: float
    answers: int
    resets: int
    reports: Mapping[int, Mapping[str, float]]
    rejections: Mapping[str, int]  # by reason, failed attempts included

    @property
    def teacher_entropy(self) -> float:
        """The mean entropy of the taught labels, in nats."""
        return float(entropy(self.taught.value).mean()) if len(self.taught.index) else float("nan")


class Server:
    """Asks, aggregates, learns and teaches; knows no method and no transport."""

    def __init__(
        self,
        method: Method,
        federation: Federation,
        codec: Codec,
        ledger: Ledger,
        learner: Learner | None = None,
    ) -> None:
        self.method = method
        self.federation = federation
        self.codec = codec
        self.ledger = ledger
        self.learner = learner
        size, classes = federation.public_size, federation.classes
        self._rules = Rules(method, federation)
        derives = codec.derives and self._rules.keep_stamps
        self.state = ServerState(
            CacheTable.empty(size, *method.label_shape(classes)),
            Holdings.empty(federation.clients, size, method.cache.duration),
            target=np.zeros((size, classes), np.float32) if method.keeps_targets else None,
            accepted={} if method.delta else None,
            progress=Progress.empty(size, federation.clients) if derives else None,
        )
        self._open: _OpenRound | None = None
        self._rejections: Counter[str] = Counter()  # of all attempts at the round

    def open_round(self) -> dict[int, bytes]:
        """Draw the clients and samples of a round; say to each client what to learn and what to label."""
        federation, state = self.federation, self.state
        round, attempt = state.round + 1, state.attempt
        rng = stream(federation.seed, "server", round=round, attempt=attempt, purpose="clients")
        asked = draw(rng, federation.clients, federation.asked)
        index = self._rules.index(round, attempt)
        request = self.method.cache.request(state.cache, index, round)
        stamps = checksum(state.progress.before) if state.progress is not None else 0
        broadcast = Broadcast(round, attempt, request, state.sync, state.digest, federation.public, stamps)
        shared = self.codec.encode(broadcast)
        payload = self.codec.payload(broadcast, shared)
        answer: Uplink | Parameters
        value = np.zeros((len(request), federation.classes), np.float32)
        base = bytes([1]) * DIGEST_BYTES if self.method.delta else NOTHING
        answer = Uplink(round, attempt, 0, Labels(request, value), base=base)
        average = None
        if self.method.exchange == "weights":
            assert self.learner is not None
            answer = Parameters(round, attempt, EVERYBODY, 0, self.learner.parameters())
            model = self.codec.encode(answer)
            shared, payload = shared + model, payload + self.codec.payload(answer, model)
            average = AverageOfModels(len(answer.value), len(asked))
        self._open = now = _OpenRound(
            round,
            attempt,
            index,
            request,
            Known(self._rules, request),
            self.method.aggregate(request, federation.classes),
            shared,
            payload,
            frozenset(asked.tolist()),
            max(self.codec.size(answer), REPORT_LIMIT),
            average,
        )
        if attempt == 0:  # a failed attempt is part of what its round costs
            self.ledger.open_round()
        for client in now.asked:
            self.ledger.add("downlink", client, size=len(now.broadcast), payload=now.payload)
        held = self._held()
        return {client: self._downlink(client, held) for client in sorted(now.asked)}

    def take(self, sender: int, data: bytes) -> None:
        """Take in one message; one that breaks a rule is counted by its reason and changes nothing else."""
        now = self._now()
        try:
            column, payload = self._take(sender, data, now)
        except MessageError as error:
            self._rejections[error.reason] += 1
            column, payload = "rejected", 0
        self.ledger.add(column, sender, size=len(data), payload=payload)

    @property
    def request(self) -> Index:
        """The samples that the round under way asks for (I_req)."""
        return self._now().request

    @property
    def rejections(self) -> Mapping[str, int]:
        """What was turned down in the round under way, by reason."""
        return self._rejections

    def resets(self) -> dict[int, bytes]:
        """What to send to the clients that said their cache differs: the broadcast again, and all that it reuses."""
        now = self._now()
        waiting, now.waiting = now.waiting, {}
        return waiting

    def close_round(self) -> ClosedRound | None:
        """Aggregate what was answered, commit it, learn from it and keep it for the next broadcast.

        None if too few clients answered: the round is then to be opened again, as its next attempt.
        """
        now, state = self._now(), self.state
        self._open = None
        if len(now.answered) < self.federation.min_answers:
            state.attempt += 1
            return None
        if now.average is not None and self.learner is not None:
            self.learner.load(now.average.finish())
        taught = self._teach(now)
        for client, (labels, base, name) in now.given.items():
            assert state.accepted is not None
            if client not in state.accepted:
                state.accepted[client] = Memory.empty(self.federation.public_size, self.federation.classes)
            state.accepted[client].take(labels, base, name)
        state.round, state.attempt = now.round, 0
        rejections, self._rejections = self._rejections, Counter()
        return ClosedRound(
            round=now.round,
            attempt=now.attempt,
            taught=taught,
            hit_ratio=1 - len(now.request) / len(now.index) if len(now.index) else 0.0,
            answers=len(now.answered),
            resets=len(now.reset),
            reports=now.reports,
            rejections=rejections,
        )

    def _teach(self, now: _OpenRound) -> Labels:
        """Learn from the round's labels, commit what is to be taught of them, and return that."""
        state, fresh = self.state, now.fold.finish()
        hits = now.index[~member(now.index, now.request, self.federation.public_size)]
        if not self.method.keeps_targets:
            # What is learned is what the clients will hear, the hits as they were heard before.
            fresh = Labels(fresh.index, self.codec.heard_by_clients(fresh.value))
            self._learn(_merged(Labels(hits, state.cache.value[hits]), fresh), now.round)
        else:
            assert state.target is not None
            state.target[fresh.index] = fresh.mean if isinstance(fresh, Teachers) else fresh.value
            index = np.sort(np.concatenate([hits, fresh.index]))
            self._learn(Labels(index, state.target[index]), now.round)
            if isinstance(fresh, Teachers) and self.method.personal:
                return self._assign(fresh, now.attempt)
            value = fresh.value
            if self.method.teach == "model" and self.learner is not None:
                value = self.learner.predict(fresh.index)
                check_distributions(value, "the server's model")
            fresh = Labels(fresh.index, self.codec.heard_by_clients(value))
        before = state.cache.stamp.copy() if state.progress is not None else None
        sync = replace(self.method.cache.commit(state.cache, fresh, now.index, now.round), attempt=now.attempt)
        if state.progress is not None and before is not None:
            state.progress.before = before
            state.progress.note(sync)
        if sync.signal is not None:
            state.holdings.commit(sync)
        taught = recall(state.cache, sync)
        state.sync, state.digest = sync, taught.digest()
        return taught

    def _assign(self, fresh: Teachers, attempt: int) -> Labels:
        """Keep for each client the teacher that was chosen for it; return the mean of all."""
        teachers = fresh.value.shape[1]
        clients = sorted(fresh.choice)
        choice = np.array([fresh.choice[client] for client in clients], np.int32).reshape(
            len(clients), len(fresh.index)
        )
        choice[choice < 0] = teachers
        mean = Labels(fresh.index, fresh.mean)
        value = self.codec.heard_by_clients(np.concatenate([fresh.value, fresh.mean[:, np.newaxis]], axis=1))
        self.state.lessons = Lessons(fresh.index, value, np.array(clients, np.int64), choice, attempt)
        return mean

    def _learn(self, labels: Labels, round: int) -> None:
        if self.learner is not None and self.method.exchange == "labels":
            self.learner.learn(labels, round)

    def _take(self, sender: int, data: bytes, now: _OpenRound) -> tuple[Column, int]:
        if sender not in now.asked:
            raise MessageError(f"client {sender} was not asked", "unknown client")
        if len(data) > now.size_limit:
            raise MessageError(f"client {sender} sends {len(data)} bytes; at most {now.size_limit}", "too large")
        outer = frame.unwrap(data)
        if outer.kind not in FROM_CLIENTS:
            raise MessageError(f"client {sender} sends what only a server may send", "wrong kind")
        if (outer.round, outer.attempt) != (now.round, now.attempt):  # it may not be readable in another round
            raise MessageError(f"client {sender} answers round {outer.round} in round {now.round}", "wrong round")
        message = self.codec.decode(outer, now.known)
        assert isinstance(message, _FROM_CLIENTS)
        if message.client != sender:
            raise MessageError(f"client {sender} sends in the name of client {message.client}", "unknown client")
        payload = self.codec.payload(message, data)
        match message:
            case Report():
                if sender in now.reports:
                    raise MessageError(f"client {sender} reports a second time", "second report")
                if not 0 <= message.metrics.get("accuracy", 0) <= 1:
                    raise MessageError(f"client {sender} reports an accuracy outside 0 to 1", "wrong report")
                now.reports[sender] = message.metrics
                return "report", payload
            case Resync():
                self._reset(sender, now)
                return "uplink", payload
            case Uplink():
                self._take_labels(message, data, now)
            case Parameters():
                self._check_first(sender, now)
                if now.average is None:
                    raise MessageError(f"client {sender} sends weights where labels are exchanged", "wrong kind")
                now.average.add(message)
        now.answered.add(sender)
        self.state.holdings.acknowledge(sender, self.state.round)
        if self.state.progress is not None:
            self.state.progress.applied[sender] = self.state.round
        return "uplink", payload

    def _take_labels(self, message: Uplink, data: bytes, now: _OpenRound) -> None:
        sender, memory = message.client, self.state.accepted
        self._check_first(sender, now)
        if now.average is not None:
            raise MessageError(f"client {sender} sends labels where weights are exchanged", "wrong kind")
        self._check(sender, message.labels, now)
        labels = message.labels
        if memory is not None:
            if len(message.same) and int(message.same[-1]) >= self.federation.public_size:
                raise MessageError(f"client {sender} labels samples that were not requested", "wrong samples")
            labels = memory.get(sender, Memory.empty(0, self.federation.classes)).whole(message)
            self._check(sender, labels, now)
            now.given[sender] = labels, message.base, name_of(data)
        elif len(message.same):
            raise MessageError(f"client {sender} refers to labels that nobody keeps", "wrong base")
        now.fold.add(sender, labels)

    def _reset(self, sender: int, now: _OpenRound) -> None:
        if sender in now.reset or sender in now.answered:
            raise MessageError(f"client {sender} asks for a second reset", "second reset")
        now.reset.add(sender)
        self.state.holdings.forget(sender)
        if self.state.progress is not None:
            self.state.progress.applied[sender] = -1
        now.waiting[sender] = self._downlink(sender, self._held(), reset=True)
        self.ledger.add("downlink", sender, size=len(now.broadcast), payload=now.payload)

    def _held(self) -> Index:
        """The samples of the round before whose label is not in its sync, because everybody had it."""
        sync = self.state.sync
        return np.empty(0, np.int64) if sync is None else sync.index[sync.held]

    def _downlink(self, client: int, held: Index, *, reset: bool = False) -> bytes:
        """What all clients are sent, then what is meant for one: cached labels that it lacks, its lesson, its name."""
        now, state = self._now(), self.state
        parts = [now.broadcast]
        missing = held[state.holdings.lacks(client, held)]
        if len(missing) or reset:
            labels = Labels(missing, state.cache.value[missing])
            parts.append(self._personal(CatchUp(now.round, now.attempt, client, reset, labels), "catch_up"))
        if state.lessons is not None:
            lesson = Lesson(now.round, now.attempt, client, state.lessons.of(client), state.lessons.drawn)
            parts.append(self._personal(lesson, "downlink"))
        if state.progress is not None and state.sync is not None:
            parts += self._history(client, state.progress)
        if state.accepted is not None:
            name = state.accepted[client].name if client in state.accepted else NOTHING
            parts.append(self._personal(Accepted(now.round, now.attempt, client, name), "downlink"))
        return b"".join(parts)

    def _history(self, client: int, progress: Progress) -> list[bytes]:
        """What a client must know to work out the stamps as of two rounds ago; nothing, as a rule."""
        now = self._now()
        found = progress.history(client, now.round - 2)
        if found is None:
            message = History(now.round, now.attempt, client, now.round - 2, (), progress.before)
        elif found[1]:
            message = History(now.round, now.attempt, client, *found, None)
        else:
            return []
        return [self._personal(message, "catch_up")]

    def _personal(self, message: CatchUp | Lesson | Accepted | History, column: Column) -> bytes:
        data = self.codec.encode(message, Known(self._rules))
        self.ledger.add(column, message.client, size=len(data), payload=self.codec.payload(message, data))
        return data

    def _now(self) -> _OpenRound:
        if self._open is None:
            raise RuntimeError("no round is open: call open_round() first")
        return self._open

    def _check_first(self, sender: int, now: _OpenRound) -> None:
        if sender in now.answered:
            raise MessageError(f"client {sender} answers a second time", "second answer")

    def _check(self, sender: int, labels: Labels, now: _OpenRound) -> None:
        shape, classes = labels.value.shape[1:], self.federation.classes
        if shape != (classes,):
            raise MessageError(f"client {sender} sends labels of shape {shape}, not {(classes,)}", "wrong shape")
        if not _within(labels.index, now.request):
            raise MessageError(f"client {sender} labels samples that were not requested", "wrong samples")
        check_distributions(labels.value, f"client {sender}")


def _merged(a: Labels, b: Labels) -> Labels:
    """The labels of disjoint samples, in their order."""
    if not len(a.index):
        return b
    index = np.concatenate([a.index, b.index])
    order = np.argsort(index, kind="stable")
    return Labels(index[order], np.concatenate([a.value, b.value])[order])


def _within(index: Index, request: Index) -> bool:
    """Whether all of `index` was requested; most clients answer all of it, which is quick to see."""
    return index is request or np.array_equal(index, request) or bool(np.isin(index, request, assume_unique=True).all())
