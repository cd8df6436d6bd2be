"""Five clients with batch norm and augmentation, so that all that draws or remembers takes part."""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Collection, Mapping
from functools import partial
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np

from scarlet.data.datasets import Augment, PrivateSet
from scarlet.data.federated import FederatedData
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.models.registry import initial_weights, model_factory
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.codec_registry import codec
from scarlet.protocol.method import Method
from scarlet.protocol.server import Server
from scarlet.training.train import Training
from scarlet.transport.client_setup import ClientSetup, Evaluation
from scarlet.transport.fault_injection import FaultInjection
from scarlet.transport.local import LocalTransport
from scarlet.transport.transport import Failure, Transport
from scarlet.wire.ledger import Ledger

CLIENTS, CLASSES, SHAPE = 5, 3, (3, 16, 16)
AGREEMENT = Agreement(clients=CLIENTS, public_size=30, public_per_round=10, classes=CLASSES, seed=0)
METHOD = partial(scarlet, ScarletConfig(cache_duration=1))  # makes it; can be pickled
CODEC = codec("reference", METHOD(), AGREEMENT)
EVERYBODY = range(CLIENTS)

Said = dict[int, list[bytes]]  # client -> its messages in the order it sent them


def data() -> FederatedData:
    rng = np.random.default_rng(0)
    private = PrivateSet(
        name="random",
        classes=CLASSES,
        train_images=rng.integers(0, 256, (60, *SHAPE), np.uint8),
        train_labels=rng.integers(0, CLASSES, 60),
        test_images=rng.integers(0, 256, (20, *SHAPE), np.uint8),
        test_labels=rng.integers(0, CLASSES, 20),
    )
    public = rng.integers(0, 256, (30, *SHAPE), np.uint8)
    train = [np.arange(12 * k, 12 * k + 12) for k in EVERYBODY]
    return FederatedData(private, public, train, [np.arange(4 * k, 4 * k + 4) for k in EVERYBODY])


def setup(**changes: Any) -> ClientSetup:
    factory = model_factory("cnn32", CLASSES, SHAPE)
    given: dict[str, Any] = {
        "method": METHOD,
        "agreement": AGREEMENT,
        "codec": "reference",
        "factory": factory,
        "weights": initial_weights(changes.get("factory", factory), 0),
        "training": Training(1, 1, 0.1, 0.1, 5, Augment(padding=2, flip=True), seed=0),
        "device": "cpu",
        "evaluation": Evaluation(every=2, last=4),
        "faults": FaultInjection(seed=0, clients=CLIENTS),
    }
    return ClientSetup(**given | changes)


def transport(workers: int = 1, images: FederatedData | None = None, **changes: Any) -> LocalTransport:
    return LocalTransport(setup(**changes), images or data(), workers)


def server(method: Method | None = None) -> Server:
    return Server(method or METHOD(), AGREEMENT, CODEC, Ledger())


def exchanged(
    clients: Transport, downlinks: Mapping[int, bytes], until: float = math.inf
) -> list[tuple[int, bytes | Failure]]:
    """All that comes of an exchange."""
    return list(clients.exchange(downlinks, until))


def play_round(head: Server, clients: Transport, asked: Collection[int] = EVERYBODY) -> Said:
    """One round with some of the clients; what each says."""
    said: Said = {client: [] for client in asked}
    for sender, message in clients.exchange({k: sent for k, sent in head.open_round().items() if k in asked}, math.inf):
        assert isinstance(message, bytes)
        said[sender].append(message)
        head.take(sender, message)
    head.close_round()
    return said


def play(workers: int, images: FederatedData | None = None, **changes: Any) -> tuple[list[Said], list[bytes]]:
    """What every client says in four rounds, and the digests of its weights in the end."""
    head = server()
    with transport(workers, images, **changes) as clients:
        assert len(children()) == (workers if workers > 1 else 0)
        return [play_round(head, clients) for _ in range(4)], clients.digests()


def children() -> list[BaseProcess]:
    """The worker processes."""
    return [child for child in multiprocessing.active_children() if child.name.startswith("scarlet-")]
