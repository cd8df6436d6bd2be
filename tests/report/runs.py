"""Made-up runs with numbers that are easy to follow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from scarlet.data.partition_figure import partition_figure
from scarlet.methods.registry import METHODS
from scarlet.records import RoundRecord, RunResult

UP, DOWN = 300_000, 200_000


def line(number: int, **changed: Any) -> RoundRecord:
    """A round with half a megabyte of traffic."""
    numbers: dict[str, Any] = {
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
    }
    return RoundRecord(number, **(numbers | changed))


def run(method: str, seed: int, server: Sequence[float | None], **options: object) -> RunResult:
    """A finished run with these server accuracies."""
    return RunResult(
        method=method,
        title=METHODS[method].title if method in METHODS else method,
        config={"method": method, "seed": seed, "rounds": 60, **options},
        records=[line(number, server_accuracy=value) for number, value in enumerate(server, start=1)],
        summary={"rounds": len(server), "interrupted": False},
    )


def save(result: RunResult, directory: Path) -> Path:
    """Lay the run out as the experiment does."""
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(result.config))
    (directory / "metrics.jsonl").write_text("".join(json.dumps(asdict(record)) + "\n" for record in result.records))
    if result.summary:
        summary = {"method": result.method, "title": result.title, **result.summary}
        (directory / "summary.json").write_text(json.dumps(summary))
    return directory


def grid(directory: Path) -> list[RunResult]:
    """12 finished runs below a directory: SCARLET with two betas and DS-FL, two alphas, two seeds.

    In the end SCARLET has a server accuracy of 0.5 + 0.1 beta + 0.1 alpha + 0.01 seed and DS-FL 0.4 + 0.1 alpha + 0.01
    seed; the first round has half of that.
    """
    found: list[RunResult] = []
    for alpha in (0.1, 1.0):
        for beta in (1.0, 2.0, None):
            for seed in (0, 1):
                options = {"alpha": alpha} if beta is None else {"alpha": alpha, "beta": beta}
                last = 0.5 + 0.1 * (beta or -1) + 0.1 * alpha + 0.01 * seed
                made = run("dsfl" if beta is None else "scarlet", seed, [last / 2, *[last] * 11], **options)
                name = f"{made.method}-{len(found)}"
                found.append(replace(made, directory=save(made, directory / name)))
    return found


def save_clients(directory: Path, accuracies: Sequence[float], samples: Sequence[int] = ()) -> None:
    """Add the clients' accuracies to the directory of a run, and the number of samples that each has."""
    rows = [f"{round},{k},site {k},cnn,{each * round},1" for round in (0, 1) for k, each in enumerate(accuracies)]
    (directory / "clients.csv").write_text("\n".join(["round,client,name,model,accuracy,loss", *rows, ""]))
    if samples:
        partition_figure(np.array(samples)[:, None], directory / "partition.svg", "")
