"""The directory of a run.

config.json, agreement.json, metrics.jsonl, ledger.csv, clients.csv, summary.json, models, partition.svg, report.html
"""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scarlet.data.partition_figure import partition_figure
from scarlet.errors import ConfigError, DataError, ScarletError
from scarlet.experiment.cards import save_models
from scarlet.experiment.locked import locked
from scarlet.experiment.pages import write_page
from scarlet.experiment.renewal import Renewal
from scarlet.methods.registry import METHODS
from scarlet.records import RoundRecord, RunResult
from scarlet.report.clients import COLUMNS as CLIENT_COLUMNS
from scarlet.report.clients import read_clients
from scarlet.whole_file import write_whole
from scarlet.wire.ledger import COLUMNS, Ledger

if TYPE_CHECKING:  # loading torch would make `scarlet report` slow
    from scarlet.experiment.estimate import Estimate
    from scarlet.experiment.federation import Federation
    from scarlet.experiment.result import Result
    from scarlet.experiment.round_log import Metrics

_NUMBER = (int, float)
_BY_NAME = frozenset(field.name for field in fields(RoundRecord) if field.default_factory is dict)
_COLUMNS = frozenset(field.name for field in fields(RoundRecord))
_OF_THE_START = (
    *("config.json", "agreement.json", "metrics.jsonl", "clients.csv", "ledger.csv", "partition.svg", "report.html"),
    *("summary.json", "server.json", "server.safetensors"),  # where Ctrl-C came before the first round
)


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


def read_run(directory: Path) -> RunResult:
    """The run in a directory, whether it is finished, interrupted or killed, and whichever version wrote it."""
    config = read_config(directory)
    method = config["method"]
    summary = _read_object(directory / "summary.json") if (directory / "summary.json").exists() else {}
    known = METHODS[method].title if method in METHODS else method
    title = str(summary.pop("title", known))
    summary.pop("method", None)
    path = directory / "metrics.jsonl"
    result = RunResult(method, title, config, _records(path, _lines(path)), summary, directory)
    if not result.interrupted and summary.get("rounds", len(result.records)) != len(result.records):
        raise DataError(
            f"{path} has {len(result.records)} of the {summary['rounds']} rounds that summary.json counts; restore it, "
            f"or remove {directory} and run again"
        )
    return result


def read_config(directory: Path) -> dict[str, Any]:
    """The options of the run in a directory."""
    config = _read_object(directory / "config.json")
    if not isinstance(config.get("method"), str) or not isinstance(config.get("seed"), int):
        raise DataError(f"{directory / 'config.json'} must name a method and a whole seed; is it a run of scarlet?")
    return config


def finished(directory: Path) -> RunResult | None:
    """The run in a directory, if it is finished."""
    if not (directory / "summary.json").exists():
        return None
    result = read_run(directory)
    return None if result.interrupted else result


def rounds_in(directory: Path) -> int:
    """How many rounds of a run are on disk."""
    metrics = directory / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def has_results(directory: Path) -> bool:
    """Whether a directory has rounds of a run, or what was learned in them."""
    summary = directory / "summary.json"  # which Ctrl-C writes before the first round, too
    counted = _read_object(summary).get("rounds") if summary.exists() else 0
    return counted != 0 or rounds_in(directory) > 0 or any((directory / "checkpoint").glob("*"))


def forget(directory: Path) -> None:
    """Remove a run without results; files that no run writes stay, and what a link leads to."""
    if not directory.is_dir() or directory.is_symlink():
        return
    with locked(directory, "out"):
        if has_results(directory):
            raise ConfigError(f"out holds {directory}, which has results by now; give the same command again")
        for name in _OF_THE_START:
            (directory / name).unlink(missing_ok=True)
    for folder in (directory / "checkpoint", directory):
        with suppress(OSError):  # it is not there, or not empty
            folder.rmdir()


def complete(result: RunResult) -> None:
    """Do what a run may have left undone if it was killed at its very end: write its page, remove its checkpoints."""
    if result.directory is not None and not result.interrupted:
        if not (result.directory / "report.html").exists():
            write_page([result], result.directory)
        shutil.rmtree(result.directory / "checkpoint", ignore_errors=True)


