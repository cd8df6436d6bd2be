"""The server of a federation: a state machine of three steps, open_round, take and close_round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from scarlet.core.cache import CacheTable, recall
from scarlet.core.method import Fold, Method
from scarlet.core.rng import stream
from scarlet.core.types import DIGEST_BYTES, Broadcast, Index, Labels, Report, Sync, Uplink, Values
from scarlet.errors import MessageError
from scarlet.wire.codec import Codec
from scarlet.wire.ledger import Ledger

# How far a row of soft-labels may be from a sum of 1. A float32 softmax over 1,000 classes is off by less than 1e-5.
SUM_TOLERANCE = 1e-3


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


@dataclass(slots=True)
class ServerState:
    """All that the server remembers from one round to the next."""

    cache: CacheTable
    round: int = 0  # the last round that was closed
    sync: Sync | None = None  # of that round
    digest: bytes = bytes(DIGEST_BYTES)  # of the labels taught in that round


@dataclass(slots=True)
class _OpenRound:
    index: Index
    request: Index
    fold: Fold
    answered: set[int] = field(default_factory=set)
    reports: dict[int, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClosedRound:
    """What a round came to."""

    round: int
    taught: Labels
    hit_ratio: float
    reports: Mapping[int, Mapping[str, float]]

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
        self.state = ServerState(CacheTable.empty(federation.public_size, federation.classes))
        self._open: _OpenRound | None = None

    def open_round(self) -> dict[int, bytes]:
        """Draw the round's samples and say, to each client, what to learn and what to label."""
        federation, state = self.federation, self.state
        round = state.round + 1
        rng = stream(federation.seed, "server", round=round, purpose="select")
        index = self.method.select(rng, federation.public_size, federation.public_per_round)
        request = self.method.cache.request(state.cache, index, round)
        self._open = _OpenRound(index, request, self.method.aggregate(request, federation.classes))
        broadcast = Broadcast(round, 0, request, state.sync, state.digest)
        data = self.codec.encode(broadcast)
        payload = self.codec.payload(broadcast)
        self.ledger.open_round()
        for client in range(federation.clients):
            self.ledger.add("downlink", client, size=len(data), payload=payload)
        return dict.fromkeys(range(federation.clients), data)

    def take(self, sender: int, data: bytes) -> None:
        """Take in one message of the round; one that breaks a rule raises MessageError and changes nothing."""
        now = self._now()
        if not 0 <= sender < self.federation.clients:
            raise MessageError(f"client {sender} is not one of the {self.federation.clients}")
        message = self.codec.decode(data)
        round = self.state.round + 1
        if (message.round, message.attempt) != (round, 0):
            raise MessageError(f"client {sender} answers round {message.round} in round {round}")
        # A report need not be written as this side would write it, so its payload is what its frame leaves.
        payload = len(data) - (self.codec.size(message) - self.codec.payload(message))
        match message:
            case Report(client=client) if client == sender:
                now.reports[sender] = message.metrics
                self.ledger.add("report", sender, size=len(data), payload=payload)
            case Uplink(client=client) if client == sender:
                self._check(sender, message.labels, now)
                now.fold.add(message.labels)
                now.answered.add(sender)
                self.ledger.add("uplink", sender, size=len(data), payload=payload)
            case _:
                raise MessageError(f"client {sender} sends what only somebody else may send")

    def close_round(self) -> ClosedRound:
        """Aggregate what was answered, commit it to the cache, learn from it and keep it for the next broadcast."""
        now, state = self._now(), self.state
        round = state.round + 1
        hits = len(now.index) - len(now.request)
        sync = self.method.cache.commit(state.cache, now.fold.finish(), now.index, round)
        taught = recall(state.cache, sync)
        if self.learner is not None:
            self.learner.learn(taught, round)
        state.sync, state.digest, state.round = sync, taught.digest(), round
        self._open = None
        return ClosedRound(round, taught, hits / len(now.index), now.reports)

    def _now(self) -> _OpenRound:
        if self._open is None:
            raise RuntimeError("no round is open: call open_round() first")
        return self._open

    def _check(self, sender: int, labels: Labels, now: _OpenRound) -> None:
        if sender in now.answered:
            raise MessageError(f"client {sender} answers a second time")
        if labels.value.shape[1] != self.federation.classes:
            raise MessageError(
                f"client {sender} sends {labels.value.shape[1]} classes where there are {self.federation.classes}"
            )
        if not np.isin(labels.index, now.request, assume_unique=True).all():
            raise MessageError(f"client {sender} labels samples that were not requested")
        check_distributions(labels.value, f"client {sender}")


def check_distributions(value: Values, who: str) -> None:
    """Raise MessageError unless every row is finite, has no negative entry and sums to 1."""
    if not np.isfinite(value).all():
        raise MessageError(f"{who} sends a soft-label with NaN or infinity; a smaller lr may keep it from diverging")
    if (value < 0).any():
        raise MessageError(f"{who} sends a soft-label with a negative entry")
    if (np.abs(value.sum(axis=1, dtype=np.float64) - 1) > SUM_TOLERANCE).any():
        raise MessageError(f"{who} sends a soft-label that does not sum to 1")


def entropy(value: Values) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The entropy of each row, in nats: -sum_i z_i ln z_i, with 0 ln 0 = 0."""
    rows = value.astype(np.float64)
    logs = np.log(rows, where=rows > 0, out=np.zeros_like(rows))
    result: np.ndarray[tuple[int], np.dtype[np.float64]] = -(rows * logs).sum(axis=1)
    return result
