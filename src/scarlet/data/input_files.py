"""Inputs of a model from files: images, and npz files of numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scarlet.arrays import Inputs
from scarlet.data.images import decoded, is_image
from scarlet.data.inputs import as_inputs
from scarlet.data.npz import read_arrays
from scarlet.errors import ConfigError, DataError


@dataclass(frozen=True, slots=True)
class Place:
    """Where an input was read from."""

    file: str
    row: int | None  # the row of an npz file, from 0; None: the file is an image


def read_inputs(files: Sequence[str], shape: tuple[int, ...], dtype: str) -> tuple[list[Place], Inputs]:
    """The inputs in some files, for a model that takes inputs of that shape and type.

    An image is brought to the size and the channels of the model; the array x of an npz file must fit as it is.
    """
    for file in files:
        if not Path(file).is_file():
            what = "is a folder; name the files in it" if Path(file).is_dir() else "does not exist; check the path"
            raise DataError(f"FILE must be an image or an npz file, and {file} {what}")
    images = iter(_images([file for file in files if not _is_npz(file)], shape, dtype))
    places: list[Place] = []
    parts: list[Any] = []
    for file in files:
        if _is_npz(file):
            rows = _rows(file, shape, dtype)
            places += [Place(file, row) for row in range(len(rows))]
            parts.append(rows)
        else:
            places.append(Place(file, None))
            parts.append(next(images)[np.newaxis])
    return places, np.concatenate(parts)


def _is_npz(file: str) -> bool:
    return Path(file).suffix.lower() == ".npz"


def _images(files: Sequence[str], shape: tuple[int, ...], dtype: str) -> Inputs:
    """Image files as u8[n, *shape]; a shape [H, W] is grey."""
    planes = (1, *shape) if len(shape) == 2 else shape
    if not files:
        return np.empty((0, *shape), np.uint8)
    if dtype != "uint8" or not is_image(planes):
        why = "and how pixels became these is not known" if dtype == "float32" else "which are not images"
        raise ConfigError(
            f"{files[0]} must be an npz file with x: the model takes {dtype} inputs of shape {list(shape)}, {why}"
        )
    return decoded([Path(file) for file in files], planes).reshape(-1, *shape)


def _rows(file: str, shape: tuple[int, ...], dtype: str) -> Inputs:
    """The array x of an npz file."""
    array = read_arrays(Path(file), "x")["x"]
    if not array.size:
        raise ConfigError(f"{file}: x must not be empty, got shape {list(array.shape)}; leave the file out")
    inputs = as_inputs(array, f"{file}: x")
    if inputs.dtype != dtype:
        raise ConfigError(
            f"{file}: x must be {dtype}, as the model's inputs are, got {array.dtype}; save x in that type"
        )
    if inputs.shape[1:] != shape:
        wanted = ", ".join(["n", *map(str, shape)])
        raise ConfigError(
            f"{file}: x must have shape [{wanted}], as the model's inputs have, got {list(array.shape)}; save it so"
        )
    return inputs
