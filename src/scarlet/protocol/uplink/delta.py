"""Delta coding of answers: a client sends only the labels that differ from those which the server last accepted.

An answer has a name, a hash of its bytes, and says on which accepted answer it builds. The server names in each
downlink the answer of that client which it accepted last, so both sides know what the other has: an answer that was
lost, or that belonged to an attempt which failed, is taken back by the client, and whoever lost its memory begins anew.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from scarlet.arrays import DIGEST_BYTES, Index, Labels, Mask, Values
from scarlet.errors import MessageError
from scarlet.job import Job, Result
from scarlet.protocol.aggregation import Aggregate
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.codec import Codec, Context, Layout, Layouts, shape_from, shape_of
from scarlet.protocol.layouts.reference import CLIENT, read_labels, write_labels
from scarlet.protocol.messages import Message
from scarlet.protocol.slots import Learner, Round
from scarlet.protocol.uplink.labels import ANSWER_HEAD, Answer, SoftLabelAnswers
from scarlet.wire.body import Body, among, i8
from scarlet.wire.entropy import encode_mask, varint
from scarlet.wire.values import coded, read_coded

NOTHING = bytes(DIGEST_BYTES)  # the name of no answer
_DELTA_HEAD = struct.Struct("<I")  # samples whose label is the accepted one; after the name of the accepted answer


@dataclass(frozen=True, slots=True)
class DeltaAnswer:
    """A client's soft-labels of the requested samples, as far as they are not those that were last accepted."""

    round: int
    attempt: int
    client: int
    labels: Labels
    same: Index = field(default_factory=lambda: np.empty(0, np.int64))  # samples whose label is as last accepted
    base: bytes = NOTHING  # the name of the accepted answer that `same` refers to; NOTHING: forget what was accepted


@dataclass(frozen=True, slots=True)
class Accepted:
    """What the server sends to one client: the name of its last answer that was accepted."""

    round: int
    attempt: int
    client: int
    name: bytes  # NOTHING if there was none


def name_of(answer: bytes) -> bytes:
    """The name of an answer."""
    return blake2b(answer, digest_size=DIGEST_BYTES).digest()


@dataclass(slots=True)
class Memory:
    """The last label of each sample, where there is one."""

    value: Values  # f32[P, N]
    known: Mask  # bool[P]
    name: bytes = NOTHING  # of the last answer in it

    @classmethod
    def empty(cls, size: int, classes: int) -> Memory:
        return cls(np.zeros((size, classes), np.float32), np.zeros(size, np.bool_))

    def forget(self) -> None:
        """Begin anew."""
        self.value[:], self.known[:] = 0, False
        self.name = NOTHING

    def take(self, labels: Labels, base: bytes, name: bytes) -> None:
        """Take in a whole answer that builds on `base`."""
        if base == NOTHING:
            self.forget()
        self.value[labels.index], self.known[labels.index], self.name = labels.value, True, name

    def whole(self, answer: DeltaAnswer) -> Labels:
        """All labels of an answer, those that were not sent included; MessageError if it builds on something else."""
        if answer.base == NOTHING:
            return answer.labels
        if answer.base != self.name:
            raise MessageError(f"client {answer.client} builds on an answer that was not its last", "wrong base")
        if not self.known[answer.same].all():
            raise MessageError(f"client {answer.client} refers to labels that it never sent", "wrong base")
        index = np.concatenate([answer.labels.index, answer.same])
        order = np.argsort(index, kind="stable")
        if np.any(np.diff(index[order]) == 0):
            raise MessageError(f"client {answer.client} labels a sample twice", "wrong samples")
        return Labels(index[order], np.concatenate([answer.labels.value, self.value[answer.same]])[order])


@dataclass(slots=True)
class AcceptedState:
    """What the server keeps of each client that ever answered."""

    accepted: dict[int, Memory] = field(default_factory=dict)


