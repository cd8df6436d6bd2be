"""The client of a federation: a state machine of two steps, receive and reply."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from scarlet.core.cache import CacheTable, recall, store
from scarlet.core.types import Broadcast, Job, Labels, Report, Result, Uplink
from scarlet.errors import MessageError
from scarlet.wire.codec import Codec

LAST_ROUND = 2**31 - 1  # the cache's stamps are 32 bits wide


@dataclass(slots=True)
class ClientState:
    """All that a client remembers from one round to the next, beside its model."""

    cache: CacheTable
    round: int = 0  # the last round that it took part in


class Client:
    """Turns a downlink into a job and the job's result into messages; runs no model itself."""

    def __init__(self, number: int, public_size: int, classes: int, codec: Codec) -> None:
        self.number = number
        self.codec = codec
        self.state = ClientState(CacheTable.empty(public_size, classes))

    def receive(self, downlink: bytes) -> Job:
        """Bring the cache up to date, check it against the server's digest, and say what there is to do."""
        message = self.codec.decode(downlink)
        if not isinstance(message, Broadcast):
            raise MessageError(f"client {self.number} was sent a {type(message).__name__}, not a Broadcast")
        self._check(message)
        if message.sync is None:
            classes = self.state.cache.value.shape[1]
            teacher = Labels(np.empty(0, np.int64), np.empty((0, classes), np.float32))
        else:
            teacher = recall(self.state.cache, message.sync)
            if teacher.digest() != message.digest:
                raise MessageError(
                    f"client {self.number} holds other labels of round {message.sync.round} than the server"
                )
            store(self.state.cache, message.sync)
        self.state.round = message.round
        return Job(self.number, message.round, message.attempt, teacher, message.request)

    def reply(self, job: Job, result: Result) -> list[bytes]:
        """The answer to a job, and the metrics in a message of their own."""
        labels = Labels(job.request, result.value)
        metrics = {name: value for name, value in result.metrics.items() if math.isfinite(value)}
        return [
            self.codec.encode(Uplink(job.round, job.attempt, self.number, labels)),
            self.codec.encode(Report(job.round, job.attempt, self.number, metrics)),
        ]

    def _check(self, message: Broadcast) -> None:
        size, classes = self.state.cache.value.shape
        sync = message.sync
        indices = [message.request] if sync is None else [message.request, sync.index, sync.dropped]
        highest = max((int(index[-1]) for index in indices if len(index)), default=0)
        if highest >= size:
            raise MessageError(f"the broadcast names sample {highest}; this client's public set has {size}")
        if sync is not None and (sync.round != message.round - 1 or message.round > LAST_ROUND):
            raise MessageError(f"the broadcast of round {message.round} has the sync of round {sync.round}")
        if sync is not None and sync.fresh.shape[1] != classes:
            raise MessageError(f"the broadcast has {sync.fresh.shape[1]} classes where there are {classes}")
