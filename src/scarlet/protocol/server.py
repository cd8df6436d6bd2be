"""The server of a federation: a state machine of three steps, open_round, take and close_round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from scarlet.arrays import Index, Labels
from scarlet.distributions import entropy
from scarlet.errors import MessageError
from scarlet.protocol.aggregation import Sharpened
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.codec import Codec, Context
from scarlet.protocol.messages import Message, Report, Resync
from scarlet.protocol.method import Method
from scarlet.protocol.slots import Answers, Learner, Round
from scarlet.rng import draw, stream
from scarlet.wire import frame
from scarlet.wire.ledger import Column, Ledger

REPORT_LIMIT = 4096  # bytes; a client's metrics are a few numbers


@dataclass(frozen=True, slots=True)
class Participation:
    """Whom the server asks, and how many must answer."""

    share: float = 1.0  # p: of the clients, that a round asks
    min_answers: int = 1  # a round with fewer is tried again

    def asked(self, clients: int) -> int:
        """How many clients a round asks: round(p K), and at least one."""
        return max(1, round(self.share * clients))


ALL_CLIENTS = Participation()


@dataclass(slots=True)
class ServerState:
    """All that the server remembers from one round to the next, beside its model."""

    downlink: Any  # the state of each slot's server side
    uplink: Any
    round: int = 0  # the last round that was closed
    attempt: int = 0  # how often the round after it has failed


@dataclass(slots=True)
class _OpenRound:
    now: Round
    answers: Answers
    context: Context  # for whoever reads an answer
    shared: bytes  # what all clients are sent
    payload: int  # of that
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
    beta: float | None = None  # the exponent that sharpened the aggregate; None: nothing was sharpened by one
    asked: int = 0  # clients

    @property
    def teacher_entropy(self) -> float:
        """The mean entropy of the taught labels, in nats."""
        return float(entropy(self.taught.value).mean()) if len(self.taught.index) else float("nan")


class Server:
    """Asks, aggregates, learns and teaches; knows no method and no transport."""

    def __init__(
        self,
        method: Method,
        agreement: Agreement,
        codec: Codec,
        ledger: Ledger,
        learner: Learner | None = None,
        participation: Participation = ALL_CLIENTS,
    ) -> None:
        self.method, self.agreement, self.codec = method, agreement, codec
        self.ledger, self.learner, self.participation = ledger, learner, participation
        self._downlink = method.downlink.server(agreement, codec)
        self._uplink = method.uplink.server(method.aggregate, agreement, codec)
        self._state = ServerState(self._downlink.state, self._uplink.state)
        self._from_clients = {codec.layouts[message].kind for message in (Report, Resync, method.uplink.message)}
        self._open: _OpenRound | None = None
        self._rejections: Counter[str] = Counter()  # of all attempts at the round

    def open_round(self, available: Collection[int] | None = None) -> dict[int, bytes]:
        """Draw the clients and samples of a round; say to each client what to learn and what to label.

        Clients are drawn among those that are available; None: all are.
        """
        now = self._drawn(range(self.agreement.clients) if available is None else available)
        answers = self._uplink.open(now, self.learner)
        shared, payload = b"", 0
        for message in (self._downlink.broadcast(now), *answers.shared):
            data = self.codec.encode(message)
            shared, payload = shared + data, payload + self.codec.payload(message, data)
        self._open = _OpenRound(now, answers, Context(now.request), shared, payload)
        if now.attempt == 0:  # a failed attempt is part of what its round costs
            self.ledger.open_round()
        return {client: self._message_to(client) for client in sorted(now.asked)}

    def take(self, sender: int, data: bytes) -> None:
        """Take in one message; one that breaks a rule is counted by its reason and changes nothing else."""
        column: Column
        try:
            message = self._admitted(sender, data)
            column = self._added(message, data)
            payload = self.codec.payload(message, data)
        except MessageError as error:
            self._rejections[error.reason] += 1
            column, payload = "rejected", 0
        self.ledger.add(column, sender, size=len(data), payload=payload)

    def resets(self) -> dict[int, bytes]:
        """What to send to the clients whose cache differs: the broadcast again, and all labels that it reuses."""
        here = self._here()
        waiting, here.waiting = here.waiting, {}
        return waiting

    def close_round(self) -> ClosedRound | None:
        """Aggregate what was answered, learn from it, commit it and keep it for the next broadcast.

        None if too few clients answered: the round is then to be opened again, as its next attempt.
        """
        here, state = self._here(), self.state
        self._open, now = None, here.now
        if len(here.answered) < self.participation.min_answers:
            state.attempt += 1
            return None
        aggregate = here.answers.finish()
        taught = self._downlink.close(now, aggregate, self.learner)
        here.answers.commit()
        state.round, state.attempt = now.number, 0
        rejections, self._rejections = self._rejections, Counter()
        return ClosedRound(
            round=now.number,
            attempt=now.attempt,
            taught=taught,
            hit_ratio=1 - len(now.request) / len(now.index) if len(now.index) else 0.0,
            answers=len(here.answered),
            resets=len(here.reset),
            reports=here.reports,
            rejections=rejections,
            beta=aggregate.beta if isinstance(aggregate, Sharpened) else None,
            asked=len(now.asked),
        )

    @property
    def state(self) -> ServerState:
        """What to save; it is restored in place, because the slots refer to their parts of it."""
        return self._state

    @property
    def request(self) -> Index:
        """The samples that the round under way asks for (I_req)."""
        return self._here().now.request

    @property
    def rejections(self) -> Mapping[str, int]:
        """What was rejected in the round under way, by reason."""
        return self._rejections

    def _here(self) -> _OpenRound:
        if self._open is None:
            raise RuntimeError("no round is open: call open_round() first")
        return self._open

    def _drawn(self, available: Collection[int]) -> Round:
        """The clients and samples of the next attempt."""
        number, attempt = self.state.round + 1, self.state.attempt
        among = sorted(client for client in available if 0 <= client < self.agreement.clients)
        rng = stream(self.agreement.seed, "server", round=number, attempt=attempt, purpose="clients")
        wanted = min(self.participation.asked(self.agreement.clients), len(among))
        asked = frozenset(among[at] for at in draw(rng, len(among), wanted).tolist())
        index = self.codec.draws.index(number, attempt)
        return Round(number, attempt, index, self._downlink.request(index, number), asked)

    def _message_to(self, client: int, *, reset: bool = False) -> bytes:
        """What all clients are sent, then what is meant for one."""
        here, parts = self._here(), []
        self.ledger.add("downlink", client, size=len(here.shared), payload=here.payload)
        for message in self._personal(here.now, client, reset=reset):
            data = self.codec.encode(message)
            column = self.codec.layouts[type(message)].column
            self.ledger.add(column, client, size=len(data), payload=self.codec.payload(message, data))
            parts.append(data)
        return b"".join([here.shared, *parts]) if parts else here.shared

    def _personal(self, now: Round, client: int, *, reset: bool) -> Iterable[Message]:
        yield from self._downlink.personal(now, client, reset=reset)
        yield from self._uplink.personal(now, client)

    def _admitted(self, sender: int, data: bytes) -> Message:
        """The message, if it is one that this client may send in this round."""
        here = self._here()
        now, limit = here.now, max(here.answers.limit, REPORT_LIMIT)
        if sender not in now.asked:
            raise MessageError(f"client {sender} was not asked", "unknown client")
        if len(data) > limit:
            raise MessageError(f"client {sender} sends {len(data)} bytes; at most {limit}", "too large")
        outer = frame.unwrap(data)
        if outer.kind not in self._from_clients:
            raise MessageError(f"client {sender} sends what clients do not send here", "wrong kind")
        if (outer.round, outer.attempt) != (now.number, now.attempt):  # it may not be readable in another round
            raise MessageError(f"client {sender} answers round {outer.round} in round {now.number}", "wrong round")
        message = self.codec.decode(outer, here.context)
        if message.client != sender:
            raise MessageError(f"client {sender} sends in the name of client {message.client}", "unknown client")
        return message

    def _added(self, message: Message, data: bytes) -> Column:
        here, sender = self._here(), message.client
        if isinstance(message, Report):
            if sender in here.reports:
                raise MessageError(f"client {sender} reports a second time", "second report")
            if not 0 <= message.metrics.get("accuracy", 0) <= 1:
                raise MessageError(f"client {sender} reports an accuracy outside 0 to 1", "wrong report")
            here.reports[sender] = message.metrics
            return "report"
        if isinstance(message, Resync):
            if sender in here.reset or sender in here.answered:
                raise MessageError(f"client {sender} asks for a second reset", "second reset")
            here.reset.add(sender)
            self._downlink.forget(sender)
            here.waiting[sender] = self._message_to(sender, reset=True)
            return "uplink"
        if sender in here.answered:
            raise MessageError(f"client {sender} answers a second time", "second answer")
        here.answers.add(message, data)
        here.answered.add(sender)
        self._downlink.acknowledge(sender, self.state.round)
        return "uplink"
