"""The server's step of a round: from the bytes of many clients' answers to labels in the cache.

Ours decodes, checks, aggregates and commits. Plain reads what its pool delivers, aggregates and stores; it checks
nothing. The bare loop does the least that a loop over samples can do.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from benchmarks.laps import Lap, Withdrawn
from benchmarks.plain import Answer, Cache, aggregate, sharpened_mean
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.protocol.federation import Federation
from scarlet.protocol.schedule import Known, Rules
from scarlet.protocol.server import Server
from scarlet.protocol.types import Labels, Uplink, Values
from scarlet.wire.codecs import codec
from scarlet.wire.ledger import Ledger

ABOUT = "server step: decode, check, aggregate, commit (plain: receive, aggregate, store); 100 clients x 1,000 x 10"
FEDERATION = Federation(clients=100, public_size=10_000, public_per_round=1_000, classes=10, seed=0)


def answers(federation: Federation = FEDERATION) -> Values:
    """Soft-labels such as models that are fairly sure of themselves give, f32[K, n, N]."""
    rng = np.random.default_rng(0)
    size = federation.clients, federation.public_per_round
    return rng.dirichlet(np.full(federation.classes, 0.1), size=size).astype(np.float32)


def ours_step(options: ScarletConfig, given: Values, codec_name: str, federation: Federation = FEDERATION) -> Lap:
    """Time a server that takes encoded answers and closes its first round, without a model of its own."""
    server = opened(options, codec_name, federation)
    messages = encoded(server, given)
    started = time.perf_counter()
    for client, message in enumerate(messages):
        server.take(client, message)
    closed = server.close_round()
    seconds = time.perf_counter() - started
    assert closed is not None and closed.answers == len(given), server.rejections
    return Lap(seconds)


def opened(options: ScarletConfig, codec_name: str, federation: Federation) -> Server:
    """A server that waits for the answers of its first round."""
    server = Server(scarlet(options), federation, codec(codec_name, classes=federation.classes), Ledger())
    server.open_round()
    return server


def encoded(server: Server, given: Values) -> list[bytes]:
    """The clients' answers to the round under way, as bytes."""
    known = Known(Rules(server.method, server.federation), server.request)
    return [
        server.codec.encode(Uplink(1, 0, client, Labels(server.request, value)), known)
        for client, value in enumerate(given)
    ]


def plain_step(options: ScarletConfig, given: Values, federation: Federation = FEDERATION) -> Lap:
    """Time plain's server: it reads what the pool delivers, loops over answers and samples, and stores the labels."""
    index = Rules(scarlet(options), federation).index(1, 0)
    cache = Cache(options.cache_duration)
    with delivered(given, torch.from_numpy(index)) as connection:
        started = time.perf_counter()
        cache.update(aggregate(received(connection, len(given)), options.beta), 1)
        return Lap(time.perf_counter() - started)


def bare_step(options: ScarletConfig, given: Values, federation: Federation = FEDERATION) -> Lap:
    """Time a loop over samples whose labels come in the order of the request, from plain pickles."""
    index = Rules(scarlet(options), federation).index(1, 0).tolist()
    cache = Cache(options.cache_duration)
    answers = [pickle.dumps(torch.from_numpy(value.copy())) for value in given]
    started = time.perf_counter()
    labels = in_order([pickle.loads(answer) for answer in answers], options.beta)
    cache.update(dict(zip(index, labels, strict=True)), 1)
    return Lap(time.perf_counter() - started)


def in_order(answers: Sequence[torch.Tensor], beta: float) -> list[torch.Tensor]:
    """For each place in the answers the sharpened mean of what stands there."""
    return [sharpened_mean([answer[place] for answer in answers], beta) for place in range(len(answers[0]))]


@contextmanager
def delivered(given: Values, samples: torch.Tensor) -> Iterator[Connection]:
    """The end of a pipe in which plain's answers wait, sent by another process in the way of torch's pools."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    sent, read = context.Event(), context.Event()
    process = context.Process(target=_deliver, args=(theirs, given, samples, sent, read))
    process.start()
    try:
        while not sent.wait(timeout=1):
            if not process.is_alive():
                raise Withdrawn(f"plain's pool ended with exit code {process.exitcode}")
        yield ours
    finally:
        read.set()
        process.join()


def _deliver(connection: Connection, given: Values, samples: torch.Tensor, sent: Any, read: Any) -> None:
    for value in given:
        connection.send(Answer(samples.clone(), torch.from_numpy(value.copy()), 0.0))
    sent.set()
    read.wait()  # what was sent is memory of this process, until it has been read


def received(connection: Connection, count: int) -> list[Answer]:
    """That many answers."""
    return [connection.recv() for _ in range(count)]
