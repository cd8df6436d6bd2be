"""Five clients with batch norm and augmentation, so that all that draws or remembers takes part."""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np

from scarlet.arrays import Index, Inputs
from scarlet.data.federated import FederatedData
from scarlet.data.samples import Labelled, Part
from scarlet.data.sites import Augment
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.models.registry import initial_weights, model_factory
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.codec_registry import codec
from scarlet.protocol.method import Method
from scarlet.protocol.server import Server
from scarlet.training.train import Training
from scarlet.transport.client_setup import ClientSetup, Evaluation, Kind
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
    train = Labelled(rng.integers(0, 256, (60, *SHAPE), np.uint8), rng.integers(0, CLASSES, 60))
    test = Labelled(rng.integers(0, 256, (20, *SHAPE), np.uint8), rng.integers(0, CLASSES, 20))
    return of_pools(train, test, rng.integers(0, 256, (30, *SHAPE), np.uint8))


def of_pools(train: Labelled, test: Labelled, public: Inputs) -> FederatedData:
    """Five clients with equal shares of the samples for training and for tests."""
    names = [str(client) for client in EVERYBODY]
    return FederatedData(names, shares(train), shares(test), public, Part(test), CLASSES)


def shares(pool: Labelled) -> list[Part]:
    places: Index = np.arange(len(pool.labels))
    return [Part(pool, own) for own in np.split(places, CLIENTS)]


def kind(**changes: Any) -> Kind:
    """A small network with batch norm; its weights are those of the factory, unless they are given."""
    factory = changes.get("factory", model_factory("cnn32", CLASSES, SHAPE))
    given: dict[str, Any] = {
        "model": "cnn32",
        "factory": factory,
        "weights": initial_weights(factory, 0),
        "training": Training(1, 1, 0.1, 0.1, 5, Augment(padding=2, flip=True), seed=0),
    }
    return Kind(**given | changes)


def setup(kinds: Sequence[Kind] | None = None, kind_of: Sequence[int] | None = None, **changes: Any) -> ClientSetup:
    """Clients of some kinds, or of one; `changes` are fields of the setup, or of that one kind."""
    of_the_kind = {name: changes.pop(name) for name in Kind.__dataclass_fields__ if name in changes}
    given: dict[str, Any] = {
        "method": METHOD,
        "agreement": AGREEMENT,
        "kinds": [kind(**of_the_kind)] if kinds is None else kinds,
        "kind_of": np.array([0] * CLIENTS if kind_of is None else kind_of, np.int32),
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
