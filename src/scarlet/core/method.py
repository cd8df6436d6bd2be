"""A method is a value made of small parts; whatever it does not name is as in plain federated distillation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from scarlet.core.cache import CachePolicy, NoCache
from scarlet.core.rng import draw
from scarlet.core.types import Index, Labels

Select = Callable[[np.random.Generator, int, int], Index]


class Fold(Protocol):
    """One round's aggregate under way: answers are added as they arrive, in any order, with the same result."""

    def add(self, labels: Labels) -> None: ...

    def finish(self) -> Labels:
        """The aggregate of the samples that somebody answered."""
        ...


Aggregate = Callable[[Index, int], Fold]


@dataclass(frozen=True, slots=True)
class Method:
    """What is special about one way of federated distillation."""

    aggregate: Aggregate  # (I_req, N) -> the fold that makes one label of the clients' labels
    cache: CachePolicy = field(default_factory=NoCache)
    select: Select = draw  # (generator, |P|, |P^t|) -> I^t
