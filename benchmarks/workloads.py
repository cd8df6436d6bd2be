"""The workloads that implementations are timed on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from scarlet.config import Config
from scarlet.errors import unknown
from scarlet.training.engines.names import EngineName

SERVER, OVERHEAD = "server", "overhead"
WARM_UP = 1  # unmeasured rounds at the start of each run; in the first, there is nothing to distil yet


@dataclass(frozen=True, slots=True)
class Workload:
    """A federation whose rounds are timed."""

    name: str
    about: str
    config: Config

    @property
    def needs_files(self) -> bool:
        """Whether its datasets are read from --data-dir."""
        return self.config.private != "mnist5k"

    def under(self, engine: EngineName) -> Workload:
        """The same workload under another engine, whose name is added to its own."""
        return replace(self, name=f"{self.name}, {engine}", config=replace(self.config, engine=engine))

    def at(self, data_dir: Path | None, rounds: int) -> Config:
        """The config of a run with this many measured rounds."""
        return replace(self.config, data_dir=data_dir, rounds=WARM_UP + rounds)


_COMMON = Config(workers=2, eval_every=1, checkpoint_every=1)
_CIFAR = replace(_COMMON, private="cifar10", public="cifar100", batch_size=50)

TRAINING = (
    Workload(
        "resnet20",
        "resnet20, CIFAR-10/100, 4 clients x 500, 1,000 of 10,000 public a round, 1 + 1 epochs, batch 50",
        replace(
            _CIFAR,
            model="resnet20",
            clients=4,
            samples_per_client=500,
            public_size=10_000,
            public_per_round=1_000,
            local_epochs=1,
            distil_epochs=1,
        ),
    ),
    Workload(
        "cnn32",
        "cnn32, CIFAR-10/100, 20 clients x 100, 200 of 2,000 public a round, 5 + 5 epochs, batch 50",
        replace(
            _CIFAR,
            model="cnn32",
            clients=20,
            samples_per_client=100,
            public_size=2_000,
            public_per_round=200,
            local_epochs=5,
            distil_epochs=5,
        ),
    ),
    Workload(
        "embedded", "the embedded default: cnn, 10 clients x 400, 180 of 1,797 public a round, 2 + 2 epochs", _COMMON
    ),
)
NAMES = (*(workload.name for workload in TRAINING), SERVER, OVERHEAD)


def chosen(text: str | None) -> tuple[str, ...]:
    """The workloads in a list such as resnet20,server; None: all."""
    if text is None:
        return NAMES
    names = tuple(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in NAMES:
            raise unknown("work", name, NAMES)
    return names
