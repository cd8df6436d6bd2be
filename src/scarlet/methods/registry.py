"""The methods by name; a new one is one file and one line here, or one call of `register` from outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from typing import Any, Generic, TypeVar

from scarlet.core.method import Method
from scarlet.errors import ConfigError, unknown
from scarlet.methods.dsfl import DsflConfig, dsfl
from scarlet.methods.scarlet import ScarletConfig, scarlet

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Entry(Generic[C]):
    """A method's name, its options and how it is put together."""

    name: str
    title: str
    config: type[C]
    build: Callable[[C], Method]


METHODS: dict[str, Entry[Any]] = {}


def register(name: str, title: str, config: type[C], build: Callable[[C], Method]) -> None:
    """Make a method known to the command line, `compare` and `costs` under a name."""
    if not is_dataclass(config):
        raise ConfigError(f"the options of method {name!r} must be a dataclass, got {config!r}")
    METHODS[name] = Entry(name, title, config, build)


def entry(name: str) -> Entry[Any]:
    """The method of that name, or an error with the nearest name."""
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]


def entry_of(options: object) -> Entry[Any]:
    """The method that a config object belongs to."""
    for known in METHODS.values():
        if type(options) is known.config:
            return known
    raise ConfigError(f"{type(options).__name__} is not the config of a registered method; register it first")


register("scarlet", "SCARLET", ScarletConfig, scarlet)
register("dsfl", "DS-FL", DsflConfig, dsfl)