@dataclass(slots=True)
class SentState:
    """A client's memory of its own answers, and of what the last of them replaced."""

    memory: Memory
    base: bytes = NOTHING  # what the last answer built on
    before: Labels | None = None  # what it replaced; None: there is no way back
    known: Mask = field(default_factory=lambda: np.empty(0, np.bool_))  # of `before`

    def agree(self, accepted: bytes) -> None:
        """Bring the memory to what the server says it accepted last."""
        memory = self.memory
        if accepted == memory.name:
            return
        if self.before is not None and accepted == self.base:
            memory.value[self.before.index] = self.before.value
            memory.known[self.before.index] = self.known
            memory.name, self.before = self.base, None
        else:
            memory.forget()
            self.before = None

    def split(self, labels: Labels) -> tuple[Labels, Index]:
        """The labels that must be sent, and the samples whose label is as it was."""
        same = self.memory.known[labels.index] & (self.memory.value[labels.index] == labels.value).all(axis=1)
        return Labels(labels.index[~same], labels.value[~same]), labels.index[same]

    def add(self, labels: Labels, name: bytes) -> None:
        """An answer has been given; keep what it replaces."""
        memory = self.memory
        self.base = memory.name
        self.before = Labels(labels.index, memory.value[labels.index].copy())
        self.known = memory.known[labels.index].copy()
        memory.take(labels, self.base, name)


@dataclass(frozen=True, slots=True)
class DeltaLabels:
    """A client sends only the soft-labels that differ from those which the server last accepted."""

    message = DeltaAnswer
    sends_parameters = False

    @property
    def layouts(self) -> Sequence[Layouts]:
        return ({"reference": _REFERENCE, "compact": _COMPACT}, {"reference": _ACCEPTED, "compact": _ACCEPTED})

    def server(self, aggregate: Aggregate, agreement: Agreement, codec: Codec) -> DeltaServer:
        return DeltaServer(aggregate, codec)

    def client(self, agreement: Agreement, codec: Codec) -> DeltaClient:
        return DeltaClient(agreement, codec)


class DeltaServer:
    """Collects soft-labels, and remembers for each client those that it last accepted."""

    def __init__(self, aggregate: Aggregate, codec: Codec) -> None:
        self.state = AcceptedState()
        self._aggregate, self._codec = aggregate, codec

    def open(self, now: Round, learner: Learner | None) -> DeltaAnswers:
        return DeltaAnswers(self._aggregate, now.request, self._codec, self.state)

    def personal(self, now: Round, client: int) -> Iterable[Message]:
        accepted = self.state.accepted
        name = accepted[client].name if client in accepted else NOTHING
        yield Accepted(now.number, now.attempt, client, name)


class DeltaAnswers:
    """Each answer is completed by what was accepted before; what is accepted now counts when the round is closed."""

    shared: Sequence[Message] = ()

    def __init__(self, aggregate: Aggregate, request: Index, codec: Codec, state: AcceptedState) -> None:
        self._whole = SoftLabelAnswers(aggregate, request, codec)  # what the answers come to
        self.limit = self._whole.limit + DIGEST_BYTES + _DELTA_HEAD.size
        self._codec, self._state = codec, state
        self._given: dict[int, tuple[Labels, bytes, bytes]] = {}  # labels, base and name

    def add(self, message: DeltaAnswer, data: bytes) -> None:
        client = message.client
        self._whole.check(client, message.labels)
        if len(message.same) and int(message.same[-1]) >= self._codec.public_size:
            raise MessageError(f"client {client} labels samples that were not requested", "wrong samples")
        labels = self._state.accepted.get(client, Memory.empty(0, self._codec.classes)).whole(message)
        self._whole.add(Answer(message.round, message.attempt, client, labels), data)
        self._given[client] = labels, message.base, name_of(data)

    def finish(self) -> Labels:
        return self._whole.finish()

    def commit(self) -> None:
        accepted = self._state.accepted
        for client, (labels, base, name) in self._given.items():
            if client not in accepted:
                accepted[client] = Memory.empty(self._codec.public_size, self._codec.classes)
            accepted[client].take(labels, base, name)


