"""What a tracker is, and what it is handed: names with values, never nested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Protocol

from scarlet.records import RoundRecord

Numbers = Mapping[str, float]
Ending = Literal["finished", "interrupted", "failed"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the record of a run is kept."""

    run: Path  # the run's directory
    shared: Path  # directory of what several runs have in common: the comparison's, or the run's own
    resumed: bool = False  # whether an earlier part of the run may be there

    @property
    def name(self) -> str:
        return self.run.absolute().name


class Tracker(Protocol):
    """One run in one tracker."""

    def __init__(self, place: Place, options: Mapping[str, object], before: Sequence[Numbers]) -> None:
        """Open the run. `before` has rounds 1, 2, ... of a resumed run: the tracker must hold these, and no others."""

    def log(self, round: int, numbers: Numbers, accuracies: Sequence[float]) -> None:
        """Write a round; `accuracies` are those of its clients that were measured."""

    def close(self, ending: Ending, rounds: int, summary: Mapping[str, object]) -> None:
        """Write the summary of all rounds, which is empty where a run failed, and end."""


def flat(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """The same without nesting: {"failures": {"lost": 1}} is {"failures/lost": 1}."""
    found: dict[str, object] = {}
    for name, value in table.items():
        found |= flat(value, f"{prefix}{name}/") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found


def numbers(table: Mapping[str, object]) -> dict[str, float]:
    """The numbers of a flat table."""
    return {
        name: value for name, value in table.items() if isinstance(value, int | float) and not isinstance(value, bool)
    }


def numbers_of(record: RoundRecord) -> dict[str, float]:
    """Every number of a round that was measured."""
    return {name: value for name, value in numbers(flat(asdict(record))).items() if name != "round"}
