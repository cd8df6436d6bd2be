"""Inputs of a model from files: images, and npz files of numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scarlet.arrays import Array, Inputs
from scarlet.data.images import MODES, decoded
from scarlet.data.inputs import as_inputs
from scarlet.errors import ConfigError, DataError

_REMEDY = "write it with np.savez(FILE, x=inputs)"


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
    if dtype != "uint8" or len(planes) != 3 or planes[0] not in MODES:
        why = "and how pixels became these is not known" if dtype == "float32" else "which are not images"
        raise ConfigError(
            f"{files[0]} must be an npz file with x: the model takes {dtype} inputs of shape {list(shape)}, {why}"
        )
    channels, height, width = planes
    return decoded([Path(file) for file in files], (channels, height, width)).reshape(-1, *shape)


def _rows(file: str, shape: tuple[int, ...], dtype: str) -> Inputs:
    """The array x of an npz file."""
    array = _array(file)
    if not array.size:
        raise ConfigError(f"x in {file} must not be empty, got shape {list(array.shape)}; leave the file out")
    inputs = as_inputs(array, f"x in {file}")
    if inputs.dtype != dtype:
        raise ConfigError(f"x in {file} must be {dtype}, as the model's inputs are, got {array.dtype}; {_REMEDY}")
    if inputs.shape[1:] != shape:
        wanted = ", ".join(["n", *map(str, shape)])
        raise ConfigError(
            f"x in {file} must have shape [{wanted}], as the model's inputs have, got {list(array.shape)}; {_REMEDY}"
        )
    return inputs


def _array(file: str) -> Array:
    # Damaged bytes can make numpy raise nearly anything.
    try:
        stored = np.load(file, allow_pickle=False)
    except Exception as error:
        raise DataError(f"{file} cannot be read as an npz file ({type(error).__name__}); {_REMEDY}") from error
    if not isinstance(stored, np.lib.npyio.NpzFile):
        raise DataError(f"{file} must be an npz file, got one array without a name; {_REMEDY}")
    with stored:
        if "x" not in stored.files:
            raise DataError(f"{file} must have the array x, got {', '.join(stored.files) or 'none'}; {_REMEDY}")
        try:
            return np.asarray(stored["x"])
        except Exception as error:
            raise DataError(f"x in {file} cannot be read ({type(error).__name__}); {_REMEDY}") from error
