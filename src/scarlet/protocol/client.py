"""The client of a federation: a state machine of two steps, receive and reply."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from scarlet.arrays import Labels
from scarlet.errors import MessageError
from scarlet.job import Job, Result
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.cache import OutOfStep
from scarlet.protocol.codec import Codec
from scarlet.protocol.messages import EVERYBODY, Broadcast, Message, Report, Resync
from scarlet.protocol.method import Method, Prepared
from scarlet.wire import frame
from scarlet.wire.frame import Frame


@dataclass(slots=True)
class ClientState:
    """All that a client remembers from one round to the next, beside its model."""

    downlink: Any  # the state of each slot's client side
    uplink: Any
    prepared: Prepared | None = None  # what the method's filter had it work out once; None: not yet
    abstains: int = 0  # rounds in which it learns but sends no soft-labels, because it lost its model
    answered: bytes = b""  # a hash of the last downlink that it answered
    reply: list[bytes] = field(default_factory=list)  # the answer to that


class Client:
    """Turns a downlink into a job and the job's result into messages; runs no model itself.

    Its state must be on disk before a reply leaves: then a server that comes back and asks again is sent the same
    bytes, and nothing is trained twice.
    """

    def __init__(self, number: int, method: Method, agreement: Agreement, codec: Codec) -> None:
        self.number, self.method, self.agreement, self.codec = number, method, agreement, codec
        self._downlink = method.downlink.client(agreement, codec)
        self._uplink = method.uplink.client(agreement, codec)
        self._state = ClientState(self._downlink.state, self._uplink.state)

    @property
    def state(self) -> ClientState:
        """What to save; it is restored in place, because the slots refer to their parts of it."""
        return self._state

    def receive(self, downlink: bytes) -> Job | list[bytes]:
        """A job; or what to send at once: the kept reply to the same downlink, or a Resync if the caches differ."""
        key = blake2b(downlink, digest_size=16).digest()
        if key == self.state.answered:
            return self.state.reply
        frames = [frame.unwrap(part) for part in frame.split(downlink)]
        self._check_kinds(frames)
        first, *others = frames
        messages = [self.codec.decode(other) for other in others]
        try:
            received = self._downlink.read(first, messages)
            self._check(received.broadcast, messages)
            for_uplink = self._uplink.read(messages)
            teacher = self._downlink.apply(received)
        except OutOfStep:
            return [self.codec.encode(Resync(first.round, first.attempt, self.number))]
        return Job(
            client=self.number,
            round=first.round,
            attempt=first.attempt,
            teacher=teacher,
            request=received.broadcast.request,
            choose=self.method.downlink.choose,
            distil_weight=self.method.distil_weight,
            restart=self.method.restart,
            parameters=self._uplink.apply(for_uplink),
            send_parameters=self.method.uplink.sends_parameters,
            downlink=key,
        )

    def reply(self, job: Job, result: Result) -> list[bytes]:
        """The answer to a job, and the metrics in a message of their own."""
        labels = self.method.filter(Labels(job.request, result.value), self.state.prepared or {})
        metrics = {name: value for name, value in result.metrics.items() if math.isfinite(value)}
        if self.state.abstains and self.method.uses_public:
            labels = Labels(labels.index[:0], labels.value[:0])
            metrics["abstains"] = float(self.state.abstains)
            self.state.abstains -= 1
        answer = self._uplink.answer(job, labels, result)
        self.state.answered = job.downlink
        self.state.reply = [answer, self.codec.encode(Report(job.round, job.attempt, self.number, metrics))]
        return self.state.reply

    def _check_kinds(self, frames: Sequence[Frame]) -> None:
        """Raise MessageError unless a broadcast comes first, and then at most one message of each kind.

        A downlink may be cut where one of its messages ends; the slot whose message is missing says so.
        """
        layouts = [self.codec.layout_of(each.kind) for each in frames]
        kinds = [layout.message for layout in layouts]
        if kinds[:1] != [Broadcast] or len(set(kinds)) < len(kinds) or not all(each.from_server for each in layouts):
            names = ", ".join(kind.__name__ for kind in kinds) or "nothing"
            raise MessageError(f"client {self.number} was sent {names}, not a Broadcast and what goes with it")

    def _check(self, broadcast: Broadcast, messages: Sequence[Message]) -> None:
        """Raise MessageError unless all messages are this client's and of one round, and of its experiment."""
        who = f"client {self.number}"
        for message in messages:
            if (message.round, message.attempt) != (broadcast.round, broadcast.attempt):
                raise MessageError(f"{who} was sent parts of different rounds")
            if message.client not in (self.number, EVERYBODY):
                raise MessageError(f"{who} was sent a {type(message).__name__} that is not meant for it")
        if broadcast.agreement != self.agreement.digest:
            raise MessageError(
                f"{who} takes part in experiment {self.agreement.digest.hex()}, and the downlink is of "
                f"{broadcast.agreement.hex()}; start it with the server's agreement and public dataset",
                "other experiment",
            )
