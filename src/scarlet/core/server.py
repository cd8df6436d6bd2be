"""The server of a federation: a state machine of three steps, open_round, take and close_round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from scarlet.core.cache import CacheTable, recall
from scarlet.core.check import check_distributions, entropy
from scarlet.core.holdings import Holdings
from scarlet.core.method import Fold, Method
from scarlet.core.rng import draw, stream
from scarlet.core.types import (
    DIGEST_BYTES,
    NO_LABELS_YET,
    Broadcast,
    CatchUp,
    Index,
    Labels,
    Report,
    Resync,
    Signal,
    Sync,
    Uplink,
)
from scarlet.errors import MessageError
from scarlet.wire.codec import Codec
from scarlet.wire.ledger import Column, Ledger

REPORT_LIMIT = 4096  # bytes; a client's metrics are a few numbers


class Learner(Protocol):
    """The server's own model."""

    def learn(self, labels: Labels, round: int) -> None:
        """Train on the labels that the clients will be taught."""
        ...


@dataclass(frozen=True, slots=True)
class Federation:
    """What server and clients agree on before the first round."""

    clients: int
    public_size: int
    public_per_round: int
    classes: int
    seed: int
    participation: float = 1.0  # the share of clients that a round asks
    min_answers: int = 1  # a round with fewer is tried again
    public: bytes = bytes(DIGEST_BYTES)  # the fingerprint of the public set

    @property
    def asked(self) -> int:
        """How many clients a round asks: round(p K), and at least one."""
        return max(1, round(self.participation * self.clients))


@dataclass(slots=True)
class ServerState:
    """All that the server remembers from one round to the next: plain arrays and numbers."""

    cache: CacheTable
    holdings: Holdings
    round: int = 0  # the last round that was closed
    attempt: int = 0  # how often the round after it has failed
    sync: Sync | None = None  # of the closed round
    digest: bytes = NO_LABELS_YET  # of the labels taught in it