class RunDirectory:
    """A watcher that writes a run as it goes: each round is on disk before the next is over."""

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self.path = path if resume else check_free(path)
        self._federation: Federation | None = None
        self._config: Mapping[str, object] = {}
        self._records: list[RoundRecord] = []
        self._renewal = Renewal()
        self._accuracies: dict[int, float] = {}  # of each client, when it was measured last

    def nonce(self) -> str | None:
        """What tells this run from others that agree in all else, if it has begun."""
        path = self.path / "agreement.json"
        return str(_read_object(path).get("nonce", "")) if path.exists() else None

    def check_begun(self, *, resume: bool) -> None:
        """Look again at what is there, now that no other process writes to it; a finished run is not begun again."""
        if not resume:
            check_free(self.path)
        elif finished(self.path) is not None and not (self.path / "checkpoint").exists():
            raise ConfigError(f"the run in {self.path} is finished already; read it, or choose another out")

    def check_options(self, options: Mapping[str, object]) -> None:
        """Raise ConfigError where the run that is continued began with other options."""
        path = self.path / "config.json"
        began = _read_object(path) if path.exists() else {}
        now = json.loads(json.dumps(options))
        if changed := [name for name in now if name in began and began[name] != now[name]]:
            was = ", ".join(f"{name} = {began[name]}" for name in changed)
            raise ConfigError(f"the run in {self.path} is of other options ({was}); restore those, or run anew")

    def start(self, config: Mapping[str, object], federation: Federation, expected: Estimate) -> None:
        """Write what does not change in the course of the run, unless a resumed run has written it before."""
        make(self.path)
        self._federation, self._config = federation, config
        if not (self.path / "config.json").exists():
            write_json(self.path / "config.json", config)
        agreement = federation.agreement
        if not (self.path / "agreement.json").exists():
            write_json(self.path / "agreement.json", {"digest": agreement.digest.hex(), **asdict(agreement)})
        (self.path / "metrics.jsonl").touch()
        if not (self.path / "clients.csv").exists():
            _replace(self.path / "clients.csv", [",".join(CLIENT_COLUMNS)])
        if not (self.path / "ledger.csv").exists():
            columns = [f"{column}_{part}" for column in COLUMNS for part in ("payload", "frame")]
            _replace(self.path / "ledger.csv", [",".join(["round", "client", *columns])])
        if federation.counts.any() and not (self.path / "partition.svg").exists():
            title = f"{federation.config.private}, alpha = {federation.config.alpha}, seed {federation.config.seed}"
            if federation.split_already:
                title = f"{len(federation.counts)} clients"
            partition_figure(federation.counts, self.path / "partition.svg", title)

    def rewind(self, round: int) -> list[RoundRecord]:
        """Remove the rounds after a checkpoint, which will be run again; return those before."""
        metrics = self.path / "metrics.jsonl"
        lines = _lines(metrics)[:round]
        if len(lines) < round:
            raise DataError(f"{metrics} has {len(lines)} of the {round} rounds before the checkpoint; run anew")
        (self.path / "summary.json").unlink(missing_ok=True)  # a run that went back is not finished
        _replace(metrics, lines)
        for name in ("ledger.csv", "clients.csv"):
            _rewind_table(self.path / name, round)
        self._accuracies = {client.number: client.accuracy for client in read_clients(self.path)}
        self._records = _records(metrics, lines)
        return list(self._records)

    def round(self, record: RoundRecord, ledger: Ledger, clients: Metrics) -> None:
        """Append a round to metrics.jsonl, and of each client its bytes to ledger.csv and accuracy to clients.csv."""
        try:
            with (self.path / "metrics.jsonl").open("a") as file:
                file.write(json.dumps(asdict(record)) + "\n")
            with (self.path / "ledger.csv").open("a", newline="") as file:
                rows = csv.writer(file, lineterminator="\n")
                for client, columns in sorted(ledger.by_client().items()):
                    counts = [n for name in COLUMNS for n in (columns[name].payload, columns[name].frame)]
                    rows.writerow([record.round, client, *counts])
            self._write_accuracies(record.round, clients)
        except OSError as error:
            remedy = f"make room, then run 'scarlet resume {self.path}'"
            raise ScarletError(f"cannot write to {self.path}: {error.strerror}; {remedy}") from error
        self._records.append(record)
        self._renewal.renew(self._write_page_so_far)

    def _write_page_so_far(self) -> None:
        method = str(self._config["method"])
        result = RunResult(method, METHODS[method].title, self._config, self._records, {}, self.path)
        with suppress(ScarletError):  # a page can be missed; where the disk is full, the next round says so
            write_page([result], self.path, running=True)

    def _write_accuracies(self, round: int, clients: Metrics) -> None:
        federation = self._federation
        assert federation is not None, "a run is started before its first round"
        measured = {number: clients[number] for number in sorted(clients) if "accuracy" in clients[number]}
        self._accuracies |= {number: metrics["accuracy"] for number, metrics in measured.items()}
        if not measured:
            return
        with (self.path / "clients.csv").open("a", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            for number, metrics in measured.items():
                own = federation.data.names[number], federation.model_of(number)
                rows.writerow([round, number, *own, metrics["accuracy"], metrics.get("loss", "")])

    def finish(self, result: Result) -> None:
        """Write the models, then the summary, which makes a run a finished one, and the page about it."""
        assert self._federation is not None, "a run is started before it is finished"
        save_models(result, self._federation, self._accuracies, self.path)
        (self.path / "report.html").unlink(missing_ok=True)  # of the run as it was when it was interrupted
        write_json(self.path / "summary.json", {"method": result.method, "title": result.title, **result.summary})
        write_page([result], self.path)


def _rewind_table(path: Path, round: int) -> None:
    """Remove the rows of a table whose round comes after a checkpoint."""
    header, *rows = _lines(path) or [""]
    numbers = [row.partition(",")[0] for row in rows]
    if not header.startswith("round,") or not all(number.isdecimal() for number in numbers):
        raise DataError(f"{path} is damaged: each line must begin with the number of a round; run anew")
    _replace(path, [header, *(row for row, number in zip(rows, numbers, strict=True) if int(number) <= round)])


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Write a mapping as readable JSON."""
    _replace(path, [json.dumps(content, indent=2)])


def _replace(path: Path, lines: Sequence[str]) -> None:
    write_whole(path, "".join(f"{line}\n" for line in lines))


def _records(path: Path, lines: Sequence[str]) -> list[RoundRecord]:
    """The rounds in metrics.jsonl; what this version does not know, or another version did not write, is left out."""
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            found = json.loads(line)
        except ValueError:
            raise DataError(f"{path} line {number} is not JSON; remove the line or run again") from None
        if not isinstance(found, dict) or not isinstance(found.get("round"), int):
            raise DataError(f"{path} line {number} does not name its round; remove the line or run again")
        known = {name: value for name, value in found.items() if name in _COLUMNS and _is_recorded(name, value)}
        records.append(RoundRecord(**known))
    return records


def _is_recorded(name: str, value: object) -> bool:
    """Whether a value is of the type that a column of metrics.jsonl has."""
    if name in _BY_NAME:
        return isinstance(value, dict) and all(isinstance(each, _NUMBER) for each in value.values())
    return isinstance(value, _NUMBER)


def _lines(path: Path) -> list[str]:
    """The whole lines of a file; a process that was killed leaves half a line at the end."""
    return _read(path).split("\n")[:-1]


def _read_object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(_read(path))
    except ValueError:
        raise DataError(f"{path} is not JSON; remove {path.parent} and run again, or leave this run out") from None
    if not isinstance(found, dict):
        raise DataError(f"{path} must hold a JSON object; remove {path.parent} and run again, or leave this run out")
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise DataError(f"cannot read {path} ({reason}); give the directory of a run, or make that run again") from None
