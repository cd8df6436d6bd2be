"""All options of a run in one flat table, as config.json holds them, and back; values from files and from text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from scarlet.config import NOT_IDENTIFYING, Config, check_choice
from scarlet.errors import ConfigError
from scarlet.methods.registry import entry, entry_of

_KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
    tuple: "whole numbers with commas between, such as 0,1,2",
}


def flatten(method: object, config: Config) -> dict[str, object]:
    """The method's name, its own options and the shared ones."""
    assert is_dataclass(method) and not isinstance(method, type)
    own, name = asdict(method), entry_of(method).name
    if taken := own.keys() & {each.name for each in fields(config)} - {"uplink_bits", "downlink_bits"}:
        raise ConfigError(
            f"{min(taken)} is an option of every run, and of method {name!r} too; rename the method's own"
        )
    # A shared option that is left open has the method's value.
    shared = {name: value for name, value in asdict(config).items() if value is not None or name not in own}
    options = {"method": name, **own, **shared}
    return {key: str(value) if isinstance(value, Path) else value for key, value in options.items()}


def described(method: object) -> dict[str, object]:
    """A method's name and its own options."""
    assert is_dataclass(method) and not isinstance(method, type)
    return {"method": entry_of(method).name, **asdict(method)}


def identifying(flat: Mapping[str, object]) -> dict[str, object]:
    """The options that make a run what it is, without those that say only where it is computed."""
    return {name: value for name, value in flat.items() if name not in NOT_IDENTIFYING}


def unflatten(table: Mapping[str, object], where: str) -> tuple[object, Config]:
    """The method's config object and the shared config; `where` names the table in errors."""
    name = table.get("method")
    if not isinstance(name, str):
        raise ConfigError(f"{where} names no method; is it the config.json of a run?")
    if given := table.get("given"):
        names = ", ".join(given) if isinstance(given, dict) else given
        raise ConfigError(f"{where} is of a run that was given its {names} from Python; go on with it from Python")
    return _read(entry(name).config, table, where), _read(Config, table, where)


def _read(kind: type, table: Mapping[str, object], where: str) -> Any:
    hints = get_type_hints(kind, include_extras=True)
    given = {name: from_file(f"{name} in {where}", hint, table[name]) for name, hint in hints.items() if name in table}
    return kind(**given)


def from_file(name: str, hint: Any, value: object) -> Any:
    """A value of a TOML or JSON file, as the type of its option; `name` is what errors call the option."""
    kinds, choices = kinds_of(hint), choices_of(hint)
    if value is None and NoneType in kinds:
        return None
    if choices:
        check_choice(name, value, choices)
        return value
    if value in words_of(hint):
        return value
    if isinstance(value, str) and (Path in kinds or tuple in kinds):
        return from_text(name, hint, value)
    if type(value) is int and float in kinds:
        with suppress(OverflowError):
            return float(value)
    if isinstance(value, list) and tuple in kinds and all(_is_number(item, element_of(hint)) for item in value):
        return tuple(value)
    if type(value) in kinds or (isinstance(value, Path) and Path in kinds):
        return value
    raise _wrong(name, hint, value)


def from_text(name: str, hint: Any, text: str) -> Any:
    """A value of the command line, as the type of its option: a type of _KINDS, a Literal, or a union of them."""
    kinds, choices = kinds_of(hint), choices_of(hint)
    if text == "None" and NoneType in kinds:
        return None
    if choices:
        check_choice(name, text, choices)
        return text
    if text in words_of(hint):
        return text
    with suppress(ValueError):
        for kind in (int, float, Path, str):
            if kind in kinds:
                return kind(text)
        if tuple in kinds:
            return tuple(element_of(hint)(part) for part in text.split(","))
    raise _wrong(name, hint, text)


def element_of(hint: Any) -> type:
    """What a tuple of that type holds: int or float."""
    of: type = next(get_args(part)[0] for part in _parts(hint) if get_origin(part) is tuple)
    return of


def _is_number(value: object, of: type) -> bool:
    return type(value) is int or (of is float and type(value) is float)


def choices_of(hint: Any) -> tuple[str, ...]:
    """The values that a type hint lists, if it admits no others but None."""
    return words_of(hint) if {get_origin(part) for part in _parts(hint) if part is not NoneType} == {Literal} else ()


def words_of(hint: Any) -> tuple[str, ...]:
    """The words that a type hint admits in place of a value of its type."""
    return tuple(word for part in _parts(hint) if get_origin(part) is Literal for word in get_args(part))


def kinds_of(hint: Any) -> list[type]:
    """The types that a type hint admits."""
    return [get_origin(part) or part for part in _parts(hint)]


def _parts(hint: Any) -> Sequence[Any]:
    """The members of a union, or the type itself."""
    plain = _plain(hint)
    return get_args(plain) if get_origin(plain) in (Union, UnionType) else [plain]


def _plain(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _wrong(name: str, hint: Any, value: object) -> ConfigError:
    expected = " or ".join([*(_KINDS[kind] for kind in kinds_of(hint) if kind in _KINDS), *words_of(hint)])
    if tuple in kinds_of(hint) and element_of(hint) is float:
        expected = "numbers with commas between, such as 0.3,0.7"
    return ConfigError(f"{name} must be {expected}, got {value!r}")
