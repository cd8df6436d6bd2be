"""Tiny ImageNet and Caltech-256 in the layout they are distributed in: a folder of JPEGs for each class."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scarlet.arrays import Inputs
from scarlet.data.images import decoded
from scarlet.data.private import PrivateSet
from scarlet.data.samples import Labelled
from scarlet.data.sites import Augment
from scarlet.data.source import Counts, Shape, chosen
from scarlet.errors import DataError

SUFFIXES = (".jpeg", ".jpg")


@dataclass(frozen=True, slots=True)
class TinyImageNet:
    """train/WNID/images/*.JPEG, and val/images with val/val_annotations.txt as the test split.

    Classes are numbered in the order of their sorted WNIDs: those of wnids.txt, or without it of the training
    folders.
    """

    folder: str = "tiny-imagenet-200"
    shape: Shape = (3, 64, 64)

    def where(self, data_dir: Path) -> Path:
        return data_dir / self.folder

    def counts(self, data_dir: Path) -> Counts:
        train = self._train_files(data_dir)
        return Counts(sum(map(len, train.values())), len(self._test_files(data_dir)), len(train))

    def own_shape(self, data_dir: Path) -> Shape:
        return self.shape

    def private(self, data_dir: Path) -> PrivateSet:
        train, test = self.train(data_dir), self.test(data_dir)
        return PrivateSet("tiny-imagenet", len(self._wnids(data_dir)), train, test, Augment(padding=8, flip=True))

    def train(self, data_dir: Path) -> Labelled:
        files = [(path, wnid) for wnid, paths in self._train_files(data_dir).items() for path in paths]
        return self._labelled(files, data_dir)

    def test(self, data_dir: Path) -> Labelled:
        return self._labelled(self._test_files(data_dir), data_dir)

    def public(self, data_dir: Path, shape: Shape, size: int | None) -> Inputs:
        paths = [path for paths in self._train_files(data_dir).values() for path in paths]
        return decoded([paths[i] for i in chosen(len(paths), size)], shape)

    def _labelled(self, files: list[tuple[Path, str]], data_dir: Path) -> Labelled:
        paths, wnids = zip(*files, strict=True)
        return Labelled(decoded(paths, self.shape), np.searchsorted(self._wnids(data_dir), wnids))

    def _wnids(self, data_dir: Path) -> list[str]:
        """The classes in the order of their labels."""
        path = self.where(data_dir) / "wnids.txt"
        if not path.exists():
            return _folders(self.where(data_dir) / "train")
        wnids = sorted({line.strip() for line in _lines(path)})
        if not wnids:
            raise DataError(f"{path} is empty; put a good copy there, or delete it to go by the folders of train")
        return wnids

    def _train_files(self, data_dir: Path) -> dict[str, list[Path]]:
        """Each class that has a training folder, and its images."""
        train = self.where(data_dir) / "train"
        wnids, folders = set(self._wnids(data_dir)), _folders(train)
        for wnid in folders:
            if wnid not in wnids:
                raise DataError(f"{train / wnid} is not a class of wnids.txt; move it away, or add it to wnids.txt")
        return {wnid: _images(train / wnid / "images") for wnid in folders}

    def _test_files(self, data_dir: Path) -> list[tuple[Path, str]]:
        """Each validation image that is there, with its class; annotations of other images are ignored."""
        val = self.where(data_dir) / "val"
        annotations = val / "val_annotations.txt"
        rows = [line.split("\t") for line in _lines(annotations)]
        wnid_of = {row[0]: row[1] for row in rows if len(row) >= 2}
        wnids = set(self._wnids(data_dir))
        files = []
        for path in _images(val / "images"):
            wnid = wnid_of.get(path.name)
            if wnid is None:
                raise DataError(f"{annotations} has no class for {path.name}; add its line, or delete the image")
            if wnid not in wnids:
                raise DataError(
                    f"{annotations} gives {path.name} the unknown class {wnid!r}; mend the line, or delete the image"
                )
            files.append((path, wnid))
        return files


@dataclass(frozen=True, slots=True)
class Caltech256:
    """NNN.name/*.jpg, in sizes that differ; the clutter of class 257 is left out."""

    folder: str = "256_ObjectCategories"

    def where(self, data_dir: Path) -> Path:
        return data_dir / self.folder

    def counts(self, data_dir: Path) -> Counts:
        files = self._files(data_dir)
        return Counts(len(files), 0, len({path.parent for path in files}))

    def own_shape(self, data_dir: Path) -> None:
        return None

    def public(self, data_dir: Path, shape: Shape, size: int | None) -> Inputs:
        paths = self._files(data_dir)
        return decoded([paths[i] for i in chosen(len(paths), size)], shape)

    def _files(self, data_dir: Path) -> list[Path]:
        root = self.where(data_dir)
        names = [name for name in _folders(root) if re.match(r"\d{3}\.", name) and not name.startswith("257.")]
        if not names:
            raise DataError(f"{root} has no class folder such as 001.ak47; {_remedy(root)}")
        return [path for name in names for path in _images(root / name)]


def _folders(parent: Path) -> list[str]:
    """The names of the folders in `parent`, sorted; none at all is an error."""
    names = [path.name for path in entries(parent) if path.is_dir()]
    if not names:
        raise DataError(f"{parent} has no class folders; {_remedy(parent)}")
    return names


def _images(folder: Path) -> list[Path]:
    """The JPEG files of a folder, sorted by name; none at all is an error."""
    paths = [path for path in entries(folder) if path.suffix.lower() in SUFFIXES]
    if not paths:
        raise DataError(f"{folder} has no JPEG images; {_remedy(folder)}, or delete the folder")
    return paths


def entries(folder: Path) -> list[Path]:
    """What is in a folder, sorted by name, without the hidden files that some systems scatter."""
    try:
        found = [path for path in folder.iterdir() if not path.name.startswith(".")]
    except OSError as error:
        wrong = f"{folder} cannot be listed ({error.strerror})"
        raise DataError(f"{wrong}; put a folder there that may be read") from error
    return sorted(found, key=lambda path: path.name)


def _lines(path: Path) -> list[str]:
    """The lines of a text file that are not blank."""
    try:
        return [line for line in path.read_text("utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read ({type(error).__name__}); {_remedy(path)}") from error


def _remedy(path: Path) -> str:
    return f"put a good copy of {path.name} there"
