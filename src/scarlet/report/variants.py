"""Which runs belong together: the same method under the same options, whatever the seed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scarlet.errors import DataError
from scarlet.report.record import RunRecord

# Options that say where a run was computed; runs that are averaged may differ in them.
NOT_COMPARED = frozenset({"seed", "out", "data_dir", "device", "workers", "clients_in_memory"})

PROPER_NAMES = {
    "scarlet": "SCARLET",
    "dsfl": "DS-FL",
    "cfd": "CFD",
    "comet": "COMET",
    "selective-fd": "Selective-FD",
    "individual": "Individual",
    "centralized": "Centralized",
    "fedavg": "FedAvg",
}


@dataclass(frozen=True, slots=True)
class Variant:
    """A method under one set of options, with one run for each seed."""

    name: str
    runs: tuple[RunRecord, ...]


def group(runs: Sequence[RunRecord]) -> tuple[Variant, ...]:
    """Gather runs that differ only in their seed; a method's variants are named by what differs."""
    if not runs:
        raise DataError("no run to report; give the directory of at least one run")
    gathered: dict[str, list[RunRecord]] = {}
    for run in runs:
        gathered.setdefault(_compared(run), []).append(run)
    firsts = [members[0] for members in gathered.values()]
    for members in gathered.values():
        _check_seeds(members)
    return tuple(Variant(_name(members[0], firsts), tuple(members)) for members in gathered.values())


def text(value: object) -> str:
    """An option's value as a reader would write it."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)


def differing(configs: Sequence[Mapping[str, object]]) -> list[str]:
    """The compared options that do not have the same value everywhere."""
    options = sorted({option for config in configs for option in config} - NOT_COMPARED)
    return [option for option in options if len({_value(config, option) for config in configs}) > 1]


def _compared(run: RunRecord) -> str:
    options = {option: value for option, value in run.config.items() if option not in NOT_COMPARED}
    return json.dumps([run.method, options], sort_keys=True)


def _value(config: Mapping[str, object], option: str) -> str | None:
    return json.dumps(config[option], sort_keys=True) if option in config else None


def _name(run: RunRecord, others: Sequence[RunRecord]) -> str:
    name = PROPER_NAMES.get(run.method, run.method)
    apart = differing([other.config for other in others if other.method == run.method])
    marks = [f"{option}={text(run.config.get(option))}" for option in apart]
    return f"{name} ({', '.join(marks)})" if marks else name


def _check_seeds(runs: Sequence[RunRecord]) -> None:
    seeds = [run.seed for run in runs]
    for seed in seeds:
        if seeds.count(seed) > 1:
            raise DataError(f"{runs[0].method} with seed {seed} is given twice with the same options; give it once")
