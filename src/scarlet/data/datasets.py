"""The datasets by name, and how to load them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from scarlet.arrays import Inputs
from scarlet.data.cifar import CIFAR10, CIFAR100
from scarlet.data.embedded import Digits, Mnist5k
from scarlet.data.folders import Caltech256, TinyImageNet
from scarlet.data.image_folder import ImageFolder
from scarlet.data.images import is_image
from scarlet.data.npz import Npz
from scarlet.data.private import PrivateSet as PrivateSet
from scarlet.data.private import SplitSet as SplitSet
from scarlet.data.sites import Augment as Augment
from scarlet.data.source import PrivateSource, PublicSource, Shape
from scarlet.errors import ConfigError, DataError, unknown


@dataclass(frozen=True, slots=True)
class Info:
    """What is known of a dataset before it is read."""

    title: str
    source: PublicSource
    size: tuple[int, int]  # images of the whole training split, and of the whole test split
    public: str | None = None  # the public dataset that it is paired with; None: it cannot be private
    model: str | None = None  # its usual model; None: it cannot be private


DATASETS = {
    "mnist5k": Info("5,000 digits of MNIST", Mnist5k(), size=(4000, 1000), public="digits", model="cnn"),
    "digits": Info("Optical digits of scikit-learn", Digits(), size=(1797, 0)),
    "cifar10": Info("CIFAR-10", CIFAR10, size=(50_000, 10_000), public="cifar100", model="resnet20"),
    "cifar100": Info("CIFAR-100", CIFAR100, size=(50_000, 10_000), public="tiny-imagenet", model="resnet32"),
    "tiny-imagenet": Info(
        "Tiny ImageNet", TinyImageNet(), size=(100_000, 10_000), public="caltech256", model="resnet18"
    ),
    "caltech256": Info("Caltech-256", Caltech256(), size=(29_780, 0)),
}

# Datasets of the user's own, by the word before the colon of npz:FILE and folder:PATH.
FILES: dict[str, Callable[[Path], PrivateSource]] = {"npz": Npz, "folder": ImageFolder}


def default_data_dir() -> Path:
    """The folder that SCARLET_DATA names, or ~/.cache/scarlet/data."""
    return Path(os.environ.get("SCARLET_DATA") or "~/.cache/scarlet/data").expanduser()


def info(name: str) -> Info:
    """The entry of a dataset."""
    if name not in DATASETS:
        raise unknown("dataset", name, [*DATASETS, "npz:FILE", "folder:PATH"])
    return DATASETS[name]


def paired(name: str) -> Info | None:
    """What is known of a private dataset, its public dataset and its model among it; None: of one's own, nothing is."""
    return None if ":" in name else info(name)


def load_private(name: str, data_dir: Path, image_size: int | None = None) -> PrivateSet | SplitSet:
    """The labelled samples of a dataset, as many as are there; `image_size` resizes the images of a folder."""
    source = present_source(name, data_dir)
    if not isinstance(source, PrivateSource):
        able = [other for other, its in DATASETS.items() if its.public]
        raise ConfigError(
            f"{name} can serve as the public dataset only; choose a private dataset from: {', '.join(able)}"
        )
    if image_size is not None:
        if not isinstance(source, ImageFolder):
            raise ConfigError(f"image_size is for private images of folder:PATH, not for {name}; leave it out")
        source = replace(source, image_size=image_size)
    return source.private(data_dir)


def load_public(name: str, data_dir: Path, shape: Shape, size: int | None = None) -> Inputs:
    """The training inputs of a dataset at the private inputs' `shape`, or a fixed choice of `size` of them.

    Images are brought to `shape`: grey becomes RGB, or RGB grey, where the channels differ, and pixels are resized
    bilinearly with antialiasing. The inputs of an npz file must have that shape.
    """
    source = present_source(name, data_dir)
    if not isinstance(source, Npz) and not is_image(shape):
        raise ConfigError(
            f"public {name} holds images, which cannot take the private inputs' shape {list(shape)}; use --public "
            "npz:FILE with inputs of that shape, or private images [n, C, H, W] of 1 or 3 channels"
        )
    return source.public(data_dir, shape, size)


def public_images(name: str, data_dir: Path) -> int:
    """How many inputs a dataset has to offer as the public one."""
    return present_source(name, data_dir).counts(data_dir).train


def present_source(name: str, data_dir: Path) -> PublicSource:
    """What reads a dataset, which must be there."""
    prefix, colon, path = name.partition(":")
    if colon and prefix in FILES:
        if not path:
            raise ConfigError(f"{name} names no path; write the path behind the colon, such as {prefix}:mine/data")
        own = FILES[prefix](Path(path).expanduser())
        if not own.where(data_dir).exists():
            raise ConfigError(f"{name} does not exist; check the path, which starts from {Path.cwd()}")
        return own
    source = info(name).source
    where = source.where(data_dir)
    if not where.exists():
        raise DataError(f"{name} is not under {data_dir}; run 'scarlet data get {name}', or put {where.name} there")
    return source
