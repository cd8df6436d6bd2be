"""The datasets by name, and how to load them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from scarlet.data.cifar import CIFAR10, CIFAR100
from scarlet.data.embedded import Digits, Mnist5k
from scarlet.data.folders import Caltech256, TinyImageNet
from scarlet.data.samples import Labelled
from scarlet.data.sites import Augment, Site
from scarlet.data.source import Pixels, PrivateSource, PublicSource, Shape
from scarlet.errors import ConfigError, DataError, unknown


@dataclass(frozen=True, slots=True)
class PrivateSet:
    """A labelled dataset to be shared out among the clients, and to test on."""

    name: str
    classes: int
    train: Labelled
    test: Labelled
    augment: Augment = Augment()
    class_names: tuple[str, ...] | None = None  # None: the classes have numbers only


@dataclass(frozen=True, slots=True)
class SplitSet:
    """A labelled dataset that is split among clients already."""

    name: str
    classes: int
    sites: tuple[Site, ...]
    class_names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Info:
    """What is known of a dataset before it is read."""

    title: str
    source: PublicSource
    size: tuple[int, int]  # images of the whole training split, and of the whole test split
    augment: Augment = Augment()
    public: str | None = None  # the public dataset that it is paired with; None: it cannot be private
    model: str | None = None  # its usual model; None: it cannot be private


_CROP_4, _CROP_8 = Augment(padding=4, flip=True), Augment(padding=8, flip=True)

DATASETS = {
    "mnist5k": Info("5,000 digits of MNIST", Mnist5k(), size=(4000, 1000), public="digits", model="cnn"),
    "digits": Info("Optical digits of scikit-learn", Digits(), size=(1797, 0)),
    "cifar10": Info("CIFAR-10", CIFAR10, size=(50_000, 10_000), augment=_CROP_4, public="cifar100", model="resnet20"),
    "cifar100": Info(
        "CIFAR-100", CIFAR100, size=(50_000, 10_000), augment=_CROP_4, public="tiny-imagenet", model="resnet32"
    ),
    "tiny-imagenet": Info(
        "Tiny ImageNet", TinyImageNet(), size=(100_000, 10_000), augment=_CROP_8, public="caltech256", model="resnet18"
    ),
    "caltech256": Info("Caltech-256", Caltech256(), size=(29_780, 0)),
}


def default_data_dir() -> Path:
    """The folder that SCARLET_DATA names, or ~/.cache/scarlet/data."""
    return Path(os.environ.get("SCARLET_DATA") or "~/.cache/scarlet/data").expanduser()


def info(name: str) -> Info:
    """The entry of a dataset."""
    if name not in DATASETS:
        raise unknown("dataset", name, DATASETS)
    return DATASETS[name]


def paired(name: str) -> Info | None:
    """What is known of a private dataset, its public dataset and its model among it; None: of one's own, nothing is."""
    return None if ":" in name else info(name)


def load_private(name: str, data_dir: Path) -> PrivateSet:
    """The labelled images of a dataset, as much of it as is there."""
    entry = info(name)
    source = entry.source
    if not isinstance(source, PrivateSource):
        able = [other for other, its in DATASETS.items() if its.public]
        raise ConfigError(
            f"{name} can serve as the public dataset only; choose a private dataset from: {', '.join(able)}"
        )
    _check_present(name, source, data_dir)
    train, test = source.train(data_dir), source.test(data_dir)
    return PrivateSet(name, source.classes(data_dir), train, test, entry.augment)


def load_public(name: str, data_dir: Path, shape: Shape, size: int | None = None) -> Pixels:
    """The training images of a dataset at the private dataset's `shape`, or a fixed choice of `size` of them.

    Grey becomes RGB, or RGB grey, where the channels differ; pixels are resized bilinearly with antialiasing.
    """
    source = info(name).source
    _check_present(name, source, data_dir)
    return source.public(data_dir, shape, size)


def public_images(name: str, data_dir: Path) -> int:
    """How many images a dataset has to offer as the public one."""
    source = info(name).source
    _check_present(name, source, data_dir)
    return source.counts(data_dir).train


def _check_present(name: str, source: PublicSource, data_dir: Path) -> None:
    where = source.where(data_dir)
    if not where.exists():
        raise DataError(f"{name} is not under {data_dir}; run 'scarlet data get {name}', or put {where.name} there")