@dataclass(slots=True)
class _OpenRound:
    round: int
    attempt: int
    index: Index
    request: Index
    fold: Fold
    broadcast: bytes
    payload: int  # of the broadcast
    asked: frozenset[int]
    size_limit: int
    answered: set[int] = field(default_factory=set)
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
        self.state = ServerState(
            CacheTable.empty(federation.public_size, federation.classes),
            Holdings.empty(federation.clients, federation.public_size, method.cache.duration),
        )
        self._open: _OpenRound | None = None
        self._rejections: Counter[str] = Counter()  # of all attempts at the round

    def open_round(self) -> dict[int, bytes]:
        """Draw the clients and samples of a round; say to each client what to learn and what to label."""
        federation, state = self.federation, self.state
        round, attempt = state.round + 1, state.attempt
        rng = stream(federation.seed, "server", round=round, attempt=attempt, purpose="clients")
        asked = draw(rng, federation.clients, federation.asked)
        rng = stream(federation.seed, "server", round=round, attempt=attempt, purpose="select")
        index = self.method.select(rng, federation.public_size, federation.public_per_round)
        request = self.method.cache.request(state.cache, index, round)
        broadcast = Broadcast(round, attempt, request, state.sync, state.digest, federation.public)
        largest = Uplink(round, attempt, 0, Labels(request, np.zeros((len(request), federation.classes), np.float32)))
        self._open = now = _OpenRound(
            round,
            attempt,
            index,
            request,
            self.method.aggregate(request, federation.classes),
            self.codec.encode(broadcast),
            self.codec.payload(broadcast),
            frozenset(asked.tolist()),
            max(self.codec.size(largest), REPORT_LIMIT),
        )
        if attempt == 0:  # a failed attempt is part of what its round costs
            self.ledger.open_round()
        for client in now.asked:
            self.ledger.add("downlink", client, size=len(now.broadcast), payload=now.payload)
        hits = self._hits()
        return {client: now.broadcast + self._catch_up(client, hits) for client in sorted(now.asked)}

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
        sync = self.method.cache.commit(state.cache, now.fold.finish(), now.index, now.round)
        if sync.signal is not None:
            state.holdings.commit(sync)
        taught = recall(state.cache, sync)
        if self.learner is not None:
            self.learner.learn(taught, now.round)
        state.sync, state.digest, state.round, state.attempt = sync, taught.digest(), now.round, 0
        rejections, self._rejections = self._rejections, Counter()
        return ClosedRound(
            round=now.round,
            attempt=now.attempt,
            taught=taught,
            hit_ratio=1 - len(now.request) / len(now.index),
            answers=len(now.answered),
            resets=len(now.reset),
            reports=now.reports,
            rejections=rejections,
        )

    def _take(self, sender: int, data: bytes, now: _OpenRound) -> tuple[Column, int]:
        if sender not in now.asked:
            raise MessageError(f"client {sender} was not asked", "unknown client")
        if len(data) > now.size_limit:
            raise MessageError(f"client {sender} sends {len(data)} bytes; at most {now.size_limit}", "too large")
        message = self.codec.decode(data)
        if (message.round, message.attempt) != (now.round, now.attempt):
            raise MessageError(f"client {sender} answers round {message.round} in round {now.round}", "wrong round")
        if isinstance(message, Broadcast | CatchUp) or message.client != sender:
            raise MessageError(f"client {sender} sends what only somebody else may send", "unknown client")
        # A report need not be written as this side would write it, so its payload is what its frame leaves.
        payload = len(data) - (self.codec.size(message) - self.codec.payload(message))
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
                self._check(sender, message.labels, now)
                now.fold.add(message.labels)
                now.answered.add(sender)
                self.state.holdings.acknowledge(sender, self.state.round)
                return "uplink", payload

    def _reset(self, sender: int, now: _OpenRound) -> None:
        if sender in now.reset or sender in now.answered:
            raise MessageError(f"client {sender} asks for a second reset", "second reset")
        now.reset.add(sender)
        self.state.holdings.forget(sender)
        now.waiting[sender] = now.broadcast + self._catch_up(sender, self._hits(), reset=True)
        self.ledger.add("downlink", sender, size=len(now.broadcast), payload=now.payload)

    def _hits(self) -> Index:
        """The samples of the round before whose label is not in its sync, because everybody had it."""
        sync = self.state.sync
        if sync is None or sync.signal is None:
            return np.empty(0, np.int64)
        hits: Index = sync.index[sync.signal == Signal.CACHED]
        return hits

    def _catch_up(self, client: int, hits: Index, *, reset: bool = False) -> bytes:
        """The message that brings one client up to date on `hits`; nothing where it lacks nothing."""
        missing = hits[self.state.holdings.lacks(client, hits)]
        if not len(missing) and not reset:
            return b""
        now = self._now()
        labels = Labels(missing, self.state.cache.value[missing])
        message = CatchUp(now.round, now.attempt, client, reset, labels)
        data = self.codec.encode(message)
        self.ledger.add("catch_up", client, size=len(data), payload=self.codec.payload(message))
        return data

    def _now(self) -> _OpenRound:
        if self._open is None:
            raise RuntimeError("no round is open: call open_round() first")
        return self._open

    def _check(self, sender: int, labels: Labels, now: _OpenRound) -> None:
        if sender in now.answered:
            raise MessageError(f"client {sender} answers a second time", "second answer")
        classes = self.federation.classes
        if labels.value.shape[1] != classes:
            raise MessageError(f"client {sender} sends {labels.value.shape[1]} classes, not {classes}", "wrong shape")
        if not _within(labels.index, now.request):
            raise MessageError(f"client {sender} labels samples that were not requested", "wrong samples")
        check_distributions(labels.value, f"client {sender}")


def _within(index: Index, request: Index) -> bool:
    """Whether all of `index` was requested; most clients answer all of it, which is quick to see."""
    return np.array_equal(index, request) or bool(np.isin(index, request, assume_unique=True).all())
