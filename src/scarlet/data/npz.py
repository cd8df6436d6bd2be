"""A dataset of the user's own in one npz file of numpy."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

from scarlet.arrays import Array, Inputs
from scarlet.data.inputs import as_inputs, as_labels, check_numbered
from scarlet.data.private import PrivateSet
from scarlet.data.samples import Labelled, fingerprint
from scarlet.data.source import Counts, Shape, chosen
from scarlet.errors import ConfigError

MANIFEST = "manifest"  # the array of a file made by data/pack.py that describes it: JSON as bytes


@dataclass(frozen=True, slots=True)
class Npz:
    """The arrays train_x, train_y, test_x and test_y of a private dataset, or x of a public one.

    Inputs are of any shape [n, ...]. Bytes stay bytes, other whole numbers become int64, floats and truth values
    float32. The classes are 0 to the largest label. A file that `scarlet data pack` made must be as it was made.
    """

    path: Path

    def where(self, data_dir: Path) -> Path:
        return self.path

    def counts(self, data_dir: Path) -> Counts:
        return Counts(len(self._public()), 0, 0)

    def own_shape(self, data_dir: Path) -> Shape:
        return self._public().shape[1:]

    def public(self, data_dir: Path, shape: Shape, size: int | None) -> Inputs:
        inputs = self._public()
        own = inputs.shape[1:]
        if own != shape:
            remedy = "save x in that shape"
            if inputs.dtype == np.uint8 and len(own) == len(shape) == 3:
                sides = ",".join(map(str, shape))
                remedy += f", or resize it: scarlet data pack npz:{self.path} --shape {sides} --out FILE"
            raise ConfigError(
                f"{self.path}: x must have the private inputs' shape {list(shape)}, got {list(own)}; {remedy}"
            )
        return inputs[chosen(len(inputs), size)]

    def private(self, data_dir: Path) -> PrivateSet:
        arrays = read_arrays(self.path, "train_x", "train_y", "test_x", "test_y")
        train, test = self._labelled("train", arrays), self._labelled("test", arrays)
        ours, theirs = (f"{part.inputs.dtype} of shape {list(part.inputs.shape[1:])}" for part in (train, test))
        if ours != theirs:
            wrong = f"train_x and test_x must have inputs of one type and shape, got {ours} and {theirs}"
            raise ConfigError(f"{self.path}: {wrong}; save them alike")
        check_numbered((train.labels, test.labels), f"{self.path}: train_y and test_y", "number them anew")
        classes = int(max(train.labels.max(), test.labels.max())) + 1
        if classes < 2:
            wrong = "train_y and test_y must have 2 classes or more, got the label 0 only"
            raise ConfigError(f"{self.path}: {wrong}; add samples of other classes")
        return PrivateSet(f"npz:{self.path}", classes, train, test)

    def _public(self) -> Inputs:
        arrays = read_arrays(self.path, "x")
        inputs = as_inputs(arrays["x"], f"{self.path}: x")
        if MANIFEST in arrays:
            self._check(inputs, arrays[MANIFEST])
        return inputs

    def _check(self, inputs: Inputs, manifest: Array) -> None:
        try:
            packed = json.loads(manifest.tobytes())["blake2b"]
        except (ValueError, KeyError, TypeError):
            raise ConfigError(
                f"{self.path}: manifest must be JSON with the key 'blake2b'; pack the file again"
            ) from None
        if packed != (found := fingerprint(inputs)):
            wrong = f"x was changed after it was packed (its manifest says blake2b {packed}, and it has {found})"
            raise ConfigError(f"{self.path}: {wrong}; get the file again, or pack it again")

    def _labelled(self, part: str, arrays: dict[str, Array]) -> Labelled:
        x, y = f"{part}_x", f"{part}_y"
        inputs, labels = as_inputs(arrays[x], f"{self.path}: {x}"), as_labels(arrays[y], f"{self.path}: {y}")
        if len(inputs) != len(labels):
            wrong = f"{x} and {y} must have the same length, got {len(inputs)} and {len(labels)}"
            raise ConfigError(f"{self.path}: {wrong}; give every input one label")
        return Labelled(inputs, labels)


def names_in(path: Path) -> list[str]:
    """The names of the arrays in an npz file."""
    with _opened(path) as file:
        return list(file.files)


def _opened(path: Path) -> NpzFile:
    # Damaged bytes can make numpy raise nearly anything.
    try:
        file = np.load(path, allow_pickle=False)
    except Exception as error:
        wrong = f"{path} cannot be read as an npz file ({type(error).__name__})"
        raise ConfigError(f"{wrong}; write it with np.savez") from error
    if not isinstance(file, NpzFile):
        raise ConfigError(f"{path} is one array, not an npz file; write it with np.savez, naming the arrays")
    return file


def read_arrays(path: Path, *names: str) -> dict[str, Array]:
    """The arrays of these names in an npz file, and the manifest where there is one."""
    found: dict[str, Array] = {}
    with _opened(path) as file:
        for name in (*names, *({MANIFEST} & set(file.files))):
            if name not in file.files:
                there = f"it has {', '.join(file.files) or 'none'}"
                raise ConfigError(f"{path} must have the arrays {', '.join(names)}; {there}, so add {name}")
            try:
                found[name] = np.asarray(file[name])
            except Exception as error:
                reason = " ".join(str(error).split()) or type(error).__name__
                remedy = "save an array of numbers with np.savez"
                raise ConfigError(f"{path}: {name} cannot be read ({reason}); {remedy}") from error
    return found
