"""All options of a run in one flat table, as config.json holds them, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from scarlet.config import NOT_IDENTIFYING, Config
from scarlet.errors import ConfigError
from scarlet.methods.registry import entry, entry_of


def flatten(method: object, config: Config) -> dict[str, object]:
    """The method's name, its own options and the shared ones."""
    assert is_dataclass(method) and not isinstance(method, type)
    own = asdict(method)
    # What the shared options leave open is as the method has it.
    shared = {name: value for name, value in asdict(config).items() if value is not None or name not in own}
    options = {"method": entry_of(method).name, **own, **shared}
    return {key: str(value) if isinstance(value, Path) else value for key, value in options.items()}


def identifying(flat: Mapping[str, object]) -> dict[str, object]:
    """The options that make a run what it is, less those that say only where and with how many processes it runs."""
    return {name: value for name, value in flat.items() if name not in NOT_IDENTIFYING}


def unflatten(table: Mapping[str, object], where: str) -> tuple[object, Config]:
    """The method's config object and the shared config; `where` names the table in errors."""
    name = table.get("method")
    if not isinstance(name, str):
        raise ConfigError(f"{where} names no method; is it the config.json of a run?")
    own = entry(name).config
    return own(**_fields(own, table, where)), Config(**_fields(Config, table, where))


def _fields(kind: type, table: Mapping[str, object], where: str) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {
        field.name: converted(field.name, hints[field.name], table[field.name], where)
        for field in fields(kind)
        if field.name in table
    }


def converted(name: str, hint: Any, value: object, where: str) -> Any:
    """A value of a file as the type of its option."""
    kinds = _kinds(hint)
    if value is None and NoneType in kinds:
        return None
    if isinstance(value, str) and Path in kinds:
        return Path(value)
    if isinstance(value, int) and not isinstance(value, bool) and float in kinds:
        return float(value)
    if value in [kind for kind in kinds if not isinstance(kind, type)]:
        return value
    if type(value) in kinds:
        return value
    if isinstance(value, list) and tuple in kinds and all(type(item) is int for item in value):
        return tuple(value)
    names = " or ".join(kind.__name__ if isinstance(kind, type) else repr(kind) for kind in kinds)
    raise ConfigError(f"{name} in {where} must be {names}, got {value!r}")


def _kinds(hint: Any) -> list[Any]:
    """The types and literal values that a type hint admits."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _kinds(get_args(hint)[0])
    if origin in (Union, UnionType):
        return [kind for part in get_args(hint) for kind in _kinds(part)]
    if origin is Literal:
        return list(get_args(hint))
    return [origin or hint]
