"""What a run leaves in its directory, read back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from scarlet.errors import DataError

Round = dict[str, float | int | None]


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run: its options, its numbers round by round, and a summary, empty if it was interrupted."""

    method: str
    seed: int
    config: Mapping[str, object]
    rounds: Sequence[Round]
    summary: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Count:
    """Which bytes are counted as traffic: the payload, and what else in either direction."""

    id: str
    name: str
    caption: str
    up: tuple[str, ...] = ()
    down: tuple[str, ...] = ()


COUNTS = (
    Count("payload", "payload", "bytes of payload, the method's own content"),
    Count(
        "framed",
        "with frames",
        "bytes of payload and frames",
        up=("uplink_frame_bytes",),
        down=("downlink_frame_bytes",),
    ),
    Count(
        "carried",
        "all that was carried",
        "bytes of everything: payload, frames, reports, what was turned down, and what the transport added",
        up=("uplink_frame_bytes", "report_bytes", "rejected_bytes", "uplink_transport_bytes"),
        down=("downlink_frame_bytes", "downlink_transport_bytes"),
    ),
)


def counted(run: RunRecord, count: Count) -> RunRecord:
    """The run, with more bytes counted as its traffic."""
    rounds, beyond = [], 0
    for line in run.rounds:
        up, down = (sum(int(line.get(key) or 0) for key in keys) for keys in (count.up, count.down))
        beyond += up + down
        more = {"uplink_bytes": up, "downlink_bytes": down, "cumulative_bytes": beyond}
        rounds.append(line | {key: had + extra for key, extra in more.items() if (had := line.get(key)) is not None})
    return replace(run, rounds=tuple(rounds))


def read_run(directory: Path) -> RunRecord:
    """Read config.json, metrics.jsonl and, if the run has finished, summary.json."""
    config = _read_object(directory / "config.json")
    method, seed = config.get("method"), config.get("seed")
    if not isinstance(method, str) or not isinstance(seed, int):
        raise DataError(f"{directory / 'config.json'} must name a method and a whole seed; is it a run of scarlet?")
    summary = directory / "summary.json"
    return RunRecord(
        method=method,
        seed=seed,
        config=config,
        rounds=_read_rounds(directory / "metrics.jsonl"),
        summary=_read_object(summary) if summary.exists() else {},
    )


def _read_rounds(path: Path) -> tuple[Round, ...]:
    lines = _read_bytes(path).splitlines()
    rounds = []
    for number, line in enumerate(lines, start=1):
        try:
            fields = json.loads(line)
        except ValueError as error:
            # A run that was killed while it wrote leaves half a line, and only at the end.
            if number == len(lines):
                break
            raise DataError(f"{path} line {number} is not JSON; remove the line or run again") from error
        if not isinstance(fields, dict) or not isinstance(fields.get("round"), int):
            raise DataError(f"{path} line {number} does not name its round; remove the line or run again")
        rounds.append(_numbers(fields))
    return tuple(rounds)


def _numbers(fields: Mapping[str, object]) -> Round:
    """The fields that can be plotted; a value that is not finite is no measurement."""
    return {
        key: value if value is not None and math.isfinite(value) else None
        for key, value in fields.items()
        if value is None or isinstance(value, int | float)
    }


def _read_object(path: Path) -> Mapping[str, object]:
    try:
        fields = json.loads(_read_bytes(path))
    except ValueError as error:
        raise DataError(f"{path} is not JSON; run again, or leave this run out") from error
    if not isinstance(fields, dict):
        raise DataError(f"{path} must hold a JSON object; run again, or leave this run out")
    return fields


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path} ({error.strerror}); give the directory of a run") from error
