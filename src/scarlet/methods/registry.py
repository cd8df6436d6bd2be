"""The methods by name; a new one is one file and one line here, or one call of `register` from outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

from scarlet.errors import ConfigError, unknown
from scarlet.methods.centralized import CentralizedConfig, centralized
from scarlet.methods.cfd import CfdConfig, cfd
from scarlet.methods.comet import CometConfig, comet
from scarlet.methods.dsfl import DsflConfig, dsfl
from scarlet.methods.fedavg import FedavgConfig, fedavg
from scarlet.methods.individual import IndividualConfig, individual
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.methods.selective_fd import SelectiveFdConfig, selective_fd
from scarlet.protocol.method import Method

C = TypeVar("C")
MakeMethod = Callable[[], Method]


@dataclass(frozen=True, slots=True)
class Entry(Generic[C]):
    """A method's name, its options and how it is put together."""

    name: str
    title: str
    config: type[C]
    build: Callable[[C], Method]


METHODS: dict[str, Entry[Any]] = {}


def register(name: str, title: str, config: type[C], build: Callable[[C], Method]) -> None:
    """Make a method known under a name, to the commands too if they import its module; reports show its title."""
    if not is_dataclass(config):
        raise ConfigError(f"the options of method {name!r} must be a dataclass, got {config!r}")
    for other in METHODS.values():
        if other.config is config and other.name != name:
            raise ConfigError(
                f"the options of method {name!r} must be a class of its own, and {config.__name__} is that of "
                f"{other.name!r}; derive a class from it"
            )
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


def assemble(options: object, uplink_bits: int | None, downlink_bits: int | None) -> tuple[object, MakeMethod]:
    """A method's options, and what makes the method, with the bits that the shared options ask for.

    What makes a method can be sent to another process, which the method itself cannot.
    """
    given = {"uplink_bits": uplink_bits, "downlink_bits": downlink_bits}
    bits = {name: value for name, value in given.items() if value is not None}
    known = entry_of(options)
    own = {field.name for field in fields(known.config)}
    options = replace(options, **{name: value for name, value in bits.items() if name in own})  # type: ignore[type-var]
    return options, partial(_make, known.build, options, bits)


def _make(build: Callable[[C], Method], options: C, bits: dict[str, int]) -> Method:
    return replace(build(options), **bits)  # type: ignore[arg-type]


def check_method(method: Method, asked: int) -> None:
    """Raise ConfigError for a method that needs more answers than the clients that a round asks."""
    teachers = method.downlink.teachers
    if teachers is not None and teachers > asked:
        raise ConfigError(
            f"clusters must be at most the {asked} clients that a round asks, got {teachers}; "
            "use fewer clusters, or more clients or participation"
        )


register("scarlet", "SCARLET", ScarletConfig, scarlet)
register("dsfl", "DS-FL", DsflConfig, dsfl)
register("cfd", "CFD", CfdConfig, cfd)
register("comet", "COMET", CometConfig, comet)
register("selective-fd", "Selective-FD", SelectiveFdConfig, selective_fd)
register("fedavg", "FedAvg", FedavgConfig, fedavg)
register("individual", "Individual", IndividualConfig, individual)
register("centralized", "Centralized", CentralizedConfig, centralized)
