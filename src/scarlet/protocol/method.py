"""A method is a value made of small parts; whatever it does not name is as in plain federated distillation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from scarlet.errors import ConfigError
from scarlet.protocol.cache import CachePolicy, NoCache
from scarlet.protocol.types import Images, Index, Labels, Values
from scarlet.rng import draw

Select = Callable[[np.random.Generator, int, int], Index]
Kept = Mapping[str, npt.NDArray[np.generic]]
Adopt = Callable[[Labels, Values], Labels]


@dataclass(frozen=True, slots=True)
class Teachers(Labels):
    """An aggregate with several teachers for each sample, and what else its making showed."""

    mean: Values  # f32[n, N]: the plain mean of the answers, which the server's model learns
    choice: Mapping[int, Index]  # for each client that answered: which teacher is its own, i64[n]


class Fold(Protocol):
    """One round's aggregate under way: answers are added as they arrive, in any order, with the same result."""

    def add(self, client: int, labels: Labels) -> None: ...

    def finish(self) -> Labels:
        """The aggregate of the samples that somebody answered."""
        ...


Aggregate = Callable[[Index, int], Fold]


class Answer(Protocol):
    """What a client sends of its soft-labels."""

    def prepare(self, private: Images, public: Images, rng: np.random.Generator) -> Kept:
        """What the client works out once, before its first answer, and keeps."""
        ...

    def __call__(self, labels: Labels, kept: Kept) -> Labels: ...


class Everything:
    """A client answers every sample that it is asked."""

    def prepare(self, private: Images, public: Images, rng: np.random.Generator) -> Kept:
        return {}

    def __call__(self, labels: Labels, kept: Kept) -> Labels:
        return labels


@dataclass(frozen=True, slots=True)
class Method:
    """What is special about one way of federated learning."""

    aggregate: Aggregate  # (I_req, N) -> the fold that makes one label, or several, of the clients' labels
    cache: CachePolicy = field(default_factory=NoCache)
    select: Select = draw  # (generator, |P|, |P^t|) -> I^t
    answer: Answer = field(default_factory=Everything)
    teach: Literal["aggregate", "model"] = "aggregate"  # what the server says it learned, or what its model then says
    teachers: int | None = None  # C, the teachers of a sample; None: its label is one distribution
    adopt: Adopt | None = None  # (teachers, the client's own soft-labels) -> one teacher for each sample
    personal: bool = False  # the server sends each client the one teacher that it chose for it
    distil_weight: float = 1.0  # lambda: of a client's distillation loss
    restart: bool = False  # clients begin each round's distillation from the initial weights
    uplink_bits: int | None = None  # b_up, of each entry of a label; 32: float32; None: as the codec has it
    downlink_bits: int | None = None  # b_down
    delta: bool = False  # a client sends only the labels that differ from those last accepted
    exchange: Literal["labels", "weights", "nothing"] = "labels"

    def __post_init__(self) -> None:
        if not (np.isfinite(self.distil_weight) and self.distil_weight > 0):
            raise ConfigError(f"distil_weight must be more than 0, got {self.distil_weight}; the paper uses 1")
        caches = not isinstance(self.cache, NoCache)
        if caches and self.exchange != "labels":
            raise ConfigError("a cache is of soft-labels, and this method sends none; leave cache_duration out")
        if caches and self.personal:
            raise ConfigError(
                "assign must be client where there is a cache, got server; a cache holds the teachers that all share: "
                "use assign client, or cache_duration 0"
            )

    @property
    def has_server_model(self) -> bool:
        """Whether the server's model learns anything."""
        return self.exchange != "nothing"

    @property
    def keeps_targets(self) -> bool:
        """Whether what the server's model learns differs from what is taught, and is therefore kept beside it."""
        return self.teach == "model" or self.teachers is not None

    def label_shape(self, classes: int) -> tuple[int, ...]:
        """The shape of what is taught of one sample."""
        return (classes,) if self.teachers is None or self.personal else (self.teachers, classes)
