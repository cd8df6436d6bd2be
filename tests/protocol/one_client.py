"""One client, and the downlinks of three rounds: nothing is taught, two labels are, and they are reused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from scarlet.arrays import Index, Labels, Values
from scarlet.job import Job, Result
from scarlet.methods.parts.mean import mean
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.cache import Duration
from scarlet.protocol.client import Client
from scarlet.protocol.codec_registry import codec
from scarlet.protocol.downlink.shared import Shared
from scarlet.protocol.messages import Broadcast, CatchUp, Message, Resync, Sync
from scarlet.protocol.method import Method

SIZE, CLASSES, NUMBER = 10, 2, 4
AGREEMENT = Agreement(clients=5, public_size=SIZE, public_per_round=4, classes=CLASSES, seed=0, public="c0ffee")
METHOD = Method(mean(), downlink=Shared(Duration(4, "delete")))
CODEC = codec("reference", METHOD, AGREEMENT)


def i64(*numbers: int) -> Index:
    return np.array(numbers, np.int64)


def label(*rows: list[float]) -> Values:
    return np.array(rows, np.float32).reshape(len(rows), CLASSES)


def broadcast(round: int, taught: Labels, sync: Sync, request: Index | None = None) -> Broadcast:
    return Broadcast(round, 0, i64(0) if request is None else request, sync, taught.digest(), AGREEMENT.digest)


def first(request: Index, round: int = 1, attempt: int = 0) -> Broadcast:
    return Broadcast(round, attempt, request, None, bytes(8), AGREEMENT.digest)


TAUGHT = Labels(i64(2, 5), label([0.25, 0.75], [1, 0]))
STORED = broadcast(2, TAUGHT, Sync(1, TAUGHT.index, i64(1, 1), TAUGHT.value, i64()))
REUSED = broadcast(3, TAUGHT, Sync(2, TAUGHT.index, i64(0, 0), label(), i64()))
CATCH_UP = CatchUp(3, 0, NUMBER, False, TAUGHT)
RESET = replace(CATCH_UP, reset=True)


def new_client(method: Method = METHOD) -> Client:
    return Client(NUMBER, method, AGREEMENT, codec("reference", method, AGREEMENT))


def sent(client: Client, *messages: Message) -> bytes:
    """A downlink: some messages, one after the other."""
    return b"".join(client.codec.encode(message) for message in messages)


def job_of(client: Client, *messages: Message) -> Job:
    job = client.receive(sent(client, *messages))
    assert isinstance(job, Job)
    return job


def client_in_round_2() -> Client:
    """It holds the labels of round 1, and has answered round 2."""
    client = new_client()
    client.reply(job_of(client, STORED), Result(label([0.5, 0.5]), {}))
    return client


def says_resync(client: Client, *messages: Message) -> bool:
    """Whether the client's only answer is that its cache differs."""
    task = client.receive(sent(client, *messages))
    return task == [client.codec.encode(Resync(messages[0].round, messages[0].attempt, NUMBER))]
