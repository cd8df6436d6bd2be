"""What a run leaves on disk: config.json, metrics.jsonl, ledger.csv, summary.json, the server's weights and figures."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from safetensors.torch import save

from scarlet.data.figure import partition_figure
from scarlet.errors import ConfigError, DataError, ScarletError
from scarlet.experiment.estimate import Estimate
from scarlet.experiment.federation import Federation
from scarlet.models.registry import Weights
from scarlet.records import RoundRecord, RunResult
from scarlet.wire.ledger import COLUMNS, Ledger


def check_free(directory: Path) -> Path:
    """Raise ConfigError unless a run can go into a directory: it must be new or empty."""
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"out must be a directory, and {directory} is a file; choose another name")
    if directory.is_dir() and any(directory.iterdir()):
        raise ConfigError(f"out must be new or empty, and {directory} holds files already; choose another name")
    above = next(folder for folder in directory.absolute().parents if folder.exists())
    if not above.is_dir():
        raise ConfigError(f"out cannot be made: {directory}: {above} is a file; choose another name")
    return directory


def make(directory: Path) -> Path:
    """Make a directory and those above it."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"out cannot be made: {directory}: {error.strerror}; choose another name") from None
    return directory


def finished(directory: Path) -> RunResult | None:
    """The run in a directory, if it is done."""
    if not (directory / "summary.json").exists():
        return None
    summary = json.loads((directory / "summary.json").read_text())
    if summary["interrupted"]:
        return None
    config = json.loads((directory / "config.json").read_text())
    records = [RoundRecord(**json.loads(line)) for line in _lines(directory / "metrics.jsonl")]
    return RunResult(summary.pop("method"), config, records, summary)


class RunDirectory:
    """Writes a run as it goes: each round is on disk before the next is over."""

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self.path = path if resume else check_free(path)

    def start(self, config: Mapping[str, object], federation: Federation, expected: Estimate) -> None:
        """Write what does not change in the course of the run, unless it is there because the run goes on."""
        make(self.path)
        if not (self.path / "config.json").exists():
            write_json(self.path / "config.json", config)
        (self.path / "metrics.jsonl").touch()
        if not (self.path / "ledger.csv").exists():
            columns = [f"{column}_{part}" for column in COLUMNS for part in ("payload", "frame")]
            _replace(self.path / "ledger.csv", [",".join(["round", "client", *columns])])
        if not (self.path / "partition.svg").exists():
            title = f"{federation.data.private.name}, alpha = {federation.config.alpha}, seed {federation.config.seed}"
            partition_figure(federation.counts, self.path / "partition.svg", title)

    def rewind(self, round: int) -> list[RoundRecord]:
        """Forget the rounds after a checkpoint, which will be done again; return those before."""
        lines = _lines(self.path / "metrics.jsonl")[:round]
        if len(lines) < round:
            raise DataError(
                f"{self.path / 'metrics.jsonl'} has {len(lines)} of the {round} rounds before the checkpoint"
            )
        _replace(self.path / "metrics.jsonl", lines)
        header, *rows = _lines(self.path / "ledger.csv")
        _replace(self.path / "ledger.csv", [header, *(row for row in rows if int(row.partition(",")[0]) <= round)])
        return [RoundRecord(**json.loads(line)) for line in lines]

    def round(self, record: RoundRecord, ledger: Ledger) -> None:
        """Append a round to metrics.jsonl, and its bytes for each client to ledger.csv."""
        try:
            self._append(record, ledger)
        except OSError as error:
            raise ScarletError(
                f"cannot write to {self.path}: {error.strerror}; make room, then run 'scarlet resume {self.path}'"
            ) from error

    def _append(self, record: RoundRecord, ledger: Ledger) -> None:
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(asdict(record)) + "\n")
        with (self.path / "ledger.csv").open("a", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            for client, columns in sorted(ledger.by_client().items()):
                counts = [n for name in COLUMNS for n in (columns[name].payload, columns[name].frame)]
                rows.writerow([record.round, client, *counts])

    def finish(self, result: RunResult, weights: Weights | None) -> None:
        """Write the summary, the server's weights and the page."""
        from scarlet.report import read_run, write_report  # plotly is slow to load, and only needed here

        if weights is not None:
            content = save({name: value.cpu().contiguous() for name, value in weights.items()})
            (self.path / "server.safetensors").write_bytes(content)
        summary = {"method": result.method, **result.summary}
        figure = (self.path / "partition.svg").read_text()
        record = replace(read_run(self.path), summary=summary)
        write_report([record], self.path / "report.html", partition_svg=figure)
        # Last, because a run that has a summary is finished.
        write_json(self.path / "summary.json", summary)


def _lines(path: Path) -> list[str]:
    """The whole lines of a file; the last may have been cut off."""
    return path.read_text().split("\n")[:-1]


def _replace(path: Path, lines: Sequence[str]) -> None:
    """Change a file as a whole: a process that is killed meanwhile leaves the old one or the new one."""
    part = path.with_suffix(".part")
    part.write_text("".join(f"{line}\n" for line in lines))
    part.replace(path)


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Write a mapping as readable JSON."""
    _replace(path, [json.dumps(content, indent=2)])
