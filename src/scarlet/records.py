"""The numbers of a run: one record for each round, and their means and totals."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

LAST_ROUNDS = 10  # final accuracy is a mean over this many evaluated rounds at the end, because one round's is noisy

_MEANS = (
    *("server_accuracy", "client_accuracy", "server_loss", "cache_hit_ratio", "mean_teacher_entropy"),
    *("private_validation_loss", "public_validation_loss"),
)
_TOTALS = (
    *("uplink_bytes", "downlink_bytes", "catch_up_bytes", "uplink_frame_bytes", "downlink_frame_bytes"),
    *("uplink_transport_bytes", "downlink_transport_bytes", "report_bytes", "rejected_bytes"),
)


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """A line of metrics.jsonl. None: not measured in this round, or by the version of scarlet that wrote the line."""

    round: int
    server_accuracy: float | None = None
    client_accuracy: float | None = None
    server_loss: float | None = None
    uplink_bytes: int = 0  # payload, all clients
    downlink_bytes: int = 0
    cumulative_bytes: int = 0  # payload of both directions since the first round
    cache_hit_ratio: float | None = None
    mean_teacher_entropy: float | None = None
    uplink_frame_bytes: int = 0
    downlink_frame_bytes: int = 0
    uplink_transport_bytes: int = 0  # what the transport added to the messages that it carried
    downlink_transport_bytes: int = 0
    report_bytes: int = 0  # the clients' metrics, frame included; never part of a method's bytes
    catch_up_bytes: int = 0  # payload sent to clients that had missed rounds; included in downlink_bytes
    rejected_bytes: int = 0  # rejected messages, frame included
    attempt: int = 0  # failed attempts at this round
    answers: int = 0  # clients whose answers were accepted
    resets: int = 0  # clients whose cache differed from the server's and was sent again
    rejections: dict[str, int] = field(default_factory=dict)  # rejected messages, by reason
    seconds: float = 0.0
    failures: dict[str, int] = field(default_factory=dict)  # clients that failed, by reason
    abstained: int = 0  # clients that answered without soft-labels, because they had lost their model
    accuracy_by_model: dict[str, float] = field(default_factory=dict)  # of clients, where they have different models
    private_validation_loss: float | None = None  # mean over the clients, on what they hold out
    public_validation_loss: float | None = None  # the server's model, on soft-labels that it does not learn
    beta: float | None = None  # exponent of Enhanced ERA that sharpened the labels of this round, if one did
    asked: int = 0  # clients that were asked; 0: not counted


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run that has ended, or as much of it as there is."""

    method: str
    title: str  # the method's name in tables and figures
    config: Mapping[str, object]  # flat: the shared options and the method's own
    records: Sequence[RoundRecord]
    summary: Mapping[str, object]  # see `summarise`; empty if the run was killed
    directory: Path | None = None  # where it was written

    @property
    def rounds(self) -> Any:
        """A table with one row a round: a pandas DataFrame, or a list of dictionaries where pandas is not installed."""
        rows = [asdict(record) for record in self.records]
        try:
            import pandas
        except ImportError:
            return rows
        return pandas.DataFrame(rows, columns=[each.name for each in fields(RoundRecord)]).set_index("round")

    @property
    def seed(self) -> object:
        return self.config["seed"]

    @property
    def interrupted(self) -> bool:
        """Whether rounds are missing that `scarlet resume` would add."""
        return bool(self.summary.get("interrupted", True))


def accuracy_by_model(records: Sequence[RoundRecord]) -> dict[str, float]:
    """The mean accuracy of the clients of each model over the last rounds in which it was measured."""
    measured = [record.accuracy_by_model for record in records if record.accuracy_by_model][-LAST_ROUNDS:]
    names = dict.fromkeys(name for each in measured for name in each)
    return {name: float(np.mean([each[name] for each in measured if name in each])) for name in names}


def summarise(rounds: Sequence[RoundRecord], weights_digest: str | None) -> dict[str, object]:
    """Means of the last evaluations, and totals of all rounds. `weights_digest` is None for an interrupted run."""

    def mean(name: str) -> float | None:
        values = [value for record in rounds if (value := getattr(record, name)) is not None][-LAST_ROUNDS:]
        return float(np.mean(values)) if values else None

    # Totals of the records, not the ledger's: those include a round that Ctrl-C cut short.
    return {
        "rounds": len(rounds),
        "interrupted": weights_digest is None,
        **{name: mean(name) for name in _MEANS},
        "cumulative_bytes": rounds[-1].cumulative_bytes if rounds else 0,
        **{name: sum(getattr(record, name) for record in rounds) for name in _TOTALS},
        "rejections": by_reason(record.rejections for record in rounds),
        "failures": by_reason(record.failures for record in rounds),
        "failed_attempts": sum(record.attempt for record in rounds),
        "abstained": sum(record.abstained for record in rounds),
        "accuracy_by_model": accuracy_by_model(rounds),
        "seconds": sum(record.seconds for record in rounds),
        "weights_digest": weights_digest,
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("scarlet-fl", "torch", "numpy")},
        },
    }


def by_reason(rounds: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Totals of counts by reason, over all rounds."""
    total: Counter[str] = Counter()
    for counts in rounds:
        total.update(counts)
    return dict(total)
