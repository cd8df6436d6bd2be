"""What a run leaves on disk: config.json, metrics.jsonl, ledger.csv, summary.json, the server's weights and figures."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file

from scarlet.data.figure import partition_figure
from scarlet.errors import ConfigError
from scarlet.estimate import Estimate
from scarlet.models.registry import Weights
from scarlet.problem import Problem
from scarlet.records import RoundRecord, RunResult, as_line
from scarlet.wire.ledger import Column, Ledger

_COLUMNS: tuple[Column, ...] = ("uplink", "downlink", "report")


def check_free(directory: Path) -> None:
    """Raise ConfigError unless the directory is new or empty, without making it."""
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"out must be a directory, and {directory} is a file; choose another name")
    if directory.is_dir() and any(directory.iterdir()):
        raise ConfigError(f"out must be new or empty, and {directory} holds files already; choose another name")
    above = next(folder for folder in directory.absolute().parents if folder.exists())
    if not above.is_dir():
        raise ConfigError(f"out cannot be made: {directory}: {above} is a file; choose another name")


def make(directory: Path) -> None:
    """Make the directory of a run."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"out cannot be made: {directory}: {error.strerror}; choose another name") from None


class RunDirectory:
    """Writes a run as it goes: each round is on disk before the next begins."""

    def __init__(self, path: Path) -> None:
        check_free(path)
        self.path = path

    def start(self, config: Mapping[str, object], problem: Problem, expected: Estimate) -> None:
        """Make the directory, and write the options and the figure of the partition."""
        make(self.path)
        write_json(self.path / "config.json", config)
        (self.path / "metrics.jsonl").touch()
        title = f"{problem.data.private.name}, alpha = {problem.config.alpha}, seed {problem.config.seed}"
        partition_figure(problem.counts, self.path / "partition.svg", title)
        with (self.path / "ledger.csv").open("w", newline="") as file:
            parts = [f"{column}_{part}" for column in _COLUMNS for part in ("payload", "frame")]
            csv.writer(file).writerow(["round", "client", *parts])

    def round(self, record: RoundRecord, ledger: Ledger) -> None:
        """Append a round to metrics.jsonl, and its bytes for each client to ledger.csv."""
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(as_line(record)) + "\n")
        with (self.path / "ledger.csv").open("a", newline="") as file:
            rows = csv.writer(file)
            for client, columns in sorted(ledger.by_client().items()):
                counts = [n for name in _COLUMNS for n in (columns[name].payload, columns[name].frame)]
                rows.writerow([record.round, client, *counts])

    def finish(self, result: RunResult, weights: Weights) -> None:
        """Write the summary, the server's weights and the page."""
        from scarlet.report import read_run, write_report  # plotly is slow to load, and only needed here

        save_file(
            {name: value.cpu().contiguous() for name, value in weights.items()},
            self.path / "server.safetensors",
        )
        write_json(self.path / "summary.json", {"method": result.method, **result.summary})
        figure = (self.path / "partition.svg").read_text()
        write_report([read_run(self.path)], self.path / "report.html", partition_svg=figure)


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Write a mapping as readable JSON."""
    path.write_text(json.dumps(content, indent=2) + "\n")
