"""The numbers of a run: one record a round, and what they come to in the end."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version

import numpy as np

LAST_ROUNDS = 10  # a summary is a mean over this many rounds at the end, because one round's accuracy is noisy


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """A line of metrics.jsonl. Accuracy and loss are None where they were not measured."""

    round: int
    server_accuracy: float | None
    client_accuracy: float | None
    server_loss: float | None
    uplink_bytes: int  # payload, all clients
    downlink_bytes: int
    cumulative_bytes: int  # payload of both directions since the start
    cache_hit_ratio: float
    mean_teacher_entropy: float | None
    uplink_frame_bytes: int
    downlink_frame_bytes: int
    uplink_transport_bytes: int  # what the transport added to the messages that it carried
    downlink_transport_bytes: int
    report_bytes: int  # the clients' metrics, frame included; never part of a method's bytes
    catch_up_bytes: int  # payload sent to clients that had missed something; counted in downlink_bytes
    rejected_bytes: int  # what was turned down, whole
    attempt: int  # how often the round had failed before
    answers: int  # clients whose labels were taken
    resets: int  # clients whose cache differed from the server's and was sent anew
    rejections: dict[str, int]  # messages that were turned down, by reason
    seconds: float
    failures: dict[str, int] = field(default_factory=dict)  # clients that failed, by reason; older runs have none


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run came to, round by round and in sum."""

    method: str
    config: Mapping[str, object]  # flat: the shared options and the method's own
    rounds: Sequence[RoundRecord]
    summary: Mapping[str, object]

    @property
    def interrupted(self) -> bool:
        return bool(self.summary["interrupted"])


def summarise(rounds: Sequence[RoundRecord], weights_digest: str | None) -> dict[str, object]:
    """Means of the last rounds, and totals. `weights_digest` is None for a run that was interrupted."""
    # Sums of the records, not the ledger's totals: those include a round that Ctrl-C cut short.
    last = rounds[-LAST_ROUNDS:]

    def total(of: Callable[[RoundRecord], int]) -> int:
        return sum(map(of, rounds))

    def mean(of: Callable[[RoundRecord], float | None]) -> float | None:
        values = [value for value in map(of, last) if value is not None]
        return float(np.mean(values)) if values else None

    rejections: Counter[str] = Counter()
    for record in rounds:
        rejections.update(record.rejections)
    return {
        "rounds": len(rounds),
        "interrupted": weights_digest is None,
        "server_accuracy": mean(lambda record: record.server_accuracy),
        "client_accuracy": mean(lambda record: record.client_accuracy),
        "server_loss": mean(lambda record: record.server_loss),
        "cache_hit_ratio": mean(lambda record: record.cache_hit_ratio),
        "mean_teacher_entropy": mean(lambda record: record.mean_teacher_entropy),
        "cumulative_bytes": rounds[-1].cumulative_bytes if rounds else 0,
        "uplink_bytes": total(lambda record: record.uplink_bytes),
        "downlink_bytes": total(lambda record: record.downlink_bytes),
        "catch_up_bytes": total(lambda record: record.catch_up_bytes),
        "uplink_frame_bytes": total(lambda record: record.uplink_frame_bytes),
        "downlink_frame_bytes": total(lambda record: record.downlink_frame_bytes),
        "uplink_transport_bytes": total(lambda record: record.uplink_transport_bytes),
        "downlink_transport_bytes": total(lambda record: record.downlink_transport_bytes),
        "report_bytes": total(lambda record: record.report_bytes),
        "rejected_bytes": total(lambda record: record.rejected_bytes),
        "rejections": dict(rejections),
        "failed_attempts": total(lambda record: record.attempt),
        "seconds": sum(record.seconds for record in rounds),
        "weights_digest": weights_digest,
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("scarlet-fl", "torch", "numpy")},
        },
    }