class DeltaClient:
    """Sends the soft-labels that the server does not have."""

    def __init__(self, agreement: Agreement, codec: Codec) -> None:
        self.state = SentState(Memory.empty(agreement.public_size, agreement.classes))
        self._codec = codec

    def read(self, messages: Sequence[Message]) -> bytes:
        for message in messages:
            if isinstance(message, Accepted):
                return message.name
        raise MessageError("the downlink has a Broadcast without the Accepted that goes with it")

    def apply(self, received: bytes) -> Values | None:
        self.state.agree(received)
        return None

    def answer(self, job: Job, labels: Labels, result: Result) -> bytes:
        labels = Labels(labels.index, self._codec.decoded_by_server(labels.value))
        changed, same = self.state.split(labels)
        message = DeltaAnswer(job.round, job.attempt, job.client, changed, same, self.state.memory.name)
        answer = self._codec.encode(message, Context(job.request))
        self.state.add(labels, name_of(answer))
        return answer


def _write_reference(message: DeltaAnswer, codec: Codec, context: Context) -> bytes:
    labels, delta = message.labels, message.base != NOTHING
    head = ANSWER_HEAD.pack(message.client, delta, *shape_of(labels.value), len(labels.index))
    body = head + write_labels(labels, codec.uplink_bits)
    return body + message.base + _DELTA_HEAD.pack(len(message.same)) + i8(message.same) if delta else body


def _read_reference(body: Body, codec: Codec, context: Context) -> DeltaAnswer:
    client, delta, teachers, classes, samples = body.head(ANSWER_HEAD)
    labels = read_labels(body, codec, context, shape_from(samples, teachers, classes), codec.uplink_bits)
    if delta == 0:
        return DeltaAnswer(body.round, body.attempt, client, labels)
    base = body.raw(DIGEST_BYTES)
    if delta != 1 or base == NOTHING:
        raise MessageError("the answer is delta coded against nothing")
    (count,) = body.head(_DELTA_HEAD)
    return DeltaAnswer(body.round, body.attempt, client, labels, body.index(count), base)


def _write_compact(message: DeltaAnswer, codec: Codec, context: Context) -> bytes:
    labels, delta = message.labels, message.base != NOTHING
    answered = np.sort(np.concatenate([labels.index, message.same])) if delta else labels.index
    head = bytes([delta]) + varint(message.client) + among(answered, context.request)
    if delta:
        head += message.base + encode_mask(np.isin(answered, message.same, assume_unique=True))
    return head + coded(labels.value, codec.uplink_bits)


def _read_compact(body: Body, codec: Codec, context: Context) -> DeltaAnswer:
    delta, client = body.flag(1), body.number()
    answered = body.among(context.request)
    same, base = answered[:0], NOTHING
    if delta:
        base = body.raw(DIGEST_BYTES)
        if base == NOTHING:
            raise MessageError("the answer is delta coded against nothing")
        mask = body.mask(len(answered))
        same, answered = answered[mask], answered[~mask]
    value = read_coded(body, (len(answered), codec.classes), codec.uplink_bits)
    return DeltaAnswer(body.round, body.attempt, client, Labels(answered, value), same, base)


def _read_accepted(body: Body, codec: Codec, context: Context) -> Accepted:
    (client,) = body.head(CLIENT)
    return Accepted(body.round, body.attempt, client, body.raw(DIGEST_BYTES))


_REFERENCE = Layout(
    message=DeltaAnswer, kind=2, column="uplink", fixed=ANSWER_HEAD.size, write=_write_reference, read=_read_reference
)
_COMPACT = Layout(
    message=DeltaAnswer,
    kind=2,
    column="uplink",
    fixed=0,
    write=_write_compact,
    read=_read_compact,
    is_empty=lambda message: not len(message.labels.index) and not len(message.same),
)
_ACCEPTED = Layout(
    message=Accepted,
    kind=8,
    column="downlink",
    fixed=CLIENT.size,
    write=lambda message, codec, context: CLIENT.pack(message.client) + message.name,
    read=_read_accepted,
)
