"""A grid of runs from one flat table of options: a list is an axis, anything else is the same for all runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, get_type_hints

import numpy as np

from scarlet.config import Config
from scarlet.errors import ConfigError, WrongTypeError, unknown
from scarlet.experiment.config_json import from_file
from scarlet.experiment.planned import Planned, same_twice
from scarlet.experiment.stopping import check_rules
from scarlet.methods.registry import METHODS, Entry, check_method, entry, entry_of
from scarlet.presets import apply

_NAMED_FIRST = ("seed", "method")  # in this order: what a grid has of one seed can be compared
_LONGEST = 200  # letters of a name; some files have longer names while they are written
_UNSAFE = re.compile(r"[^A-Za-z0-9.+-]+")


def grid(table: Mapping[str, object], where: str) -> list[Planned]:
    """The runs of a grid, one seed after another; `where` names the table in errors.

    An option goes to each method that has it: a method without it has one run, whatever the values of that axis.
    """
    axes, listed = _axes(table, where)
    if empty := [name for name, values in axes.items() if not values]:
        raise ConfigError(f"{empty[0]} in {where} is a list without a value; name one, or leave {empty[0]} out")
    if "method" not in axes:
        raise ConfigError(f'{where} names no method; add a line such as method = ["scarlet", "dsfl"]')
    methods = [entry(name) if isinstance(name, str) else _no_name(name, where) for name in axes["method"]]
    _check_known(axes, methods, where)
    axes.setdefault("seed", [Config().seed])
    order = [*_NAMED_FIRST, *(name for name in axes if name not in _NAMED_FIRST)]
    found: dict[str, Planned] = {}
    for values in product(*(axes[name] for name in order)):
        point = dict(zip(order, values, strict=True))
        each = _planned(point, [name for name in order if name in listed], where)
        same = found.setdefault(each.directory, each)
        if same != each:
            raise ConfigError(
                f"{where} has two runs of the name {each.directory}; use values that differ in the letters a to z, or "
                "in digits"
            )
        if len(each.directory) > _LONGEST:
            raise ConfigError(
                f"{where} has a run whose name, which is made of the values of all lists, has {len(each.directory)} "
                f"letters ({each.directory[:60]}...), and a directory may have {_LONGEST}; shorten the values"
            )
    planned = list(found.values())
    _check_different(planned, where)
    check_rules((entry_of(each.method).build(each.method), each.config) for each in planned)
    return planned


def _axes(table: Mapping[str, object], where: str) -> tuple[dict[str, list[Any]], list[str]]:
    """The values of each option, and the options that are axes."""
    if not isinstance(table, Mapping):
        raise WrongTypeError(f"{where} must be a table such as {{'method': ['scarlet', 'dsfl']}}, got {table!r}")
    found: dict[str, list[Any]] = {}
    listed = []
    for key, value in table.items():
        if not isinstance(key, str):
            raise WrongTypeError(f"{where} must name options, and {key!r} is no name")
        name = key.replace("-", "_")
        if name in found:
            raise ConfigError(f"{name} in {where} is there twice, with - and with _; leave one of them out")
        if isinstance(value, np.ndarray):
            value = value.tolist()
        if isinstance(value, list | range):
            listed.append(name)
            found[name] = [each.item() if isinstance(each, np.generic) else each for each in value]
        else:
            found[name] = [value.item() if isinstance(value, np.generic) else value]
    return found, listed


def _check_different(planned: Sequence[Planned], where: str) -> None:
    """Raise ConfigError where two runs are the same: an axis that does not affect results has one value."""
    if twice := same_twice(planned):
        raise ConfigError(
            f"{where} has the same run twice, as {' and as '.join(twice)}; leave out one, or the option that does not "
            "affect results"
        )


def _planned(point: Mapping[str, Any], listed: Sequence[str], where: str) -> Planned:
    method = entry(point["method"])
    hints = _hints(method)
    given = {
        name: from_file(f"{name} in {where}", hints[name], value) for name, value in point.items() if name in hints
    }
    preset = point.get("preset")
    if not isinstance(preset, str | None):
        raise ConfigError(f"preset in {where} must be a name or a list of names, got {preset!r}")
    config, (own,) = apply(preset, given, [method])
    check_method(method.build(own), config.asked)
    marks = [f"{name.replace('_', '-')}{_text(point[name])}" for name in listed if name in hints or name == "preset"]
    marks = [mark for mark in marks if not mark.startswith("seed")] + [f"seed{point['seed']}"]
    return Planned("-".join([method.name, *marks]), own, replace(config, workers=config.workers or 1))


def _check_known(axes: Mapping[str, object], methods: Sequence[Entry[Any]], where: str) -> None:
    known = {"method", "preset", *(name for method in methods for name in _hints(method))}
    for name in axes:
        if name not in known:
            others = [each.name for each in METHODS.values() if name in _hints(each)]
            if others:
                raise ConfigError(
                    f"{name} in {where} is for {', '.join(others)}, and the grid has none of them; leave it out"
                )
            raise unknown(f"option in {where}", name, sorted(known))


def _hints(method: Entry[Any]) -> dict[str, Any]:
    """The options of a run of that method, with their types."""
    return get_type_hints(Config, include_extras=True) | get_type_hints(method.config, include_extras=True)


def _text(value: object) -> str:
    return _UNSAFE.sub("_", str(value)).strip("_")


def _no_name(value: object, where: str) -> Entry[Any]:
    raise ConfigError(f"method in {where} must be a name or a list of names, got {value!r}")
