"""Top-k answers with error feedback, as a method author outside the package would write them.

A client sends the k largest entries of each soft-label, their classes, and the sum of all other entries, which the
server spreads evenly over the other classes. What an answer lost of a sample's label, the client adds to the label
that it sends of that sample next. k = N - 1 loses nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from scarlet.arrays import Index, Labels, Values
from scarlet.errors import ConfigError, MessageError
from scarlet.job import Job, Result
from scarlet.protocol.aggregation import Aggregate
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.codec import OWN_KINDS, Codec, Context, Layout, Layouts
from scarlet.protocol.messages import Message
from scarlet.protocol.slots import Learner, NoState, Round
from scarlet.protocol.uplink.labels import Answer, SoftLabelAnswers
from scarlet.wire import frame
from scarlet.wire.body import Body, among, i8
from scarlet.wire.entropy import varint
from scarlet.wire.values import coded, plain, plain_size, read_coded, read_plain

_KIND = OWN_KINDS
_HEAD = struct.Struct("<II")  # client, samples
_CLASS = np.dtype("<u2")  # of a class in the compact codec


@dataclass(frozen=True, slots=True)
class TopKAnswer:
    """The largest entries of a client's soft-labels."""

    round: int
    attempt: int
    client: int
    index: Index  # i64[n]
    classes: Index  # i64[n, k], ascending
    value: Values  # f32[n, k + 1]: their entries, and the sum of all others


@dataclass(frozen=True, slots=True)
class TopK:
    """A client sends the `k` largest entries of each soft-label."""

    k: int

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ConfigError(f"k must be 1 or more, got {self.k}; leave the uplink out to send whole labels")

    @property
    def layouts(self) -> Sequence[Layouts]:
        reference = Layout(
            TopKAnswer, OWN_KINDS, "uplink", _HEAD.size, _write_reference, partial(_read_reference, self.k)
        )
        compact = Layout(TopKAnswer, OWN_KINDS, "uplink", 0, _write_compact, partial(_read_compact, self.k))
        return ({"reference": reference, "compact": compact},)

    @property
    def message(self) -> type:
        return TopKAnswer

    @property
    def sends_parameters(self) -> bool:
        return False

    def server(self, aggregate: Aggregate, agreement: Agreement, codec: Codec) -> TopKServer:
        return TopKServer(self.k, aggregate, codec)

    def client(self, agreement: Agreement, codec: Codec) -> TopKClient:
        if self.k >= agreement.classes:
            raise ConfigError(f"k must be less than the {agreement.classes} classes, got {self.k}; use fewer")
        return TopKClient(self.k, agreement, codec)


class TopKServer:
    """Collects the largest entries."""

    def __init__(self, k: int, aggregate: Aggregate, codec: Codec) -> None:
        self.state = NoState()
        self._k, self._aggregate, self._codec = k, aggregate, codec

    def open(self, now: Round, learner: Learner | None) -> TopKAnswers:
        return TopKAnswers(self._k, self._aggregate, now.request, self._codec)

    def personal(self, now: Round, client: int) -> Iterable[Message]:
        return ()


class TopKAnswers:
    """Each answer is made whole, and then taken like one of whole labels."""

    shared: Sequence[Message] = ()

    def __init__(self, k: int, aggregate: Aggregate, request: Index, codec: Codec) -> None:
        self._whole, self._classes = SoftLabelAnswers(aggregate, request, codec), codec.classes
        samples = len(request)
        entries = 8 * samples * (1 + k) + plain_size((samples, k + 1), codec.uplink_bits)
        self.limit = frame.SIZE + _HEAD.size + entries + codec.slack

    def add(self, message: TopKAnswer, data: bytes) -> None:
        classes = message.classes
        if ((classes < 0) | (classes >= self._classes)).any() or (np.diff(classes, axis=1) <= 0).any():
            raise MessageError(f"client {message.client} names classes that there are not, or twice", "wrong classes")
        labels = Labels(message.index, spread(classes, message.value, self._classes))
        self._whole.add(Answer(message.round, message.attempt, message.client, labels), data)

    def finish(self) -> Labels:
        return self._whole.finish()

    def commit(self) -> None: ...


@dataclass(slots=True)
class LeftOut:
    """What a client's answers lost."""

    value: Values  # f32[P, N]: of each sample's label


class TopKClient:
    """Sends the largest entries, of each label and of what was left out of the last."""

    def __init__(self, k: int, agreement: Agreement, codec: Codec) -> None:
        self.state = LeftOut(np.zeros((agreement.public_size, agreement.classes), np.float32))
        self._k, self._codec = k, codec

    def read(self, messages: Sequence[Message]) -> None: ...

    def apply(self, received: None) -> Values | None:
        return None

    def answer(self, job: Job, labels: Labels, result: Result) -> bytes:
        wanted = np.maximum(labels.value + self.state.value[labels.index], 0)
        wanted /= wanted.sum(axis=1, keepdims=True)
        classes = np.sort(np.argsort(-wanted, axis=1, kind="stable")[:, : self._k], axis=1)
        largest = np.take_along_axis(wanted, classes, axis=1)
        rest = np.maximum(1 - largest.sum(axis=1, keepdims=True), 0)
        value = np.concatenate([largest, rest], axis=1).astype(np.float32)
        heard = spread(classes, self._codec.decoded_by_server(value), self._codec.classes)
        self.state.value[labels.index] = wanted - heard
        message = TopKAnswer(job.round, job.attempt, job.client, labels.index, classes, value)
        return self._codec.encode(message, Context(job.request))


def spread(classes: Index, value: Values, all_classes: int) -> Values:
    """Whole labels: what is left of each is spread evenly over the classes that are not named."""
    samples, k = classes.shape
    whole = np.repeat(value[:, k:] / np.float32(all_classes - k), all_classes, axis=1)
    whole[np.arange(samples)[:, np.newaxis], classes] = value[:, :k]
    return whole


def _write_reference(message: TopKAnswer, codec: Codec, context: Context) -> bytes:
    head = _HEAD.pack(message.client, len(message.index))
    return head + i8(message.index) + i8(message.classes) + plain(message.value, codec.uplink_bits)


def _read_reference(k: int, body: Body, codec: Codec, context: Context) -> TopKAnswer:
    client, samples = body.head(_HEAD)
    index = body.index_like(context.request, context.request_bytes, samples)
    classes = body.integers(samples * k).reshape(samples, k)
    value = read_plain(body, (samples, k + 1), codec.uplink_bits, codec.classes)
    return TopKAnswer(body.round, body.attempt, client, index, classes, value)


def _write_compact(message: TopKAnswer, codec: Codec, context: Context) -> bytes:
    head = varint(message.client) + among(message.index, context.request)
    return head + message.classes.astype(_CLASS).tobytes() + coded(message.value, codec.uplink_bits)


def _read_compact(k: int, body: Body, codec: Codec, context: Context) -> TopKAnswer:
    client, index = body.number(), body.among(context.request)
    classes = np.frombuffer(body.raw(len(index) * k * _CLASS.itemsize), _CLASS).astype(np.int64)
    value = read_coded(body, (len(index), k + 1), codec.uplink_bits)
    return TopKAnswer(body.round, body.attempt, client, index, classes.reshape(len(index), k), value)
