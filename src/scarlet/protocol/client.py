"""The client of a federation: a state machine of two steps, receive and reply."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np

from scarlet.errors import MessageError
from scarlet.protocol.cache import ABSENT, CacheTable, recall, store
from scarlet.protocol.delta import Memory, Sent, name_of
from scarlet.protocol.federation import Federation
from scarlet.protocol.method import Kept, Method
from scarlet.protocol.schedule import Known, OutOfStep, Rules, Schedule
from scarlet.protocol.types import (
    EVERYBODY,
    Accepted,
    Broadcast,
    CatchUp,
    History,
    Job,
    Labels,
    Lesson,
    Message,
    Parameters,
    Report,
    Result,
    Resync,
    Uplink,
    Values,
)
from scarlet.wire import frame
from scarlet.wire.codec import Codec

LAST_ROUND = 2**31 - 1  # the cache's stamps are 32 bits wide


@dataclass(slots=True)
class ClientState:
    """All that a client remembers from one round to the next, beside its model."""

    cache: CacheTable
    sent: Sent | None = None  # under delta coding: its own last labels
    kept: Kept | None = None  # what the method had it work out once; None: not yet
    schedule: Schedule | None = None  # the stamps of the server's cache, where messages leave them out
    downlink: bytes = b""  # a hash of the last downlink that it answered
    reply: list[bytes] = field(default_factory=list)  # the answer to that


class Client:
    """Turns a downlink into a job and the job's result into messages; runs no model itself.

    Its state must be on disk before a reply leaves: then a server that comes back and asks again is sent the same
    bytes, and nothing is trained twice.
    """

    def __init__(
        self,
        number: int,
        method: Method,
        federation: Federation,
        codec: Codec,
    ) -> None:
        self.number = number
        self.method = method
        self.codec = codec
        self.public = federation.public  # the fingerprint of the public set that this client holds
        self._rules = Rules(method, federation)
        size, classes = federation.public_size, federation.classes
        self.state = ClientState(
            CacheTable.empty(size, *method.label_shape(classes)),
            Sent(Memory.empty(size, classes)) if method.delta else None,
            schedule=Schedule.empty(size) if codec.derives else None,
        )

    def receive(self, downlink: bytes) -> Job | list[bytes]:
        """A job; or what to send at once: the kept answer to the same downlink, or a word that the caches differ."""
        key = blake2b(downlink, digest_size=16).digest()
        if key == self.state.downlink:
            return self.state.reply
        known = Known(self._rules, schedule=self.state.schedule)
        try:
            heard = self._read(downlink, known)
        except OutOfStep:
            first = frame.unwrap(frame.split(downlink)[0])
            return [self.codec.encode(Resync(first.round, first.attempt, self.number))]
        broadcast = heard.broadcast
        try:
            teacher = self._teacher(broadcast, heard.catch_up)
        except MessageError:
            return [self.codec.encode(Resync(broadcast.round, broadcast.attempt, self.number))]
        if known.after is not None:
            self.state.schedule = known.after
        if heard.lesson is not None:
            teacher = heard.lesson
        if self.state.sent is not None and heard.accepted is not None:
            self.state.sent.agree(heard.accepted)
        return Job(self.number, broadcast.round, broadcast.attempt, teacher, broadcast.request, heard.parameters, key)

    def reply(self, job: Job, result: Result) -> list[bytes]:
        """The answer to a job, and the metrics in a message of their own."""
        metrics = {name: value for name, value in result.metrics.items() if math.isfinite(value)}
        if result.parameters is not None:
            message = Parameters(job.round, job.attempt, self.number, result.samples, result.parameters)
            answer = self.codec.encode(message)
        else:
            answer = self._answer(job, Labels(job.request, result.value))
        self.state.downlink = job.downlink
        self.state.reply = [answer, self.codec.encode(Report(job.round, job.attempt, self.number, metrics))]
        return self.state.reply

    def _answer(self, job: Job, labels: Labels) -> bytes:
        labels = self.method.answer(labels, self.state.kept or {})
        sent, known = self.state.sent, Known(self._rules, job.request)
        if sent is None:
            return self.codec.encode(Uplink(job.round, job.attempt, self.number, labels), known)
        labels = Labels(labels.index, self.codec.heard_by_server(labels.value))
        changed, same = sent.split(labels)
        message = Uplink(job.round, job.attempt, self.number, changed, same, sent.memory.name)
        answer = self.codec.encode(message, known)
        sent.note(labels, name_of(answer))
        return answer

    def _read(self, downlink: bytes, known: Known) -> _Heard:
        """The messages of a downlink, checked against what this client knows of the federation."""
        if not downlink:
            raise MessageError(f"client {self.number} was sent nothing, not a Broadcast and what goes with it")
        first, *others = frame.split(downlink)
        messages = [self.codec.decode(part, known) for part in others]
        # The history comes last, and is what a broadcast may need to be understood.
        known.history = next((message for message in messages if isinstance(message, History)), None)
        heard = _Heard.of([self.codec.decode(first, known), *messages], self.number)
        broadcast = heard.broadcast
        if broadcast.public != self.public:
            raise MessageError(
                f"client {self.number} holds another public set ({self.public.hex()}) than the server "
                f"({broadcast.public.hex()}); give both the same files",
                "other public set",
            )
        self._check(heard)
        return heard

    def _teacher(self, broadcast: Broadcast, catch_up: CatchUp | None) -> Labels:
        """Bring the cache up to date, and rebuild the labels of the round before; MessageError if they differ."""
        cache, sync = self.state.cache, broadcast.sync
        if catch_up is not None and catch_up.reset:
            cache.stamp[:] = ABSENT
        if sync is None:
            return Labels(np.empty(0, np.int64), np.empty((0, *cache.value.shape[1:]), np.float32))
        if catch_up is not None:
            cache.value[catch_up.labels.index] = catch_up.labels.value
            cache.stamp[catch_up.labels.index] = sync.round
        teacher = recall(cache, sync)
        if teacher.digest() != broadcast.digest:
            raise MessageError(f"client {self.number} holds other labels of round {sync.round} than the server")
        store(cache, sync)
        return teacher

    def _check(self, heard: _Heard) -> None:
        size, *shape = self.state.cache.value.shape
        broadcast, method = heard.broadcast, self.method
        # A downlink may be cut where one of its messages ends, and then looks whole.
        for kind, missing in (
            ("Lesson", method.personal and broadcast.round > 1 and heard.lesson is None),
            ("Accepted", method.delta and heard.accepted is None),
            ("Parameters", method.exchange == "weights" and heard.parameters is None),
        ):
            if missing:
                raise MessageError(f"client {self.number} was sent a Broadcast without the {kind} that goes with it")
        indices, values = [broadcast.request], []
        if broadcast.sync is not None:
            if broadcast.sync.round != broadcast.round - 1 or broadcast.round > LAST_ROUND:
                raise MessageError(f"round {broadcast.round} comes with the sync of round {broadcast.sync.round}")
            indices += [broadcast.sync.index, broadcast.sync.dropped]
            values.append(broadcast.sync.fresh)
        for labels in heard.labels:
            indices.append(labels.index)
            values.append(labels.value)
        highest = max((int(index[-1]) for index in indices if len(index)), default=0)
        if highest >= size:
            raise MessageError(f"the downlink names sample {highest}; this client's public set has {size}")
        if any(list(value.shape[1:]) != shape for value in values):
            raise MessageError(f"the downlink has labels of another shape than {shape}")


@dataclass(frozen=True, slots=True)
class _Heard:
    """The messages of one downlink."""

    broadcast: Broadcast
    catch_up: CatchUp | None = None
    lesson: Labels | None = None
    accepted: bytes | None = None
    parameters: Values | None = None

    @classmethod
    def of(cls, messages: list[Message], client: int) -> _Heard:
        """A broadcast, and then at most one of each kind that is meant for this client, all of the same round."""
        found: dict[str, Any] = {}
        for at, message in enumerate(messages):
            match message:
                case Broadcast() if at == 0:
                    found["broadcast"] = message
                case CatchUp() if at and "catch_up" not in found:
                    found["catch_up"] = message
                case Lesson() if at and "lesson" not in found:
                    found["lesson"] = message.labels
                case Accepted() if at and "accepted" not in found:
                    found["accepted"] = message.name
                case Parameters() if at and "parameters" not in found:
                    found["parameters"] = message.value
                case History() if at and not isinstance(messages[at - 1], History):
                    pass
                case _:
                    kinds = ", ".join(type(each).__name__ for each in messages)
                    raise MessageError(f"client {client} was sent {kinds}, not a Broadcast and what goes with it")
            first = messages[0]
            if (message.round, message.attempt) != (first.round, first.attempt):
                raise MessageError(f"client {client} was sent parts of different rounds")
            if not isinstance(message, Broadcast) and message.client not in (client, EVERYBODY):
                raise MessageError(f"client {client} was sent a {type(message).__name__} that is not meant for it")
        return cls(**found)

    @property
    def labels(self) -> list[Labels]:
        """The labels that are meant for this client alone."""
        return [*([self.catch_up.labels] if self.catch_up else []), *([self.lesson] if self.lesson else [])]
