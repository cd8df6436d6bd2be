"""A federation made ready from a config: data shared out among the clients, a model, and how it is trained."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from scarlet.arrays import DIGEST_BYTES
from scarlet.config import Config, check_per_round
from scarlet.data.datasets import default_data_dir, info, load_private, load_public, public_images
from scarlet.data.federated import Data, FederatedData
from scarlet.data.partition import class_counts, partition, split_test
from scarlet.errors import ConfigError
from scarlet.methods.registry import MakeMethod
from scarlet.models.registry import ModelFactory, Weights, initial_weights, model_factory
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.method import Method
from scarlet.protocol.server import Participation
from scarlet.rng import stream
from scarlet.training.engines.batched import clients_at_once
from scarlet.training.engines.choice import Engine, choose
from scarlet.training.train import Training
from scarlet.transport.client_setup import ClientSetup, Evaluation
from scarlet.transport.fault_injection import FaultInjection
from scarlet.transport.local import worker_count

_PUBLIC_AT_MOST = 10_000  # the paper's public set; a config may ask for more


@dataclass(frozen=True)
class Federation:
    """A config with every open question answered, and all that it needs in memory."""

    config: Config  # nothing that follows from the data is None any more
    data: FederatedData
    factory: ModelFactory
    counts: npt.NDArray[np.int64]  # [K, classes]: training samples of each client and class
    engine: Engine
    workers: int

    @property
    def agreement(self) -> Agreement:
        """What server and clients must agree on."""
        config = self.config
        assert config.public_per_round is not None
        return Agreement(
            clients=len(self.data.train),
            public_size=len(self.data.public),
            public_per_round=config.public_per_round,
            classes=self.data.private.classes,
            seed=config.seed,
            public=bytes.fromhex(self.data.public_fingerprint)[:DIGEST_BYTES],
        )

    @property
    def asked(self) -> int:
        return Participation(self.config.participation).asked(len(self.data.train))

    @property
    def participation(self) -> Participation:
        return Participation(self.config.participation, min(self.config.min_answers, self.asked))

    def training(self, method: Method) -> Training:
        """How models are trained, on clients and on the server alike."""
        config = self.config
        return Training(
            local_epochs=config.local_epochs,
            distil_epochs=config.distil_epochs,
            lr=config.lr if method.local_lr is None else method.local_lr,
            distil_lr=config.distil_lr,
            batch_size=config.batch_size,
            augment=self.data.private.augment,
            seed=config.seed,
        )

    def initial_weights(self) -> Weights:
        """The weights that the server and all clients start from."""
        return initial_weights(self.factory, self.config.seed)

    def client_setup(self, method: Method, make: MakeMethod, weights: Weights) -> ClientSetup:
        """What the side of the clients must know; `make` makes the method in another process."""
        config, shape = self.config, self.data.public.shape[1:]
        batched = self.engine.name == "batched"
        return ClientSetup(
            method=make,
            agreement=self.agreement,
            codec=config.codec,
            factory=self.factory,
            weights=weights,
            training=self.training(method),
            device=config.device,
            evaluation=Evaluation(config.eval_every, config.rounds),
            faults=FaultInjection(config.seed, len(self.data.train), config.dropout, config.hostile, config.attack),
            clients_in_memory=config.clients_in_memory,
            clients_at_once=clients_at_once(self.factory, shape, config.batch_size) if batched else None,
        )


def load(config: Config) -> Data:
    """The datasets that a config names; the last ones stay in memory, so that a comparison reads its files once."""
    data_dir = config.data_dir if config.data_dir is not None else default_data_dir()
    return _load(config.private, config.public, config.public_size, data_dir)


@lru_cache(maxsize=1)
def _load(private_name: str, public_name: str | None, public_size: int | None, data_dir: Path) -> Data:
    private = load_private(private_name, data_dir)
    public = public_name or info(private_name).public
    assert public is not None  # load_private accepts only datasets that are paired with one
    channels, height, width = private.train_images.shape[1:]
    # The size is settled first, because the choice of images depends on it: asked for by name or by default, it must
    # give the same images.
    size = public_size or min(_PUBLIC_AT_MOST, public_images(public, data_dir))
    return Data(private, load_public(public, data_dir, (channels, height, width), size))


def prepare(
    config: Config, data: Data | None = None, model: ModelFactory | None = None, *, pooled: bool = False
) -> Federation:
    """Load what was not given, share it out among the clients, and fill in what follows from it.

    `pooled` then gives all of it to one client.
    """
    given = data is not None
    data = data if data is not None else load(config)
    _check(config, data, given=given)
    private, size, shape = data.private, len(data.public), data.public.shape[1:]
    per_round = config.public_per_round or max(1, round(size / 10))
    check_per_round(per_round, size)
    known = None if given else info(config.private)
    name = config.model or (known.model if known else None)
    if model is None and name is None:
        raise ConfigError("model must be named, or given, for data of your own")
    if model is None:
        assert name is not None
        model = model_factory(name, private.classes, (shape[0], shape[1], shape[2]))

    rng = stream(config.seed, "data", purpose="partition")
    shares = partition(
        private.train_labels, config.clients, config.alpha, rng, config.samples_per_client, shared=config.share_images
    )
    counts = class_counts(private.train_labels, shares, private.classes)
    rng = stream(config.seed, "data", purpose="test split")
    test = split_test(private.test_labels, counts / counts.sum(axis=1, keepdims=True), config.test_per_client, rng)
    shared_out = FederatedData(private, data.public, shares, test)
    engine = choose(config.engine, model, shape)
    resolved = replace(
        config,
        public=config.public or (known.public if known else "given"),
        public_size=size,
        public_per_round=per_round,
        samples_per_client=len(shares[0]),
        model=name or "given",
        engine=engine.name,
    )
    federated = shared_out.pooled() if pooled else shared_out
    workers = worker_count(config.workers, len(federated.train), config.device)
    return Federation(resolved, federated, engine.applied_to(model), counts, engine, workers)


def _check(config: Config, data: Data, *, given: bool) -> None:
    """Raise ConfigError unless all images can go through one model."""
    private = data.private
    for images in (private.train_images, private.test_images, data.public):
        if images.dtype not in (np.uint8, np.float32) or images.shape[1:] != private.train_images.shape[1:]:
            raise ConfigError(
                f"images must all be uint8 or float32 of one shape [n, C, H, W], got {images.dtype} {images.shape}"
            )
    if given and config.public_size not in (None, len(data.public)):
        raise ConfigError(f"public_size is {config.public_size} but the public images given are {len(data.public)}")
