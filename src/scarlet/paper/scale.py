"""How large an experiment is: on the embedded data within minutes, on CIFAR-10 within hours, or as in the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scarlet.errors import unknown


@dataclass(frozen=True, slots=True)
class Scale:
    """The options that the runs of all figures share, and the values of each axis."""

    name: str
    about: str
    base: Mapping[str, Any]
    strong: float  # alpha of clients with few classes each
    moderate: float
    alphas: Sequence[float]  # of the heat map
    near_iid: Sequence[float]
    betas: Sequence[float]
    temperatures: Sequence[float]  # of ERA, against which Enhanced ERA is compared
    durations: Sequence[int]  # of which the last is too long
    moderate_duration: int  # the longest of them that should do no harm
    others_duration: int  # D of the other methods, where they have a cache
    participation: Sequence[float]
    seeds: Sequence[int]  # of the comparison of all methods
    fewer_seeds: Sequence[int]  # of the grids
    round_seconds: float  # that a round takes on one core
    validation_rounds: int
    compared: Sequence[float]  # alphas of the comparison of all methods
    duration_alpha: float
    duration_rounds: int
    duration_seeds: Sequence[int]
    presets: Mapping[float, str] = field(default_factory=dict)  # by alpha; the first is that of all other alphas
    datasets: Mapping[str, float] = field(default_factory=dict)  # presets of further private datasets, and their alpha
    own: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict
    )  # options of a method that differ from its defaults

    def preset(self, alpha: float) -> str | None:
        """The preset that the options of a run complete."""
        return self.presets.get(alpha, next(iter(self.presets.values()), None))

    def tuned(self, alpha: float) -> float:
        """The beta that the paper uses: sharpening where clients have few classes, none otherwise."""
        return 1.5 if alpha == self.strong else 1.0


# As in the paper, whose server chooses the teachers to save their bytes; with a cache it cannot (`cache-others`).
_ASSIGNED: Mapping[str, Mapping[str, Any]] = {"comet": {"assign": "server"}}

_EMBEDDED = Scale(
    name="demo",
    about="the embedded digits, 10 clients of 200 images, 50 rounds",
    base={"samples_per_client": 200, "rounds": 50},
    own={"scarlet": {"cache_duration": 15}, **_ASSIGNED},
    strong=0.1,
    moderate=0.3,
    alphas=(0.1, 0.3, 1.0),
    near_iid=(1.0, 10.0),
    betas=(1.0, 1.5, 2.0),
    temperatures=(0.05, 0.1, 0.2, 0.3),
    durations=(0, 30, 60),
    moderate_duration=30,
    others_duration=25,
    participation=(0.2, 0.5, 1.0),
    seeds=(0, 1, 2),
    fewer_seeds=(0, 1, 2),
    round_seconds=0.6,
    validation_rounds=300,
    compared=(0.1, 0.3),
    duration_alpha=0.1,
    duration_rounds=120,
    duration_seeds=(0, 1, 2),
)
_SMALL = Scale(
    name="small",
    about="CIFAR-10 with CIFAR-100, cnn32, 10 clients of 500 images, 300 rounds",
    base={
        "private": "cifar10",
        "public": "cifar100",
        "model": "cnn32",
        "clients": 10,
        "samples_per_client": 500,
        "public_size": 2_000,
        "public_per_round": 200,
        "local_epochs": 1,
        "distil_epochs": 2,
        "rounds": 300,
        "eval_every": 5,
    },
    own=_ASSIGNED,
    strong=0.05,
    moderate=0.3,
    alphas=(0.05, 0.3, 10.0),
    near_iid=(1.0, 10.0),
    betas=(1.0, 1.5, 2.0),
    temperatures=(0.05, 0.1, 0.2, 0.3),
    durations=(0, 10, 25, 50, 100, 200),
    moderate_duration=50,
    others_duration=25,
    participation=(0.2, 0.5, 1.0),
    seeds=(0, 1, 2),
    fewer_seeds=(0, 1),
    round_seconds=1.5,
    validation_rounds=300,
    compared=(0.05, 0.3),
    duration_alpha=0.3,
    duration_rounds=600,
    duration_seeds=(0,),
)
_FULL = Scale(
    name="full",
    about="the paper's setting: 100 clients, ResNets, 3,000 rounds; for a machine with GPUs",
    base={"eval_every": 10},
    presets={0.05: "cifar10-a0.05", 0.3: "cifar10-a0.3"},
    strong=0.05,
    moderate=0.3,
    alphas=(0.05, 0.1, 0.15, 0.2, 0.25, 0.3),
    near_iid=(0.5, 1.0, 2.0, 5.0, 10.0),
    betas=(0.5, 1.0, 1.5, 2.0, 2.5, 3.0),
    temperatures=tuple(round(0.025 * step, 3) for step in range(1, 13)),
    durations=(0, 25, 50, 100, 200, 400, 800),
    moderate_duration=200,
    others_duration=25,
    participation=(0.1, 0.3, 0.5, 0.7, 0.9, 1.0),
    seeds=(0, 1, 2),
    fewer_seeds=(0, 1, 2),
    round_seconds=2_350.0,  # 750,000 images; resnet20 trains 320 a second on a core (docs/speed.md)
    validation_rounds=3_000,
    compared=(0.05, 0.3),
    duration_alpha=0.05,
    duration_rounds=3_000,
    duration_seeds=(0, 1, 2),
    datasets={"cifar100-a0.05": 0.05, "tiny-imagenet-a0.05": 0.05},
)
SCALES = {each.name: each for each in (_EMBEDDED, _SMALL, _FULL)}


def scale_of(name: str) -> Scale:
    """The scale of that name."""
    if name not in SCALES:
        raise unknown("scale", name, SCALES)
    return SCALES[name]
