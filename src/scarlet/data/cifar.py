"""CIFAR-10 and CIFAR-100 in the Python layout they are distributed in: pickled batches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from scarlet.arrays import Inputs
from scarlet.data.images import resized
from scarlet.data.private import PrivateSet
from scarlet.data.samples import Labelled
from scarlet.data.sites import Augment
from scarlet.data.source import Counts, Shape, chosen
from scarlet.data.unpickle import Refused, read_pickle
from scarlet.errors import DataError


@dataclass(frozen=True, slots=True)
class Cifar:
    """Some training batches and a test batch; a training batch that is missing only makes the dataset smaller."""

    name: str
    folder: str
    train_files: tuple[str, ...]
    test_file: str
    label_key: bytes
    label_count: int

    def where(self, data_dir: Path) -> Path:
        return data_dir / self.folder

    def counts(self, data_dir: Path) -> Counts:
        train = self.train(data_dir)
        return Counts(len(train.labels), len(self.test(data_dir).labels), len(np.unique(train.labels)))

    def own_shape(self, data_dir: Path) -> Shape:
        return 3, 32, 32

    def private(self, data_dir: Path) -> PrivateSet:
        train, test = self.train(data_dir), self.test(data_dir)
        return PrivateSet(self.name, self.label_count, train, test, Augment(padding=4, flip=True))

    def train(self, data_dir: Path) -> Labelled:
        folder = self.where(data_dir)
        batches = [self._batch(folder / file) for file in self.train_files if (folder / file).exists()]
        if not batches:
            raise self._error(f"{folder} has no training batch ({self.train_files[0]})", folder)
        images, labels = zip(*batches, strict=True)
        return Labelled(np.concatenate(images), np.concatenate(labels))

    def test(self, data_dir: Path) -> Labelled:
        path = self.where(data_dir) / self.test_file
        if not path.exists():
            raise self._error(f"{path} is missing", path.parent)
        return self._batch(path)

    def public(self, data_dir: Path, shape: Shape, size: int | None) -> Inputs:
        images = self.train(data_dir).inputs
        return resized(images[chosen(len(images), size)], shape)

    def _batch(self, path: Path) -> Labelled:
        try:
            with path.open("rb") as file:
                content = read_pickle(file)
            return self._checked(content)
        # Damaged bytes can make an unpickler raise nearly anything.
        except Exception as error:
            wrong = str(error) if isinstance(error, Refused) else f"it cannot be unpickled ({type(error).__name__})"
            raise self._error(f"{path} is damaged: {wrong}", path.parent) from error

    def _checked(self, content: object) -> Labelled:
        if not isinstance(content, dict) or not {b"data", self.label_key} <= content.keys():
            raise Refused(f"it lacks the keys 'data' and '{self.label_key.decode()}'")
        data = content[b"data"]
        if not isinstance(data, np.ndarray) or data.shape[1:] != (3072,) or not len(data):
            raise Refused("its data is not an array of bytes with 3072 columns")
        labels = _whole_numbers(content[self.label_key])
        if labels is None or labels.shape != (len(data),):
            raise Refused(f"its labels are not {len(data)} whole numbers, one for each image")
        low, high = labels.min(), labels.max()
        if low < 0 or high >= self.label_count:
            raise Refused(f"its labels go from {low} to {high}, not from 0 to {self.label_count - 1}")
        return Labelled(data.reshape(-1, 3, 32, 32), labels)

    def _error(self, wrong: str, folder: Path) -> DataError:
        return DataError(
            f"{wrong}; put a good copy of {folder.name} under {folder.parent}, "
            f"or move it away and run 'scarlet data get {self.name}'"
        )


_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
CIFAR10 = Cifar("cifar10", "cifar-10-batches-py", _BATCHES, "test_batch", b"labels", label_count=10)
CIFAR100 = Cifar("cifar100", "cifar-100-python", ("train",), "test", b"fine_labels", label_count=100)


def _whole_numbers(values: object) -> npt.NDArray[np.int64] | None:
    """The values as i64, or None if they are not whole numbers."""
    try:
        array = np.asarray(values)
    except ValueError:
        return None
    return array.astype(np.int64) if array.dtype.kind in "iu" else None
