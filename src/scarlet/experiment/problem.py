"""What a federation works on: data, its partition among the clients, and the model, made ready from a config."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt

from scarlet.config import Config, check_per_round
from scarlet.data.datasets import PrivateSet, default_data_dir, info, load_private, load_public, public_images
from scarlet.data.partition import class_counts, partition, split_test
from scarlet.errors import ConfigError
from scarlet.models.registry import ModelFactory, model_factory
from scarlet.protocol.federation import Federation
from scarlet.arrays import DIGEST_BYTES, Images, Index
from scarlet.rng import stream
from scarlet.training.engine import Engine, Plan, choose
from scarlet.training.train import Training
from scarlet.transport.client_runner import Resident

_PUBLIC_AT_MOST = 10_000  # the paper's public set; a config may ask for more


@dataclass(frozen=True, slots=True)
class Data:
    """The images of a federation: what the clients hold, and what everybody holds."""

    private: PrivateSet
    public: Images  # [P, C, H, W], of the private images' shape


@dataclass(frozen=True)
class Problem:
    """A config with every open question answered, and all that it needs in memory."""

    config: Config  # nothing that follows from the data is None any more
    data: Data
    factory: ModelFactory
    private: Sequence[Index]  # for each client: its training images
    test: Sequence[Index]  # for each client: its test images
    counts: npt.NDArray[np.int64]  # [K, classes]: training images of each client and class
    engine: Engine
    local_lr: float | None = None  # of local training; None: the config's

    @property
    def federation(self) -> Federation:
        config = self.config
        assert config.public_per_round is not None
        return Federation(
            clients=len(self.private),
            public_size=len(self.data.public),
            public_per_round=config.public_per_round,
            classes=self.data.private.classes,
            seed=config.seed,
            participation=config.participation,
            min_answers=config.min_answers,
            public=bytes.fromhex(self.public_fingerprint)[:DIGEST_BYTES],
        )

    @property
    def training(self) -> Training:
        config = self.config
        return Training(
            local_epochs=config.local_epochs,
            distil_epochs=config.distil_epochs,
            lr=config.lr if self.local_lr is None else self.local_lr,
            distil_lr=config.distil_lr,
            batch_size=config.batch_size,
            augment=self.data.private.augment,
            seed=config.seed,
        )

    @property
    def resident(self) -> Resident:
        private = self.data.private
        return Resident(
            private.train_images,
            private.train_labels,
            private.test_images,
            private.test_labels,
            self.data.public,
        )

    @cached_property
    def public_fingerprint(self) -> str:
        """Names the public set: its content, order and preprocessing."""
        return _fingerprint(self.data.public)

    @cached_property
    def fingerprint(self) -> str:
        """Names all data of the federation."""
        private = self.data.private
        images = _fingerprint(private.train_images) + _fingerprint(private.test_images)
        labels = _fingerprint(private.train_labels) + _fingerprint(private.test_labels)
        return self.public_fingerprint + images + labels


def _fingerprint(array: npt.NDArray[np.generic]) -> str:
    content = blake2b(f"{array.dtype.str}{array.shape}".encode(), digest_size=16)
    content.update(np.ascontiguousarray(array).data)
    return content.hexdigest()


def load(config: Config) -> Data:
    """The data that a config names; the last one stays in memory, so that a comparison reads its files once."""
    data_dir = config.data_dir if config.data_dir is not None else default_data_dir()
    return _load(config.private, config.public, config.public_size, data_dir)


@lru_cache(maxsize=1)
def _load(private_name: str, public_name: str | None, public_size: int | None, data_dir: Path) -> Data:
    private = load_private(private_name, data_dir)
    public = public_name or info(private_name).public
    assert public is not None  # load_private accepts only sets that have a partner
    channels, height, width = private.train_images.shape[1:]
    # The size is settled first, because the choice of images depends on it: asked for by name or by default, it must
    # give the same images.
    size = public_size or min(_PUBLIC_AT_MOST, public_images(public, data_dir))
    return Data(private, load_public(public, data_dir, (channels, height, width), size))


def prepare(config: Config, data: Data | None = None, model: ModelFactory | None = None) -> Problem:
    """Load what was not given, share it out among the clients, and fill in what follows from it."""
    given = data is not None
    data = data if data is not None else load(config)
    private, size = data.private, len(data.public)
    for images in (private.train_images, private.test_images, data.public):
        if images.dtype not in (np.uint8, np.float32) or images.shape[1:] != private.train_images.shape[1:]:
            raise ConfigError(
                f"images must all be uint8 or float32 of one shape [n, C, H, W], got {images.dtype} {images.shape}"
            )
    if given and config.public_size not in (None, size):
        raise ConfigError(f"public_size is {config.public_size} but the public images given are {size}")
    per_round = config.public_per_round or max(1, round(size / 10))
    check_per_round(per_round, size)
    known = None if given else info(config.private)
    name = config.model or (known.model if known else None)
    shape = private.train_images.shape[1:]
    if model is None and name is None:
        raise ConfigError("model must be named, or given, for data of your own")
    if model is None:
        assert name is not None
        model = model_factory(name, private.classes, (shape[0], shape[1], shape[2]))

    rng = stream(config.seed, "data", purpose="partition")
    shares = partition(
        private.train_labels,
        config.clients,
        config.alpha,
        rng,
        config.samples_per_client,
        shared=config.share_images,
    )
    counts = class_counts(private.train_labels, shares, private.classes)
    rng = stream(config.seed, "data", purpose="test split")
    test = split_test(private.test_labels, counts / counts.sum(axis=1, keepdims=True), config.test_per_client, rng)
    work = config.local_epochs * len(shares[0]) + config.distil_epochs * per_round  # images of a client in a round
    engine = choose(config.engine, model, Plan(shape, config.rounds * config.asked * work, config.device))
    resolved = replace(
        config,
        public=config.public or (known.public if known else "given"),
        public_size=size,
        public_per_round=per_round,
        samples_per_client=len(shares[0]),
        model=name or "given",
        engine=engine.name,
    )
    return Problem(resolved, data, engine.applied_to(model), shares, test, counts, engine)
