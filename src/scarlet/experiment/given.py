"""What a federation is made of: what the caller gives from Python, and else what the config names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from scarlet.arrays import Inputs
from scarlet.config import Config
from scarlet.data.assemble import assemble, in_order, with_folders_read
from scarlet.data.datasets import (
    PrivateSet,
    SplitSet,
    default_data_dir,
    load_private,
    load_public,
    paired,
    public_images,
)
from scarlet.data.federated import FederatedData
from scarlet.data.inputs import as_part, as_public
from scarlet.data.partition import share_out
from scarlet.data.samples import Part
from scarlet.data.sites import Augment, Scale, Site
from scarlet.errors import ConfigError
from scarlet.experiment.models import FROM_PYTHON
from scarlet.models.registry import ModelFactory
from scarlet.training.optimisers import MakeOptimizer, MakeSchedule

_PUBLIC_AT_MOST = 10_000  # the paper's public set; a config may ask for more


@dataclass(frozen=True, slots=True)
class Given:
    """What a caller gives from Python, for all clients unless a site says otherwise. None: as the config says."""

    sites: Sequence[Site] | None = None
    public: Any = None
    test: Any = None
    model: ModelFactory | str | None = None
    server_model: ModelFactory | str | None = None
    classes: int | None = None
    augment: Augment | Scale | None = None
    scale: Scale | None = None
    optimizer: MakeOptimizer | None = None
    schedule: MakeSchedule | None = None


NOTHING_GIVEN = Given()


@dataclass(frozen=True, slots=True)
class Gathered:
    """The clients, in the order of their numbers, and all data."""

    sites: Sequence[Site]
    data: FederatedData
    augment: Augment  # the usual one of the private dataset
    split_already: bool  # the clients came with their data, and nothing was shared out


def gather(config: Config, given: Given, *, needs_public: bool) -> Gathered:
    """Read what was not given, share it out where it is not split among clients, and check that all fits together."""
    if given.sites is not None:
        sites, test, class_names = with_folders_read(in_order(given.sites), given.test, config.image_size)
        first = as_part(sites[0].train, f"train of site {sites[0].name!r}")
        public = _public(config, given, first.of.inputs.shape[1:], needed=needs_public)
        held_out = None if test is None else as_part(test, "test")
        return Gathered(sites, assemble(sites, public, held_out, given.classes, class_names), Augment(), True)
    loaded = _load(config)
    held_out = None if given.test is None else as_part(given.test, "test")
    if isinstance(loaded, SplitSet):
        sites, augment = in_order(loaded.sites), Augment()
        public = _public(config, given, as_part(sites[0].train, "train").of.inputs.shape[1:], needed=needs_public)
    else:
        public = _public(config, given, loaded.train.inputs.shape[1:], needed=needs_public)
        sites, augment = in_order(_shared_out(config, loaded)), loaded.augment
        held_out = held_out or Part(loaded.test)
    data = assemble(sites, public, held_out, given.classes or loaded.classes, loaded.class_names)
    return Gathered(sites, data, augment, isinstance(loaded, SplitSet))


def _load(config: Config) -> PrivateSet | SplitSet:
    """The private dataset that a config names."""
    if config.private == FROM_PYTHON:
        raise ConfigError("private was given from Python, and is not in a file; run or resume it from Python")
    read = load_private if paired(config.private) is None else _read_once
    return read(config.private, _data_dir(config), config.image_size)


# The last datasets of those that never change stay in memory, so that a comparison reads their files once.
_read_once = lru_cache(maxsize=1)(load_private)
_read_public_once = lru_cache(maxsize=1)(load_public)


def _data_dir(config: Config) -> Path:
    return (config.data_dir if config.data_dir is not None else default_data_dir()).absolute()


def _shared_out(config: Config, loaded: PrivateSet) -> list[Site]:
    return share_out(
        Part(loaded.train),
        Part(loaded.test),
        clients=config.clients,
        alpha=config.alpha,
        samples_per_client=config.samples_per_client,
        test_per_client=config.test_per_client,
        share_images=config.share_images,
        seed=config.seed,
    )


def _public(config: Config, given: Given, shape: tuple[int, ...], *, needed: bool) -> Inputs:
    if isinstance(given.public, str | Path):
        path = given.public
        config, given = replace(config, public=path if isinstance(path, str) else f"folder:{path}"), NOTHING_GIVEN
    if given.public is not None:
        public = as_public(given.public)
        if config.public_size not in (None, len(public)):
            raise ConfigError(f"public_size is {config.public_size} but the public inputs given are {len(public)}")
        return public
    known = None if given.sites is not None else paired(config.private)
    name = config.public or (None if known is None else known.public)
    if name is not None and name != FROM_PYTHON:
        # The size is settled first, because the choice of images depends on it: asked for by name or by default, it
        # must give the same images.
        size = config.public_size or min(_PUBLIC_AT_MOST, public_images(name, _data_dir(config)))
        read = load_public if paired(name) is None else _read_public_once
        return read(name, _data_dir(config), shape, size)
    if needed:
        raise ConfigError(
            "public must be given, the unlabelled dataset whose soft-labels are exchanged: arrays or a Dataset from "
            "Python, or a name, npz:FILE or folder:PATH"
        )
    return np.empty((0, *shape), np.float32)
