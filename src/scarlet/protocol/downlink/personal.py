"""Each client is taught by a teacher of its own, which the server chose for it (COMET, assigned by the server)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scarlet.arrays import Index, Labels, Values
from scarlet.errors import MessageError
from scarlet.protocol.aggregation import Teachers
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.cache import NoCache
from scarlet.protocol.codec import Codec, Context, Layout, Layouts, shape_from, shape_of
from scarlet.protocol.downlink.shared import check_labels, check_samples, read_broadcast
from scarlet.protocol.layouts.reference import read_labels, write_labels
from scarlet.protocol.messages import NO_LABELS_YET, Broadcast, Message
from scarlet.protocol.slots import Learner, NoState, Round
from scarlet.wire.body import Body, among
from scarlet.wire.entropy import varint
from scarlet.wire.frame import Frame
from scarlet.wire.values import coded, read_coded

_HEAD = struct.Struct("<IHHII")  # client, attempt that was drawn, shape, samples


@dataclass(frozen=True, slots=True)
class Lesson:
    """What the server teaches one client."""

    round: int
    attempt: int
    client: int
    labels: Labels
    drawn: int = 0  # the attempt at which the round before, whose labels they are, was closed


@dataclass(slots=True)
class Lessons:
    """What each client is to be taught of the last round."""

    index: Index  # i64[n]
    value: Values  # f32[n, C + 1, N]: the teachers, and at last their plain mean
    clients: Index  # i64[A]: who answered, ascending
    choice: npt.NDArray[np.int32]  # i32[A, n]: the teacher of each; whoever did not answer is taught the mean
    drawn: int  # the attempt at which the round was closed

    def of(self, client: int) -> Labels:
        row = np.flatnonzero(self.clients == client)
        chosen = self.choice[row[0]] if len(row) else self.value.shape[1] - 1
        return Labels(self.index, self.value[np.arange(len(self.index)), chosen])


@dataclass(frozen=True, slots=True)
class Personal:
    """The aggregate has `teachers` (C) labels for each sample, and each client is taught the one nearest to its own."""

    teachers: int
    policy = NoCache()
    choose = None

    @property
    def layouts(self) -> Sequence[Layouts]:
        return ({"reference": _REFERENCE, "compact": _COMPACT},)

    def label_shape(self, classes: int) -> tuple[int, ...]:
        return (classes,)

    def server(self, agreement: Agreement, codec: Codec) -> PersonalServer:
        return PersonalServer(agreement, codec)

    def client(self, agreement: Agreement, codec: Codec) -> PersonalClient:
        return PersonalClient(codec)


@dataclass(slots=True)
class PersonalServerState:
    """What is to be taught."""

    lessons: Lessons | None = None  # None before the first round


class PersonalServer:
    """Requests every sample, and teaches each client its own teacher."""

    def __init__(self, agreement: Agreement, codec: Codec) -> None:
        self.state = PersonalServerState()
        self._agreement, self._codec = agreement, codec

    def request(self, index: Index, round: int) -> Index:
        return index

    def broadcast(self, now: Round) -> Broadcast:
        return Broadcast(now.number, now.attempt, now.request, None, NO_LABELS_YET, self._agreement.digest)

    def personal(self, now: Round, client: int, *, reset: bool) -> Iterable[Message]:
        lessons = self.state.lessons
        if lessons is not None:
            yield Lesson(now.number, now.attempt, client, lessons.of(client), lessons.drawn)

    def close(self, now: Round, fresh: Labels, learner: Learner | None) -> Labels:
        """The server's model learns the mean, which is also what whoever did not answer is taught."""
        assert isinstance(fresh, Teachers), "an aggregate of one label has no teacher to choose"
        mean = Labels(fresh.index, fresh.mean)
        if learner is not None:
            learner.learn(mean, now.number)
        clients = sorted(fresh.choice)
        choice = np.array([fresh.choice[client] for client in clients], np.int32)
        choice = choice.reshape(len(clients), len(fresh.index))
        choice[choice < 0] = fresh.value.shape[1]
        value = self._codec.decoded_by_clients(np.concatenate([fresh.value, fresh.mean[:, np.newaxis]], axis=1))
        self.state.lessons = Lessons(fresh.index, value, np.array(clients, np.int64), choice, now.attempt)
        return mean

    def acknowledge(self, client: int, round: int) -> None: ...

    def forget(self, client: int) -> None: ...


@dataclass(frozen=True, slots=True)
class _Received:
    broadcast: Broadcast
    lesson: Lesson | None


class PersonalClient:
    """Learns its lesson, and remembers nothing."""

    def __init__(self, codec: Codec) -> None:
        self.state = NoState()
        self._codec = codec

    def read(self, broadcast: Frame, messages: Sequence[Message]) -> _Received:
        lesson = next((message for message in messages if isinstance(message, Lesson)), None)
        return _Received(read_broadcast(broadcast, self._codec, Context()), lesson)

    def apply(self, received: _Received) -> Labels:
        check_samples(self._codec, received.broadcast.request)
        if received.lesson is not None:
            labels = received.lesson.labels
            check_labels(self._codec, labels.index, labels.value)
            return labels
        if received.broadcast.round > 1:
            raise MessageError("the downlink has a Broadcast without the Lesson that goes with it")
        return Labels(np.empty(0, np.int64), np.empty((0, self._codec.classes), np.float32))


def _write_reference(message: Lesson, codec: Codec, context: Context) -> bytes:
    labels = message.labels
    head = _HEAD.pack(message.client, message.drawn, *shape_of(labels.value), len(labels.index))
    return head + write_labels(labels, codec.downlink_bits)


def _read_reference(body: Body, codec: Codec, context: Context) -> Lesson:
    client, drawn, teachers, classes, samples = body.head(_HEAD)
    labels = read_labels(body, codec, context, shape_from(samples, teachers, classes), codec.downlink_bits)
    return Lesson(body.round, body.attempt, client, labels, drawn)


def _write_compact(message: Lesson, codec: Codec, context: Context) -> bytes:
    drawn = codec.draws.index(message.round - 1, message.drawn)
    head = varint(message.client) + varint(message.drawn) + among(message.labels.index, drawn)
    return head + coded(message.labels.value, codec.downlink_bits)


def _read_compact(body: Body, codec: Codec, context: Context) -> Lesson:
    client, drawn = body.number(), body.number()
    index = body.among(codec.draws.index(body.round - 1, drawn))
    value = read_coded(body, (len(index), *codec.label), codec.downlink_bits)
    return Lesson(body.round, body.attempt, client, Labels(index, value), drawn)


_REFERENCE = Layout(
    message=Lesson, kind=7, column="downlink", fixed=_HEAD.size, write=_write_reference, read=_read_reference
)
_COMPACT = Layout(message=Lesson, kind=7, column="downlink", fixed=0, write=_write_compact, read=_read_compact)
