"""Answers are decoded, checked and added as they arrive; nothing of them is kept but their sum."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest

from scarlet.arrays import Labels
from scarlet.methods.dsfl import DsflConfig, dsfl
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.codec import Context
from scarlet.protocol.codec_registry import codec
from scarlet.protocol.method import Method
from scarlet.protocol.server import Server
from scarlet.protocol.uplink.labels import Answer
from scarlet.wire.ledger import Ledger

SAMPLES, CLASSES = 400, 10
ANSWER = 4 * SAMPLES * CLASSES  # bytes of one client's soft-labels as they are


def answers(server: Server, clients: int) -> Iterator[bytes]:
    rng = np.random.default_rng(0)
    for client in range(clients):
        labels = rng.dirichlet(np.ones(CLASSES), SAMPLES).astype(np.float32)
        yield server.codec.encode(Answer(1, 0, client, Labels(server.request, labels)), Context(server.request))


def peak(method: Method, codec_name: str, clients: int) -> int:
    """Bytes that a server holds at most, beyond what it had before, while it takes the answers of a round."""
    agreement = Agreement(clients, 2 * SAMPLES, SAMPLES, CLASSES, seed=0)
    server = Server(method, agreement, codec(codec_name, method, agreement), Ledger())
    server.open_round()
    most = 0
    tracemalloc.start()
    try:
        begun = None
        for client, message in enumerate(answers(server, clients)):
            now = tracemalloc.get_traced_memory()[0]
            begun = now if begun is None else begun
            tracemalloc.reset_peak()
            server.take(client, message)
            most = max(most, tracemalloc.get_traced_memory()[1] - begun)
        closed = server.close_round()
        most = max(most, tracemalloc.get_traced_memory()[1] - (begun or 0))
    finally:
        tracemalloc.stop()
    assert closed is not None and closed.answers == clients
    return most


@pytest.mark.parametrize("method", [scarlet(ScarletConfig()), dsfl(DsflConfig())], ids=["scarlet", "dsfl"])
@pytest.mark.parametrize("codec_name", ["reference", "compact"])
def test_the_memory_for_a_mean_does_not_grow_with_the_clients(method: Method, codec_name: str) -> None:
    peak(method, codec_name, 2)  # what is made once only
    few, many = peak(method, codec_name, 5), peak(method, codec_name, 200)
    # A client's place in sets and counters takes some hundred bytes; its labels would take ANSWER each.
    assert many - few < 195 * ANSWER / 20


def test_a_median_which_needs_all_answers_is_seen_to_keep_them() -> None:
    method = scarlet(ScarletConfig(average="median"))
    assert peak(method, "reference", 50) - peak(method, "reference", 5) > 45 * ANSWER
