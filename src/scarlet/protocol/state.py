"""Any state as plain arrays, and back.

A state is a dataclass whose fields are arrays, bytes, numbers, texts, other such dataclasses, or lists, tuples and
dictionaries of these. Saving and restoring follow the declared types, so what is declared is saved. An array is saved
under its path (`downlink.cache.value`), and so are bytes; all else is one JSON text, saved as an array of bytes.

A dictionary whose keys are numbers is one by client: each entry is saved apart from the rest, with a text of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from itertools import repeat
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints
from urllib.parse import quote

import numpy as np

from scarlet.arrays import Array

_TEXT = "(text)"  # the name of a text, which no field has and no quoted key
_ELSEWHERE = 0  # stands in a text for what is saved under its path
_PLAIN = (NoneType, bool, int, float, str)  # what a text can have

ByClient = dict[int, dict[str, Array]]


@dataclass(frozen=True, slots=True)
class Packed:
    """A state as arrays."""

    common: dict[str, Array] = field(default_factory=dict)
    by_client: ByClient = field(default_factory=dict)  # the entries of dictionaries by client

    def all(self) -> dict[str, Array]:
        return {name: array for its in (self.common, *self.by_client.values()) for name, array in its.items()}


def pack(state: object) -> Packed:
    """The arrays of a state, not copied; a TypeError names the path of what cannot be saved."""
    packed = Packed()
    packed.common[_TEXT] = _text(_pack(Any, state, "", packed.common, packed.by_client))
    return packed


def arrays_of(state: object) -> dict[str, Array]:
    """All arrays of a state, not copied."""
    return pack(state).all()


def restore(state: object, arrays: Mapping[str, Array]) -> None:
    """Bring a new state to one that was saved; arrays are copied.

    A dataclass that is not frozen is changed and not replaced, because a slot refers to its state.
    """
    _unpack(Any, state, _tree(arrays[_TEXT]), "", arrays)


def _pack(hint: Any, value: Any, path: str, arrays: dict[str, Array], by_client: ByClient | None) -> Any:
    """What stands in the text for a value, whose arrays are added to `arrays`.

    `by_client` takes the entries of dictionaries by client; None: the value belongs to such an entry.
    """
    kind, of = _kind(hint, value)
    if not _fits(value, kind, of) or (hint is Any and not _is_changeable(kind)):
        raise TypeError(
            f"{path or 'the state'} is a {type(value).__name__}, declared as {hint}; a state has arrays, bytes, "
            "numbers, texts, dataclasses with slots, and typed lists, tuples and dictionaries of these"
        )
    if kind in _PLAIN:
        return value
    if kind in (bytes, np.ndarray):
        arrays[path] = np.frombuffer(value, np.uint8) if kind is bytes else value
        return _ELSEWHERE
    if _is_dataclass(kind):
        return {
            name: _pack(its, getattr(value, name), _below(path, name), arrays, by_client)
            for name, its in _fields(kind).items()
        }
    if kind in (list, tuple):
        parts = zip(value, _elements(of), strict=False)
        return [_pack(its, part, _below(path, at), arrays, by_client) for at, (part, its) in enumerate(parts)]
    if of[0] is str or by_client is None:
        return {key: _pack(of[1], part, _below(path, _quoted(key)), arrays, by_client) for key, part in value.items()}
    for client, part in value.items():
        own, below = by_client.setdefault(client, {}), _below(path, client)
        own[f"{below}.{_TEXT}"] = _text(_pack(of[1], part, below, own, None))
    return list(value)


def _unpack(hint: Any, current: Any, tree: Any, path: str, arrays: Mapping[str, Array]) -> Any:
    """The value for which `tree` stands in the text; `current` is the one that it replaces, if any."""
    kind, of = _kind(type(current) if hint is Any else hint, tree)
    if kind in _PLAIN:
        return tree
    if kind in (bytes, np.ndarray):
        return arrays[path].tobytes() if kind is bytes else np.array(arrays[path])
    if _is_dataclass(kind):
        values = {
            name: _unpack(its, getattr(current, name, None), tree[name], _below(path, name), arrays)
            for name, its in _fields(kind).items()
        }
        if current is None or not _is_changeable(kind):
            return kind(**values)
        for name, value in values.items():
            setattr(current, name, value)
        return current
    if kind in (list, tuple):
        parts = zip(tree, _elements(of), strict=False)
        return kind(_unpack(its, None, part, _below(path, at), arrays) for at, (part, its) in enumerate(parts))
    if isinstance(tree, dict):
        return {
            of[0](key): _unpack(of[1], None, part, _below(path, _quoted(key)), arrays) for key, part in tree.items()
        }
    texts = {client: _tree(arrays[f"{_below(path, client)}.{_TEXT}"]) for client in tree}
    return {client: _unpack(of[1], None, text, _below(path, client), arrays) for client, text in texts.items()}


def _kind(hint: Any, value: object) -> tuple[Any, tuple[Any, ...]]:
    """The type that is declared for a value, and of what it is; for `X | None` the value decides."""
    if hint is Any:
        return type(value), ()
    kind, of, optional = _declared(hint)
    return (NoneType, ()) if optional and value is None else (kind, of)


@cache
def _declared(hint: Any) -> tuple[Any, tuple[Any, ...], bool]:
    """A declared type, of what it is, and whether None is declared beside it."""
    kind, of = get_origin(hint) or hint, get_args(hint)
    if kind not in (Union, UnionType):
        return kind, of, False
    rest = [each for each in of if each is not NoneType]
    return (*_declared(rest[0])[:2], len(rest) < len(of)) if len(rest) == 1 else (hint, (), False)


def _fits(value: Any, kind: Any, of: tuple[Any, ...]) -> bool:
    """Whether a value is what was declared, and can be saved."""
    if kind is float:
        return type(value) in (float, int)
    if kind is np.ndarray:
        return isinstance(value, np.ndarray) and not value.dtype.hasobject
    if _is_dataclass(kind):
        return type(value) is kind and not hasattr(value, "__dict__")
    if kind in (list, tuple):
        return type(value) is kind and of != () and (len(of) == len(value) or kind is list or of[-1] is ...)
    if isinstance(kind, type) and issubclass(kind, Mapping):
        return isinstance(value, Mapping) and of[:1] in ((str,), (int,)) and all(type(key) is of[0] for key in value)
    return kind in (*_PLAIN, bytes) and type(value) is kind


def _is_dataclass(kind: Any) -> bool:
    return is_dataclass(kind)


def _is_changeable(kind: Any) -> bool:
    return _is_dataclass(kind) and not kind.__dataclass_params__.frozen


@cache
def _fields(kind: type) -> dict[str, Any]:
    """The declared type of each field."""
    hints = get_type_hints(kind)
    return {each.name: hints[each.name] for each in fields(kind)}


def _elements(of: tuple[Any, ...]) -> Iterable[Any]:
    """The types of a list's or tuple's elements; `list[X]` and `tuple[X, ...]` have as many as there are."""
    return of if len(of) > 1 and of[-1] is not ... else repeat(of[0])


def _below(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def _quoted(key: object) -> str:
    """A key as a part of a path, without a dot or a bracket."""
    return quote(str(key), "", errors="surrogatepass").replace(".", "%2E")


def _text(tree: Any) -> Array:
    return np.frombuffer(json.dumps(tree).encode(), np.uint8)


def _tree(text: Array) -> Any:
    return json.loads(text.tobytes())
