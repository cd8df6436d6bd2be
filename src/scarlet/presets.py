"""Settings by name: the paper's experiments, and the methods as their own authors describe them.

import scarlet
from scarlet.presets import preset

config, methods = preset("cifar10-a0.05")
scarlet.compare([methods["scarlet"], methods["dsfl"]], config)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scarlet.config import Config, build
from scarlet.errors import unknown

if TYPE_CHECKING:
    from scarlet.methods.registry import Entry


@dataclass(frozen=True, slots=True)
class Preset:
    """Options that belong together; what it does not name keeps its default."""

    name: str
    about: str
    shared: Mapping[str, Any]  # fields of Config
    methods: Mapping[str, Mapping[str, Any]]  # for each method that it changes: fields of its own config


# Algorithm 2, which the paper's costs follow, for every method that can cache.
_DELETE = {"on_expiry": "delete"}


def _experiment(
    private: str,
    alpha: float,
    *,
    beta: float,
    temperature: float,
    clusters: int,
    tau_client: float,
    samples_per_client: int = 500,
    rounds: int = 3_000,
) -> Preset:
    """One of the paper's experiments (section IV-A), with the values of its last table.

    The public dataset and the model are not named: they follow from the private dataset, also where another one is
    given beside the preset.
    """
    return Preset(
        name=f"{private}-a{alpha}",
        about=f"the paper's experiment on {private} at alpha {alpha}",
        shared={
            "private": private,
            "alpha": alpha,
            "clients": 100,
            "samples_per_client": samples_per_client,
            "test_per_client": 100,
            "public_size": 10_000,
            "public_per_round": 1_000,
            "rounds": rounds,
            "local_epochs": 5,
            "distil_epochs": 5,  # this and the batch size are those of the authors' code; the paper does not say
            "lr": 0.1,
            "distil_lr": 0.1,
            "batch_size": 100,
            "codec": "reference",
        },
        methods={
            "scarlet": {"beta": beta, "cache_duration": 50, **_DELETE},
            "dsfl": {"temperature": temperature},
            "cfd": {"uplink_bits": 1, "downlink_bits": 32, **_DELETE},
            # The paper's server chooses the teachers, which it can do only without a cache.
            "comet": {"clusters": clusters, "distil_weight": 1.0, "assign": "server", **_DELETE},
            "selective-fd": {"tau_client": tau_client, "tau_server": 2.0, **_DELETE},
            "centralized": {"central_lr": 0.01},
        },
    )


_ALL = (
    _experiment("cifar10", 0.05, beta=1.5, temperature=0.1, clusters=2, tau_client=0.0625),
    _experiment("cifar10", 0.3, beta=1.0, temperature=0.1, clusters=2, tau_client=0.0625),
    _experiment("cifar100", 0.05, beta=1.25, temperature=0.01, clusters=2, tau_client=0.0625),
    _experiment(
        "tiny-imagenet",
        0.05,
        beta=1.25,
        temperature=0.05,
        clusters=3,
        tau_client=0.03125,
        samples_per_client=1_000,  # the paper shares out all 100,000 images
        rounds=1_000,
    ),
    Preset(
        name="paper",
        about="the paper's rule of expiry and the reference codec, on any data",
        shared={"codec": "reference"},
        methods={"scarlet": _DELETE, "cfd": _DELETE, "comet": _DELETE, "selective-fd": _DELETE},
    ),
    Preset(
        name="cfd-original",
        about="CFD as its authors describe it: 1 bit each way, delta coding",
        shared={},
        methods={"cfd": {"uplink_bits": 1, "downlink_bits": 1, "delta": True, "restart": True, "subset": "fixed"}},
    ),
    Preset(
        name="selective-fd-original",
        about="Selective-FD with the selector of its authors' code",
        shared={},
        methods={"selective-fd": {"tau_client": 0.25, "tau_server": 2.0, "selector": "original"}},
    ),
)
PRESETS: dict[str, Preset] = {each.name: each for each in _ALL}


def find(name: str) -> Preset:
    """The preset of that name, or an error with the nearest name."""
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return PRESETS[name]


def apply(name: str | None, given: Mapping[str, Any], methods: Sequence[Entry[Any]]) -> tuple[Config, list[Any]]:
    """The shared config and each method's own: options that are given win over the preset, and it over defaults.

    None is no preset. What it says of methods that are not named is not used.
    """
    chosen = find(name) if name is not None else Preset("", "", {}, {})
    own = [build(method.config, {**chosen.methods.get(method.name, {}), **given}) for method in methods]
    return build(Config, {**chosen.shared, **given}), own


def preset(name: str) -> tuple[Config, dict[str, Any]]:
    """The shared config of a preset, and the config object of every method by name."""
    from scarlet.methods.registry import METHODS  # loads torch, which a list of presets has no use for

    config, own = apply(name, {}, list(METHODS.values()))
    return config, dict(zip(METHODS, own, strict=True))
