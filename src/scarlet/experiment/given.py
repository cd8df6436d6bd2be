"""What a federation is made of: what the caller gives from Python, and else what the config names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
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
    present_source,
    public_images,
)
from scarlet.data.federated import FederatedData
from scarlet.data.inputs import as_part, as_public
from scarlet.data.partition import share_out
from scarlet.data.samples import Part
from scarlet.data.sites import ELSEWHERE, Augment, Elsewhere, Scale, Site
from scarlet.errors import ConfigError, WrongTypeError
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
    class_names: tuple[str, ...] | None = None  # found where data was in folders

    def __post_init__(self) -> None:
        if self.sites is not None and not isinstance(self.sites, Iterable):
            raise WrongTypeError(f"sites must be a list of scarlet.Site, got {type(self.sites).__name__}; use [site]")

    def described(self) -> dict[str, dict[str, str]]:
        """What was given, by name, as config.json has it; nothing where nothing was given."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "class_names"}
        names = {name: _name(name, value) for name, value in values.items() if value is not None}
        return {"given": names} if names else {}

    def read(self, image_size: int | None) -> Given:
        """The same with all data as arrays, so that a Dataset is read once."""
        test, class_names, sites = self.test, self.class_names, None
        if self.sites is not None:
            sites, test, found = with_folders_read(in_order(list(self.sites)), test, image_size)
            class_names = class_names or found
            sites = [replace(site, train=_part(site, "train"), test=_part(site, "test")) for site in sites]
        public = self.public if self.public is None or isinstance(self.public, str | Path) else as_public(self.public)
        test = None if test is None else as_part(test, "test")
        return replace(self, sites=sites, test=test, public=public, class_names=class_names)


def _part(site: Site, name: str) -> Part | Elsewhere | None:
    data = getattr(site, name)
    return data if data is None or data is ELSEWHERE else as_part(data, f"{name} of site {site.name!r}")


def _name(argument: str, value: object) -> str:
    """A short name for what a caller gave; data has none."""
    if isinstance(value, str | int) or argument in ("sites", "public", "test"):
        return str(value) if isinstance(value, str | int) else FROM_PYTHON
    inner = value.func if isinstance(value, partial) else value
    return str(getattr(inner, "__qualname__", type(inner).__name__))


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
    given = given.read(config.image_size)
    held_out: Part | None = given.test
    if given.sites is not None:
        public = _public(config, given, _input_shape(config, given), needed=needs_public)
        data = assemble(given.sites, public, held_out, given.classes, given.class_names)
        return Gathered(given.sites, data, Augment(), True)
    loaded = _load(config)
    if isinstance(loaded, SplitSet):
        sites, augment = in_order(loaded.sites), Augment()
        public = _public(config, given, as_part(sites[0].train, "train").of.inputs.shape[1:], needed=needs_public)
    else:
        public = _public(config, given, loaded.train.inputs.shape[1:], needed=needs_public)
        sites, augment = in_order(_shared_out(config, loaded)), loaded.augment
        held_out = held_out or Part(loaded.test)
    data = assemble(sites, public, held_out, given.classes or loaded.classes, loaded.class_names)
    return Gathered(sites, data, augment, isinstance(loaded, SplitSet))


def _input_shape(config: Config, given: Given) -> tuple[int, ...]:
    """The shape of the clients' inputs; where they are all elsewhere, it is that of the test set or the public one."""
    parts = [site.train for site in given.sites or () if site.train is not ELSEWHERE]
    known: Part | None = (*parts, given.test, None)[0]
    if known is not None:
        return known.of.inputs.shape[1:]
    if given.public is not None and not isinstance(given.public, str | Path):
        shape: tuple[int, ...] = given.public.shape[1:]
        return shape
    name = str(given.public or config.public or "")
    own = present_source(name, _data_dir(config)).own_shape(_data_dir(config)) if name else None
    if own is None:
        raise ConfigError(
            f"public must have inputs of one shape where the clients' data is elsewhere, got {name or 'nothing'!r}; "
            "make a file of it: scarlet data pack NAME --shape C,H,W --out FILE"
        )
    return own


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
    if isinstance(given.public, Path):
        given = replace(given, public=f"{'npz' if given.public.suffix == '.npz' else 'folder'}:{given.public}")
    if isinstance(given.public, str):
        config, given = replace(config, public=given.public), replace(given, public=None)
    if given.public is not None:
        public: Inputs = given.public
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
