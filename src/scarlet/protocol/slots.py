"""The two slots of a method: how clients are taught (downlink), and how they answer (uplink).

A slot is a value that makes a server side and a client side, and has messages with their layouts. Each side keeps its
own state: one dataclass, made with the side, that generic code saves and restores in place (`protocol/state.py`).
Server, client and codecs know these protocols and no implementation of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from scarlet.arrays import Index, Labels, Values
from scarlet.job import Choose, Job, Result
from scarlet.protocol.aggregation import Aggregate
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.cache import CachePolicy
from scarlet.protocol.codec import Codec, Layouts
from scarlet.protocol.messages import Broadcast, Message
from scarlet.wire.frame import Frame


@dataclass(slots=True)
class NoState:
    """Nothing is remembered from one round to the next."""


@dataclass(frozen=True, slots=True)
class Round:
    """An attempt at a round, as the server opened it."""

    number: int
    attempt: int
    index: Index  # I^t
    request: Index  # I_req^t
    asked: frozenset[int]  # clients


class Learner(Protocol):
    """The server's own model."""

    def learn(self, labels: Labels, round: int) -> None:
        """Distil soft-labels."""

    def predict(self, index: Index) -> Values:
        """The model's own soft-labels of public samples."""

    def parameters(self) -> Values:
        """All weights and buffers, f32[M]."""

    def load(self, parameters: Values) -> None:
        """Replace all weights and buffers."""


class DownlinkServer(Protocol):
    """Decides what is requested, and teaches what was made of the answers."""

    state: Any

    def request(self, index: Index, round: int) -> Index:
        """I_req^t: the samples of I^t that clients must label."""

    def broadcast(self, now: Round) -> Broadcast:
        """What all clients are sent."""

    def personal(self, now: Round, client: int, *, reset: bool) -> Iterable[Message]:
        """What one client is sent beside the broadcast; `reset` if it said that its cache differs."""

    def close(self, now: Round, fresh: Labels, learner: Learner | None) -> Labels:
        """Let the server's model learn the aggregate of a round, commit what is taught of it, and return that."""

    def acknowledge(self, client: int, round: int) -> None:
        """A client has applied what was taught of a round."""

    def forget(self, client: int) -> None:
        """A client's cache is empty, or cannot be trusted."""


class DownlinkClient(Protocol):
    """Rebuilds what was taught."""

    state: Any

    def read(self, broadcast: Frame, messages: Sequence[Message]) -> Received:
        """Decode the broadcast; nothing is checked or applied yet. OutOfStep if this client knows too little for it."""

    def apply(self, received: Any) -> Labels:
        """Check what was read, apply it and return the teacher; OutOfStep if that is not what the server taught."""


class Received(Protocol):
    """A downlink's broadcast, and what the slot took from the messages with it."""

    @property
    def broadcast(self) -> Broadcast: ...


class Downlink(Protocol):
    """How clients are taught."""

    @property
    def layouts(self) -> Sequence[Layouts]:
        """Of the messages that only this downlink has."""

    @property
    def policy(self) -> CachePolicy: ...

    @property
    def teachers(self) -> int | None:
        """C, the labels that the aggregate has for each sample; None: one."""

    @property
    def choose(self) -> Choose | None:
        """How a client takes one of several teachers; None: it is taught one."""

    def label_shape(self, classes: int) -> tuple[int, ...]:
        """The shape of what is taught of one sample."""

    def server(self, agreement: Agreement, codec: Codec) -> DownlinkServer: ...

    def client(self, agreement: Agreement, codec: Codec) -> DownlinkClient: ...


class Answers(Protocol):
    """The answers to one attempt at a round; those of a failed attempt vanish whole."""

    @property
    def shared(self) -> Sequence[Message]:
        """What all clients are sent, beside the broadcast, to be able to answer."""

    @property
    def limit(self) -> int:
        """The most bytes that an answer can have."""

    def add(self, message: Any, data: bytes) -> None:
        """Take in an answer, which came as `data`; MessageError if it breaks a rule, and then nothing has changed."""

    def finish(self) -> Labels:
        """The aggregate of the samples that somebody answered."""

    def commit(self) -> None:
        """The round is closed: remember what later rounds build on."""


class UplinkServer(Protocol):
    """Collects answers."""

    state: Any

    def open(self, now: Round, learner: Learner | None) -> Answers: ...

    def personal(self, now: Round, client: int) -> Iterable[Message]:
        """What one client is sent to be able to answer."""


class UplinkClient(Protocol):
    """Answers."""

    state: Any

    def read(self, messages: Sequence[Message]) -> Any:
        """What this side takes from a downlink's messages; MessageError if one is missing. Nothing is applied yet."""

    def apply(self, received: Any) -> Values | None:
        """The parameters that training begins with; None: those that the client has."""

    def answer(self, job: Job, labels: Labels, result: Result) -> bytes:
        """The answer to a job; `labels` are the soft-labels that the method's filter left."""


class Uplink(Protocol):
    """How clients answer."""

    @property
    def layouts(self) -> Sequence[Layouts]:
        """Of the messages that only this uplink has."""

    @property
    def message(self) -> type:
        """What an answer is."""

    @property
    def sends_parameters(self) -> bool:
        """Whether an answer needs the parameters of the trained model."""

    def server(self, aggregate: Aggregate, agreement: Agreement, codec: Codec) -> UplinkServer: ...

    def client(self, agreement: Agreement, codec: Codec) -> UplinkClient: ...
