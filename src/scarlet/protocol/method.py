"""A method is a value made of small parts; whatever it does not name is as in plain federated distillation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from scarlet.arrays import Array, Index, Inputs, Labels
from scarlet.errors import ConfigError
from scarlet.protocol.aggregation import Aggregate
from scarlet.protocol.downlink.shared import Shared
from scarlet.protocol.slots import Downlink, Uplink
from scarlet.protocol.stamps import Select
from scarlet.protocol.uplink.labels import SoftLabels
from scarlet.rng import draw

Prepared = Mapping[str, Array]


class Filter(Protocol):
    """Which of its soft-labels a client sends."""

    def prepare(self, private: Inputs, public: Inputs, rng: np.random.Generator) -> Prepared:
        """What the client works out once, before its first answer, and keeps."""

    def __call__(self, labels: Labels, prepared: Prepared) -> Labels: ...


class Everything:
    """A client answers every sample that is requested."""

    def prepare(self, private: Inputs, public: Inputs, rng: np.random.Generator) -> Prepared:
        return {}

    def __call__(self, labels: Labels, prepared: Prepared) -> Labels:
        return labels


def nothing(rng: np.random.Generator, population: int, size: int) -> Index:
    """A round is about no public sample."""
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Method:
    """What is special about one way of federated learning."""

    aggregate: Aggregate  # (I_req, N) -> the aggregation that makes one label, or several, of the clients' labels
    downlink: Downlink = field(default_factory=Shared)  # how clients are taught
    uplink: Uplink = field(default_factory=SoftLabels)  # how they answer
    select: Select = draw  # (generator, |P|, |P^t|) -> I^t
    filter: Filter = field(default_factory=Everything)  # which of its soft-labels a client sends
    distil_weight: float = 1.0  # lambda: of a client's distillation loss
    restart: bool = False  # clients begin each round's distillation from the initial weights
    uplink_bits: int | None = None  # b_up, of each entry of a label; 32: float32; None: as the codec has it
    downlink_bits: int | None = None  # b_down
    server_learns: bool = True  # whether the server has a model
    pooled: bool = False  # one client holds everybody's data
    local_lr: float | None = None  # learning rate of local training; None: the run's

    def __post_init__(self) -> None:
        if not (np.isfinite(self.distil_weight) and self.distil_weight > 0):
            raise ConfigError(f"distil_weight must be more than 0, got {self.distil_weight}; the paper uses 1")
        if self.downlink.policy.caches and not self.uses_public:
            raise ConfigError("a cache is of soft-labels, and this method sends none; leave cache_duration out")

    @property
    def uses_public(self) -> bool:
        """Whether soft-labels of public samples are exchanged."""
        return self.select is not nothing
