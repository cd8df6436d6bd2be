"""Any state as plain arrays, and back.

A state is a dataclass whose fields are arrays, numbers, bytes, other such dataclasses, or lists and dictionaries of
these, so it declares what is saved by declaring its fields. An array is saved under its path (`downlink.cache.value`).
All that is not an array is one JSON text, saved as an array of bytes under the name `fields`. The entries of a
dictionary by client have a text of their own, so that each can be saved apart from the rest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from scarlet.arrays import Array

_FIELDS = "fields"
_ARRAY = "array"  # stands in the text for an array


@dataclass(frozen=True, slots=True)
class Packed:
    """A state as arrays."""

    common: dict[str, Array] = field(default_factory=dict)
    by_client: dict[int, dict[str, Array]] = field(default_factory=dict)  # the entries of dictionaries by client

    def all(self) -> dict[str, Array]:
        return {name: array for its in (self.common, *self.by_client.values()) for name, array in its.items()}


def pack(state: object) -> Packed:
    """The arrays of a state, not copied."""
    packed = Packed()
    tree = _pack(state, "", packed.common, packed)
    packed.common[_FIELDS] = _text(tree)
    return packed


def arrays_of(state: object) -> dict[str, Array]:
    """All arrays of a state, not copied."""
    return pack(state).all()


def restore(state: object, arrays: Mapping[str, Array]) -> None:
    """Bring a new state to one that was saved; arrays are copied."""
    _unpack(type(state), state, _tree(arrays, _FIELDS), "", arrays)


def _pack(value: object, path: str, arrays: dict[str, Array], packed: Packed) -> Any:
    """What stands in the text for a value, whose arrays are added to `arrays`."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, np.ndarray):
        arrays[path] = value
        return _ARRAY
    if is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in fields(value)]
        return {name: _pack(getattr(value, name), _below(path, name), arrays, packed) for name in names}
    if isinstance(value, list | tuple):
        return [_pack(each, _below(path, at), arrays, packed) for at, each in enumerate(value)]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _pack(each, _below(path, key), arrays, packed) for key, each in value.items()}
    if isinstance(value, Mapping):
        for client, each in value.items():
            its = packed.by_client.setdefault(client, {})
            below = _below(path, client)
            its[_below(below, _FIELDS)] = _text(_pack(each, below, its, packed))
        return list(value)
    raise TypeError(f"{path} is a {type(value).__name__}, which a state cannot have")


def _unpack(hint: Any, current: object, tree: Any, path: str, arrays: Mapping[str, Array]) -> Any:
    """The value that a text stands for; a dataclass that is there already is changed, and not replaced."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if tree is None:
            return None
        (hint,) = (each for each in arguments if each is not NoneType)
        return _unpack(hint, current, tree, path, arrays)
    if tree == _ARRAY and path in arrays:
        return np.array(arrays[path])
    kind = type(current) if hint is Any else hint
    if is_dataclass(kind) and isinstance(kind, type):
        hints = _hints(kind)
        values = {
            each.name: _unpack(
                hints[each.name], getattr(current, each.name, None), tree[each.name], _below(path, each.name), arrays
            )
            for each in fields(kind)
        }
        if current is None or kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
            return kind(**values)
        for name, value in values.items():
            setattr(current, name, value)
        return current
    if hint is bytes:
        return bytes.fromhex(tree)
    if origin in (list, tuple):
        return origin(_unpack(arguments[0], None, each, _below(path, at), arrays) for at, each in enumerate(tree))
    if origin is not None and issubclass(origin, Mapping):
        if arguments[0] is str:
            return {key: _unpack(arguments[1], None, each, _below(path, key), arrays) for key, each in tree.items()}
        return {client: _unpack_entry(arguments[1], _below(path, client), arrays) for client in tree}
    return tree


def _unpack_entry(hint: Any, path: str, arrays: Mapping[str, Array]) -> Any:
    return _unpack(hint, None, _tree(arrays, _below(path, _FIELDS)), path, arrays)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _below(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def _text(tree: Any) -> Array:
    return np.frombuffer(json.dumps(tree).encode(), np.uint8)


def _tree(arrays: Mapping[str, Array], name: str) -> Any:
    return json.loads(arrays[name].tobytes())
