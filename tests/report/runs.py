"""Made-up runs with numbers that are easy to follow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from scarlet.report import RunRecord

UP, DOWN = 300_000, 200_000


def line(number: int, **changed: float | int | None) -> dict[str, float | int | None]:
    """A round of metrics.jsonl with half a megabyte of traffic."""
    return {
        "round": number,
        "server_accuracy": 0.5,
        "client_accuracy": 0.7,
        "server_loss": 1.0,
        "uplink_bytes": UP,
        "downlink_bytes": DOWN,
        "cumulative_bytes": number * (UP + DOWN),
        "uplink_frame_bytes": 50_000,
        "downlink_frame_bytes": 10_000,
        "uplink_transport_bytes": 5_000,
        "downlink_transport_bytes": 20_000,
        "report_bytes": 20_000,
        "rejected_bytes": 5_000,
        "cache_hit_ratio": 0.25,
        "mean_teacher_entropy": 1.0,
        "seconds": 2.0,
        **changed,
    }


def run(method: str, seed: int, server: Sequence[float | None], **options: object) -> RunRecord:
    """A finished run with these server accuracies."""
    return RunRecord(
        method=method,
        seed=seed,
        config={"method": method, "seed": seed, "rounds": 60, **options},
        rounds=[line(number, server_accuracy=value) for number, value in enumerate(server, start=1)],
        summary={"rounds": len(server)},
    )


def save(record: RunRecord, directory: Path) -> Path:
    """Lay the run out as the experiment does."""
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(record.config))
    (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in record.rounds))
    if record.summary:
        (directory / "summary.json").write_text(json.dumps(record.summary))
    return directory
