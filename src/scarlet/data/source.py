"""What a dataset has to offer to be read, whatever its files look like."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np

from scarlet.arrays import Index, Inputs
from scarlet.data.private import PrivateSet, SplitSet
from scarlet.errors import ConfigError
from scarlet.rng import draw, stream

Shape: TypeAlias = tuple[int, ...]  # of one input: C, H, W of an image


class Counts(NamedTuple):
    """How much of a dataset is there; classes are those with at least one training image."""

    train: int
    test: int
    classes: int


class PublicSource(Protocol):
    """A dataset that can serve as the public one."""

    def where(self, data_dir: Path) -> Path:
        """The file or folder that holds the dataset."""

    def counts(self, data_dir: Path) -> Counts:
        """How much of the dataset is there, without decoding an image."""

    def own_shape(self, data_dir: Path) -> Shape | None:
        """The shape of every input as it is stored; None: they differ."""

    def public(self, data_dir: Path, shape: Shape, size: int | None) -> Inputs:
        """The training images, or a fixed choice of `size` of them, at `shape`."""


@runtime_checkable
class PrivateSource(PublicSource, Protocol):
    """A dataset whose labels let it serve as the private one, too."""

    def private(self, data_dir: Path) -> PrivateSet | SplitSet:
        """The labelled samples, as many as are there."""


def chosen(images: int, size: int | None) -> Index:
    """The indices of `size` of `images`, ascending; None means all of them.

    The choice depends on nothing but the two numbers, so that server and clients that load the same public
    dataset apart hold the same images.
    """
    if size is None:
        return np.arange(images, dtype=np.int64)
    if not 1 <= size <= images:
        raise ConfigError(
            f"public_size must be from 1 to {images}, the images that the public dataset has, got {size}; "
            "use fewer, or get the whole dataset"
        )
    return draw(stream(0, "data", purpose="public images"), images, size)
