"""The client of a federation: a state machine of two steps, receive and reply."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from scarlet.core.cache import ABSENT, CacheTable, recall, store
from scarlet.core.types import DIGEST_BYTES, Broadcast, CatchUp, Job, Labels, Report, Result, Resync, Uplink
from scarlet.errors import MessageError
from scarlet.wire import frame
from scarlet.wire.codec import Codec

LAST_ROUND = 2**31 - 1  # the cache's stamps are 32 bits wide


@dataclass(slots=True)
class ClientState:
    """All that a client remembers from one round to the next, beside its model."""

    cache: CacheTable
    downlink: bytes = b""  # a hash of the last downlink that it answered
    reply: list[bytes] = field(default_factory=list)  # the answer to that


class Client:
    """Turns a downlink into a job and the job's result into messages; runs no model itself.

    Its state must be on disk before a reply leaves: then a server that comes back and asks again is sent the same
    bytes, and nothing is trained twice.
    """

    def __init__(
        self, number: int, public_size: int, classes: int, codec: Codec, public: bytes = bytes(DIGEST_BYTES)
    ) -> None:
        self.number = number
        self.codec = codec
        self.public = public  # the fingerprint of the public set that this client holds
        self.state = ClientState(CacheTable.empty(public_size, classes))

    def receive(self, downlink: bytes) -> Job | list[bytes]:
        """A job; or what to send at once: the kept answer to the same downlink, or a word that the caches differ."""
        key = blake2b(downlink, digest_size=16).digest()
        if key == self.state.downlink:
            return self.state.reply
        broadcast, catch_up = self._read(downlink)
        try:
            teacher = self._teacher(broadcast, catch_up)
        except MessageError:
            return [self.codec.encode(Resync(broadcast.round, broadcast.attempt, self.number))]
        return Job(self.number, broadcast.round, broadcast.attempt, teacher, broadcast.request, key)

    def reply(self, job: Job, result: Result) -> list[bytes]:
        """The answer to a job, and the metrics in a message of their own."""
        labels = Labels(job.request, result.value)
        metrics = {name: value for name, value in result.metrics.items() if math.isfinite(value)}
        self.state.downlink = job.downlink
        self.state.reply = [
            self.codec.encode(Uplink(job.round, job.attempt, self.number, labels)),
            self.codec.encode(Report(job.round, job.attempt, self.number, metrics)),
        ]
        return self.state.reply

    def _read(self, downlink: bytes) -> tuple[Broadcast, CatchUp | None]:
        """The messages of a downlink, checked against what this client knows of the federation."""
        match [self.codec.decode(part) for part in frame.split(downlink)]:
            case [Broadcast() as broadcast]:
                catch_up = None
            case [Broadcast() as broadcast, CatchUp() as catch_up]:
                pass
            case messages:
                kinds = ", ".join(type(message).__name__ for message in messages) or "nothing"
                raise MessageError(f"client {self.number} was sent {kinds}, not a Broadcast and at most one CatchUp")
        if broadcast.public != self.public:
            raise MessageError(
                f"client {self.number} holds another public set ({self.public.hex()}) than the server "
                f"({broadcast.public.hex()}); give both the same files",
                "other public set",
            )
        self._check(broadcast, catch_up)
        return broadcast, catch_up

    def _teacher(self, broadcast: Broadcast, catch_up: CatchUp | None) -> Labels:
        """Bring the cache up to date, and rebuild the labels of the round before; MessageError if they differ."""
        cache, sync = self.state.cache, broadcast.sync
        if catch_up is not None and catch_up.reset:
            cache.stamp[:] = ABSENT
        if sync is None:
            return Labels(np.empty(0, np.int64), np.empty((0, cache.value.shape[1]), np.float32))
        if catch_up is not None:
            cache.value[catch_up.labels.index] = catch_up.labels.value
            cache.stamp[catch_up.labels.index] = sync.round
        teacher = recall(cache, sync)
        if teacher.digest() != broadcast.digest:
            raise MessageError(f"client {self.number} holds other labels of round {sync.round} than the server")
        store(cache, sync)
        return teacher

    def _check(self, broadcast: Broadcast, catch_up: CatchUp | None) -> None:
        size, classes = self.state.cache.value.shape
        indices, values = [broadcast.request], []
        if broadcast.sync is not None:
            if broadcast.sync.round != broadcast.round - 1 or broadcast.round > LAST_ROUND:
                raise MessageError(f"round {broadcast.round} comes with the sync of round {broadcast.sync.round}")
            indices += [broadcast.sync.index, broadcast.sync.dropped]
            values.append(broadcast.sync.fresh)
        if catch_up is not None:
            if (catch_up.client, catch_up.round) != (self.number, broadcast.round):
                raise MessageError(f"client {self.number} was sent a catch-up that is not meant for it")
            indices.append(catch_up.labels.index)
            values.append(catch_up.labels.value)
        highest = max((int(index[-1]) for index in indices if len(index)), default=0)
        if highest >= size:
            raise MessageError(f"the downlink names sample {highest}; this client's public set has {size}")
        if any(value.shape[1] != classes for value in values):
            raise MessageError(f"the downlink has labels of another number of classes than {classes}")
