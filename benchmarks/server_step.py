"""The server's step of a round: from the bytes of many clients' answers to labels in the cache.

`ours` decodes, checks, aggregates and commits the answers. `plain` reads them from its pool, aggregates and stores them
without a check. The bare loop is the least that a loop over samples can do.
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

from benchmarks.plain import Answer, Cache, aggregate, fixed_beta, sharpened_mean
from benchmarks.timing import Timing, Unavailable
from scarlet.arrays import Index, Labels, Values
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.codec import Context
from scarlet.protocol.codec_registry import codec
from scarlet.protocol.server import Server
from scarlet.protocol.stamps import Draws
from scarlet.protocol.uplink import labels as uplink
from scarlet.wire.ledger import Ledger

ABOUT = "server step: decode, check, aggregate, commit (plain: receive, aggregate, store); 100 clients x 1,000 x 10"
AGREEMENT = Agreement(clients=100, public_size=10_000, public_per_round=1_000, classes=10, seed=0)


def answers(agreement: Agreement = AGREEMENT) -> Values:
    """Soft-labels as confident models predict them, f32[K, n, N]."""
    rng = np.random.default_rng(0)
    size = agreement.clients, agreement.public_per_round
    return rng.dirichlet(np.full(agreement.classes, 0.1), size=size).astype(np.float32)


def ours_step(options: ScarletConfig, given: Values, codec_name: str, agreement: Agreement = AGREEMENT) -> Timing:
    """Time a server that takes encoded answers and closes its first round, without a model of its own."""
    server = opened(options, codec_name, agreement)
    messages = encoded(server, given)
    started = time.perf_counter()
    for client, message in enumerate(messages):
        server.take(client, message)
    closed = server.close_round()
    seconds = time.perf_counter() - started
    assert closed is not None and closed.answers == len(given), server.rejections
    return Timing(seconds)


def opened(options: ScarletConfig, codec_name: str, agreement: Agreement) -> Server:
    """A server that waits for the answers of its first round."""
    method = scarlet(options)
    server = Server(method, agreement, codec(codec_name, method, agreement), Ledger())
    server.open_round()
    return server


def encoded(server: Server, given: Values) -> list[bytes]:
    """The clients' answers to the round under way, as bytes."""
    context = Context(server.request)
    return [
        server.codec.encode(uplink.Answer(1, 0, client, Labels(server.request, value)), context)
        for client, value in enumerate(given)
    ]


def plain_step(options: ScarletConfig, given: Values, agreement: Agreement = AGREEMENT) -> Timing:
    """Time plain's server: it reads answers from the pool, loops over answers and samples, and stores the labels."""
    index = first_draw(options, agreement)
    cache = Cache(options.cache_duration)
    with delivered(given, torch.from_numpy(index)) as connection:
        started = time.perf_counter()
        cache.update(aggregate(received(connection, len(given)), fixed_beta(options)), 1)
        return Timing(time.perf_counter() - started)


def bare_step(options: ScarletConfig, given: Values, agreement: Agreement = AGREEMENT) -> Timing:
    """Time a loop over samples whose labels come in the order of the request, from plain pickles."""
    index = first_draw(options, agreement).tolist()
    cache = Cache(options.cache_duration)
    answers = [pickle.dumps(torch.from_numpy(value.copy())) for value in given]
    started = time.perf_counter()
    labels = in_order([pickle.loads(answer) for answer in answers], fixed_beta(options))
    cache.update(dict(zip(index, labels, strict=True)), 1)
    return Timing(time.perf_counter() - started)


def first_draw(options: ScarletConfig, agreement: Agreement) -> Index:
    """The public samples of the first round."""
    method = scarlet(options)
    return Draws(agreement, method.select, method.downlink.policy).index(1, 0)


def in_order(answers: Sequence[torch.Tensor], beta: float) -> list[torch.Tensor]:
    """For each position in the answers, the sharpened mean of the labels there."""
    return [sharpened_mean([answer[place] for answer in answers], beta) for place in range(len(answers[0]))]


@contextmanager
def delivered(given: Values, samples: torch.Tensor) -> Iterator[Connection]:
    """A pipe that holds plain's answers, sent by another process as torch's pools send tensors."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    sent, read = context.Event(), context.Event()
    process = context.Process(target=_deliver, args=(theirs, given, samples, sent, read))
    process.start()
    try:
        while not sent.wait(timeout=1):
            if not process.is_alive():
                raise Unavailable(f"plain's pool ended with exit code {process.exitcode}")
        yield ours
    finally:
        read.set()
        process.join()


def _deliver(connection: Connection, given: Values, samples: torch.Tensor, sent: Any, read: Any) -> None:
    for value in given:
        connection.send(Answer(samples.clone(), torch.from_numpy(value.copy()), 0.0))
    sent.set()
    read.wait()  # the tensors sent are in the memory of this process until they have been read


def received(connection: Connection, count: int) -> list[Answer]:
    """That many answers."""
    return [connection.recv() for _ in range(count)]
