"""Whatever a user has, as arrays: arrays, tensors, torch Datasets; each mistake is one line."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import Any, Protocol, runtime_checkable

import numpy as np

from scarlet.arrays import Inputs, Integers
from scarlet.data.samples import Labelled, Part
from scarlet.errors import ConfigError, WrongTypeError, short


@runtime_checkable
class Dataset(Sized, Protocol):
    """A torch Dataset, or anything else with items and a length."""

    def __getitem__(self, index: int, /) -> Any: ...


def as_part(data: object, name: str) -> Part:
    """Labelled samples in any form; `name` is what errors call them, such as 'train of site 3'."""
    if isinstance(data, Part):
        return data
    if not isinstance(data, Labelled):
        inputs, labels = _columns(data, name)
        data = Labelled(as_inputs(inputs, f"inputs of {name}"), as_labels(labels, f"labels of {name}"))
    if len(data.inputs) != len(data.labels):
        raise ConfigError(
            f"{name} has {len(data.inputs)} inputs and {len(data.labels)} labels; give each input one label"
        )
    return Part(data)


def as_public(data: object, name: str = "public") -> Inputs:
    """Unlabelled samples in any form; labels that come with them are left out."""
    if _is_dataset(data):
        items = [item[0] if isinstance(item, tuple | list) else item for item in _items(data, name)]
        data = _stacked(items, f"inputs of {name}")
    elif isinstance(data, Labelled):
        data = data.inputs
    elif isinstance(data, tuple) and len(data) == 2 and np.ndim(data[1]) == 1 < np.ndim(data[0]):
        data = data[0]
    return as_inputs(data, name)


def as_inputs(value: object, name: str) -> Inputs:
    """Inputs [n, ...]: bytes stay bytes, other whole numbers become int64, and all else float32."""
    array = _array(value, name)
    if array.dtype.kind not in "biuf":
        raise WrongTypeError(f"{name} must be numbers, got {array.dtype}; turn them into numbers first")
    if array.ndim < 2:
        raise ConfigError(
            f"{name} must be an array [n, ...] of one input for each sample, got shape {list(array.shape)}; "
            "a column of single numbers is x[:, None]"
        )
    if not array.size:
        raise ConfigError(f"{name} must not be empty, got shape {list(array.shape)}; leave out who has no data")
    if array.dtype.kind in "iu":
        return array if array.dtype == np.uint8 else array.astype(np.int64, copy=False)
    array = array.astype(np.float32, copy=False)
    if not np.isfinite(array).all():
        raise ConfigError(f"{name} must be finite, got NaN or infinity; fill in or leave out what is missing")
    return array


def as_labels(value: object, name: str) -> Integers:
    """Labels i64[n]: whole numbers from 0."""
    array = _array(value, name)
    if array.dtype.kind not in "biu":
        raise WrongTypeError(
            f"{name} must be whole numbers, the class of each sample, got {array.dtype}; number the classes from 0"
        )
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ConfigError(
            f"{name} must be an array [n] of class numbers, got shape {list(array.shape)}; "
            "of one-hot labels take y.argmax(1)"
        )
    if array.size and array.min() < 0:
        raise ConfigError(f"{name} must be 0 or more, got {array.min()}; number the classes from 0")
    return array.astype(np.int64, copy=False)


def _columns(data: object, name: str) -> tuple[object, object]:
    """The inputs and the labels of a pair, or of a Dataset of pairs."""
    if isinstance(data, tuple | list):
        if len(data) != 2:
            raise WrongTypeError(
                f"{name} must be a pair (inputs, labels) or a torch Dataset, got {type(data).__name__} of {len(data)}"
            )
        return data[0], data[1]
    if not _is_dataset(data):
        raise WrongTypeError(
            f"{name} must be a pair (inputs, labels) of arrays or tensors, a torch Dataset or the path of a folder, "
            f"got {type(data).__name__}"
        )
    inputs, labels = [], []
    for item in _items(data, name):
        if not isinstance(item, tuple | list) or len(item) != 2:
            got = f"{type(item).__name__} of {len(item)}" if isinstance(item, tuple | list) else type(item).__name__
            raise WrongTypeError(f"{name} must yield pairs (input, label), got {got}; return x, y from __getitem__")
        inputs.append(item[0])
        labels.append(item[1])
    return _stacked(inputs, f"inputs of {name}"), _stacked(labels, f"labels of {name}")


def check_numbered(labels: Iterable[Integers], name: str, remedy: str) -> None:
    """Raise ConfigError where labels are codes, or begin at 1: classes that nobody has would cost bytes and weights."""
    seen = np.unique(np.concatenate([np.unique(each) for each in labels]))
    if len(seen) and (seen[0] > 0 or 2 * len(seen) < seen[-1] + 1):
        got = f"{len(seen)} classes from {seen[0]} to {seen[-1]}"
        raise ConfigError(f"{name} must be numbered from 0, got {got}; {remedy}")


def _is_dataset(data: object) -> bool:
    """An array has items and a length, too; a pair is a tuple."""
    return (
        isinstance(data, Dataset)
        and not hasattr(data, "__array__")
        and not hasattr(data, "toarray")
        and not isinstance(data, tuple | list | str | dict)
    )


def _items(data: Any, name: str) -> list[Any]:
    """All items of a Dataset, in their order."""
    if not len(data):
        raise ConfigError(f"{name} must not be empty, got a {type(data).__name__} of length 0")
    try:
        return [_values(data[at]) for at in range(len(data))]
    except Exception as error:  # a user's Dataset may raise anything
        raise ConfigError(f"{name} cannot be read: its {type(data).__name__} raised {short(error)}") from error


def _values(item: Any) -> Any:
    """An item of a Dataset, its parts as arrays."""
    return type(item)(map(_value, item)) if type(item) in (tuple, list) else _value(item)


def _value(value: Any) -> Any:
    """A part of an item as an array: a Pillow image becomes [C, H, W]."""
    if hasattr(value, "getbands"):
        if value.mode in ("1", "P", "PA"):  # whose numbers are no shades
            value = value.convert("L" if value.mode == "1" else "RGB")
        pixels = np.asarray(value)
        return pixels[np.newaxis] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return _on_cpu(value)


def _stacked(values: list[Any], name: str) -> Any:
    shapes = {np.shape(value) for value in values}
    if len(shapes) > 1:
        one, other = sorted(map(list, shapes))[:2]
        raise ConfigError(f"{name} must all have one shape, got {one} and {other}; bring them to one size")
    return np.stack([np.asarray(value) for value in values])


def _array(value: Any, name: str) -> np.ndarray[Any, Any]:
    if hasattr(value, "toarray"):
        raise WrongTypeError(f"{name} must be dense, got {type(value).__name__}; use x.toarray()")
    try:
        array = np.asarray(_on_cpu(value))
    except Exception as error:  # lists of unequal lengths, objects that only look like arrays
        raise WrongTypeError(
            f"{name} must be an array or a tensor, got {type(value).__name__} ({short(error)})"
        ) from None
    # torch wants arrays that it could write to, and none that is read backwards.
    return array if array.flags.writeable and all(step >= 0 for step in array.strides) else array.copy()


def _on_cpu(value: Any) -> Any:
    """A tensor's values, wherever it is; anything else is returned as it is."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value
