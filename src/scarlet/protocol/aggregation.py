"""How the answers of a round become one label, or several, for each sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from scarlet.arrays import Index, Labels, Values


class Aggregation(Protocol):
    """One round's aggregate under way: answers are added as they arrive, in any order, with the same result."""

    def add(self, client: int, labels: Labels) -> None: ...

    def finish(self) -> Labels:
        """The aggregate of the samples that somebody answered."""


Aggregate = Callable[[Index, int], Aggregation]  # (I_req, N) -> the aggregation of a round


@dataclass(frozen=True, slots=True)
class Sharpened(Labels):
    """An aggregate, and the exponent of Enhanced ERA that sharpened it."""

    beta: float


@dataclass(frozen=True, slots=True)
class Teachers(Labels):
    """An aggregate with several teachers for each sample, and what else its making showed."""

    mean: Values  # f32[n, N]: the plain mean of the answers, which the server's model learns
    choice: Mapping[int, Index]  # for each client that answered: which teacher is its own, i64[n]
