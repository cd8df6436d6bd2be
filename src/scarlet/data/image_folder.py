"""A dataset of the user's own in folders of images, also one that is split among clients already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np

from scarlet.arrays import Index
from scarlet.data.folders import entries
from scarlet.data.images import Pixels, decoded, own_shapes
from scarlet.data.private import PrivateSet, SplitSet
from scarlet.data.samples import Labelled
from scarlet.data.sites import Site
from scarlet.data.source import Counts, Shape, chosen
from scarlet.errors import ConfigError
from scarlet.rng import draw, stream

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
HELD_OUT = 5  # one in so many images of a class is for testing, where the folder does not say which are
LAYOUTS = "class/image, train/class/image with test/class/image, or one of these in a folder for each client"
ADD_IMAGES = f"add images ({' '.join(SUFFIXES)})"

K = TypeVar("K")
Classes: TypeAlias = dict[str, list[Path]]  # each class folder's images


class Parts(NamedTuple):
    """The image files of a dataset, or of one client."""

    train: Classes
    test: Classes  # empty: there is nothing to test on


class Level(NamedTuple):
    """What is directly in a folder."""

    folders: list[Path]
    images: list[Path]


@dataclass(frozen=True, slots=True)
class ImageFolder:
    """Private: class/image, or train/class/image and test/class/image; or either in a folder for each client.

    Of class/image, a fifth of each class (rounded down, but one at least of two or more) is held out for testing.
    The draw depends on nothing but the numbers of images in the classes, in the order of the classes' names, and begins
    anew for each client. Classes are numbered in the order of the names of all class folders of all clients. Images are
    grey if all of them are, else RGB.

    Public: all images below the folder, in the order of their paths.
    """

    path: Path
    image_size: int | None = None  # private images become squares of this side; None: they have one size already

    def where(self, data_dir: Path) -> Path:
        return self.path

    def counts(self, data_dir: Path) -> Counts:
        files = self._files()
        return Counts(len(files), 0, len({file.parent for file in files}))

    def own_shape(self, data_dir: Path) -> Shape | None:
        shapes = own_shapes(self._files())
        return (_channels(shapes), *shapes[0][1:]) if len({shape[1:] for shape in shapes}) == 1 else None

    def public(self, data_dir: Path, shape: Shape, size: int | None) -> Pixels:
        files = self._files()
        return decoded([files[i] for i in chosen(len(files), size)], shape)

    def private(self, data_dir: Path) -> PrivateSet | SplitSet:
        whole = _parts(self.path)
        each = [] if whole is not None else _folders(self.path)
        clients = {"": whole} if whole is not None else {folder.name: client_parts(folder) for folder in each}
        if whole is not None and not whole.test:
            wrong = f"{self.path} has nothing to test on: no folder test, and no class of two images or more"
            raise ConfigError(f"{wrong}; add test/class/image, or images")
        found = {(client, at): part for client, parts in clients.items() for at, part in enumerate(parts) if part}
        names, read = read_classes(found, self.image_size, str(self.path))
        name = f"folder:{self.path}"
        if whole is not None:
            return PrivateSet(name, len(names), read["", 0], read["", 1], class_names=names)
        sites = tuple(Site(read[client, 0], read.get((client, 1)), name=client) for client in clients)
        return SplitSet(name, len(names), sites, names)

    def _files(self) -> list[Path]:
        """All images below the folder, in the order of their paths."""
        files = list(_below(self.path))
        if not files:
            raise ConfigError(f"{self.path} holds no images; {ADD_IMAGES}")
        return files


def read_classes(
    parts: Mapping[K, Classes], image_size: int | None, where: str, names: Sequence[str] | None = None
) -> tuple[tuple[str, ...], dict[K, Labelled]]:
    """The names of all classes, by which they are numbered, and the images of each part; `where` is for errors.

    The classes are those that the parts have, unless they are named.
    """
    names = tuple(sorted(set(chain(*parts.values())))) if names is None else tuple(names)
    if len(names) < 2:
        raise ConfigError(f"{where} must have 2 classes or more, got only {names[0]!r}; add a class folder")
    shape = _shape([file for part in parts.values() for files in part.values() for file in files], image_size)
    read = {}
    for key, part in parts.items():
        labels = np.repeat([names.index(name) for name in part], [len(files) for files in part.values()])
        read[key] = Labelled(decoded(list(chain(*part.values())), shape), labels.astype(np.int64))
    return names, read


def _shape(files: Sequence[Path], image_size: int | None) -> Shape:
    shapes = own_shapes(files)
    if image_size is not None:
        return _channels(shapes), image_size, image_size
    _, height, width = shapes[0]
    for file, (_, its_height, its_width) in zip(files, shapes, strict=True):
        if (its_height, its_width) != (height, width):
            sizes = f"{files[0]} has {width} x {height} pixels and {file} {its_width} x {its_height}"
            raise ConfigError(f"private images must have one size, but {sizes}; resize them all with --image-size")
    return _channels(shapes), height, width


def _channels(shapes: Sequence[Shape]) -> int:
    """1 only if all images are grey."""
    return max(shape[0] for shape in shapes)


def held_out(sizes: Sequence[int]) -> list[Index]:
    """For each of some classes of `sizes` images, which images are for testing, ascending."""
    rng = stream(0, "data", purpose="held-out images")
    return [draw(rng, size, max(size // HELD_OUT, min(size - 1, 1))) for size in sizes]


def _parts(folder: Path) -> Parts | None:
    """The files of a dataset, or of one client; None where it must be a folder of clients."""
    named = {each.name: each for each in _folders(folder)}
    split = named.keys() & {"train", "test"}
    if split != named.keys() and any(_level(each).images for each in named.values()):
        classes = class_folders(folder)
        held = dict(zip(classes, held_out([len(files) for files in classes.values()]), strict=True))
        train = {name: [file for i, file in enumerate(files) if i not in held[name]] for name, files in classes.items()}
        test = {name: [files[i] for i in held[name]] for name, files in classes.items() if len(held[name])}
        return Parts(train, test)
    if not split:
        return None
    if split != named.keys() or "train" not in named:
        wrong = f"{folder} must hold train and test, or train alone, got {', '.join(named)}"
        raise ConfigError(f"{wrong}; rename or move what does not belong there")
    return Parts(class_folders(named["train"]), class_folders(named["test"]) if "test" in named else {})


def client_parts(folder: Path) -> Parts:
    """The image files of one client."""
    parts = _parts(folder)
    if parts is None:
        raise ConfigError(f"{folder} has no images where they are expected; use the layout {LAYOUTS}")
    return parts


def class_folders(folder: Path) -> Classes:
    """The images of each class folder; a class without images is an error."""
    classes = {each.name: _level(each).images for each in _folders(folder)}
    for name, files in classes.items():
        if not files:
            raise ConfigError(f"the class folder {folder / name} holds no images; {ADD_IMAGES}, or delete the folder")
    return classes


def _folders(folder: Path) -> list[Path]:
    """The folders in a folder; none is an error."""
    level = _level(folder)
    if not level.folders:
        there = f"the image {level.images[0].name}" if level.images else "neither folders nor images"
        raise ConfigError(f"{folder} must hold class folders, and holds {there}; use the layout {LAYOUTS}")
    return level.folders


def _level(folder: Path) -> Level:
    """The folders and the images in a folder, which are never both."""
    found = entries(folder)
    level = Level([path for path in found if path.is_dir()], [path for path in found if _is_image(path)])
    if level.folders and level.images:
        mixture = f"the image {level.images[0].name} and the folder {level.folders[0].name}"
        raise ConfigError(f"{folder} must hold images or folders, got both: {mixture}; move one kind away")
    return level


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and path.is_file()


def _below(folder: Path) -> Iterator[Path]:
    for path in entries(folder):
        if path.is_dir():
            yield from _below(path)
        elif _is_image(path):
            yield path
