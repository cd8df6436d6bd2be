"""Clients answer with their soft-labels of the requested samples."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from scarlet.arrays import Index, Labels, Values
from scarlet.distributions import check_distributions
from scarlet.errors import MessageError
from scarlet.job import Job, Result
from scarlet.protocol.aggregation import Aggregate
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.codec import Codec, Context, Layout, Layouts, shape_from, shape_of
from scarlet.protocol.layouts.reference import read_labels, write_labels
from scarlet.protocol.messages import Message
from scarlet.protocol.slots import Learner, NoState, Round
from scarlet.wire import frame
from scarlet.wire.body import Body, among
from scarlet.wire.entropy import varint
from scarlet.wire.values import coded, plain_size, read_coded

ANSWER_HEAD = struct.Struct("<IBHII")  # client, whether it is delta coded, shape, samples


@dataclass(frozen=True, slots=True)
class Answer:
    """A client's soft-labels of the requested samples."""

    round: int
    attempt: int
    client: int
    labels: Labels


@dataclass(frozen=True, slots=True)
class SoftLabels:
    """A client sends its soft-labels, each of them whole."""

    message = Answer
    sends_parameters = False

    @property
    def layouts(self) -> Sequence[Layouts]:
        return ({"reference": _REFERENCE, "compact": _COMPACT},)

    def server(self, aggregate: Aggregate, agreement: Agreement, codec: Codec) -> SoftLabelServer:
        return SoftLabelServer(aggregate, codec)

    def client(self, agreement: Agreement, codec: Codec) -> SoftLabelClient:
        return SoftLabelClient(codec)


class SoftLabelServer:
    """Collects soft-labels."""

    def __init__(self, aggregate: Aggregate, codec: Codec) -> None:
        self.state = NoState()
        self._aggregate, self._codec = aggregate, codec

    def open(self, now: Round, learner: Learner | None) -> SoftLabelAnswers:
        return SoftLabelAnswers(self._aggregate, now.request, self._codec)

    def personal(self, now: Round, client: int) -> Iterable[Message]:
        return ()


class SoftLabelAnswers:
    """Each answer is checked, and added to the aggregation as it arrives."""

    shared: Sequence[Message] = ()

    def __init__(self, aggregate: Aggregate, request: Index, codec: Codec) -> None:
        self._request, self._classes = request, codec.classes
        self._aggregation = aggregate(request, codec.classes)
        self.limit = answer_limit(len(request), codec)

    def add(self, message: Answer, data: bytes) -> None:
        self.check(message.client, message.labels)
        self._aggregation.add(message.client, message.labels)

    def finish(self) -> Labels:
        return self._aggregation.finish()

    def commit(self) -> None: ...

    def check(self, sender: int, labels: Labels) -> None:
        """Raise MessageError unless these are soft-labels of requested samples."""
        shape = labels.value.shape[1:]
        if shape != (self._classes,):
            raise MessageError(f"client {sender} sends labels of shape {shape}, not {(self._classes,)}", "wrong shape")
        if not _within(labels.index, self._request):
            raise MessageError(f"client {sender} labels samples that were not requested", "wrong samples")
        check_distributions(labels.value, f"client {sender}")


def answer_limit(samples: int, codec: Codec) -> int:
    """The most bytes that an answer with the labels of so many samples can have."""
    labels = 8 * samples + plain_size((samples, codec.classes), codec.uplink_bits)
    return frame.SIZE + ANSWER_HEAD.size + labels + codec.slack


def _within(index: Index, request: Index) -> bool:
    """Whether all of `index` was requested; most clients answer all of it, which is quick to see."""
    return index is request or np.array_equal(index, request) or bool(np.isin(index, request, assume_unique=True).all())


class SoftLabelClient:
    """Sends soft-labels."""

    def __init__(self, codec: Codec) -> None:
        self.state = NoState()
        self._codec = codec

    def read(self, messages: Sequence[Message]) -> None: ...

    def apply(self, received: None) -> Values | None:
        return None

    def answer(self, job: Job, labels: Labels, result: Result) -> bytes:
        return self._codec.encode(Answer(job.round, job.attempt, job.client, labels), Context(job.request))


def _write_reference(message: Answer, codec: Codec, context: Context) -> bytes:
    labels = message.labels
    head = ANSWER_HEAD.pack(message.client, 0, *shape_of(labels.value), len(labels.index))
    return head + write_labels(labels, codec.uplink_bits)


def _read_reference(body: Body, codec: Codec, context: Context) -> Answer:
    client, delta, teachers, classes, samples = body.head(ANSWER_HEAD)
    if delta > 1:
        raise MessageError(f"the message has a flag of {delta}, at most 1")
    if delta:
        raise MessageError(f"client {client} refers to labels that nobody keeps", "wrong base")
    labels = read_labels(body, codec, context, shape_from(samples, teachers, classes), codec.uplink_bits)
    return Answer(body.round, body.attempt, client, labels)


def _write_compact(message: Answer, codec: Codec, context: Context) -> bytes:
    head = b"\0" + varint(message.client) + among(message.labels.index, context.request)
    return head + coded(message.labels.value, codec.uplink_bits)


def _read_compact(body: Body, codec: Codec, context: Context) -> Answer:
    delta, client = body.flag(1), body.number()
    if delta:
        raise MessageError(f"client {client} refers to labels that nobody keeps", "wrong base")
    index = body.among(context.request)
    value = read_coded(body, (len(index), codec.classes), codec.uplink_bits)
    return Answer(body.round, body.attempt, client, Labels(index, value))


_REFERENCE = Layout(
    message=Answer, kind=2, column="uplink", fixed=ANSWER_HEAD.size, write=_write_reference, read=_read_reference
)
_COMPACT = Layout(
    message=Answer,
    kind=2,
    column="uplink",
    fixed=0,
    write=_write_compact,
    read=_read_compact,
    is_empty=lambda message: not len(message.labels.index),
)
