"""The table of a benchmark, for the screen and for RESULTS.md."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

from benchmarks.timing import Comparison, Row

COLUMNS = ("workload", "implementation", "seconds", "speedup", "from", "to", "share of peak")
_TITLE = "# Benchmarks"


@dataclass(frozen=True, slots=True)
class Circumstances:
    """When, where and how a benchmark was run."""

    date: str
    command: str
    repeats: int
    rounds: int
    versions: Mapping[str, str]
    machine: str


def cells(row: Row) -> tuple[str, ...]:
    """A row as text."""
    share = "" if row.share is None else f"{row.share:.1%}"
    ratios = map(ratio, (row.speedup, row.lowest, row.highest))
    return row.workload, row.implementation, seconds(row.seconds), *ratios, share


def seconds(value: float) -> str:
    """Three digits, such as 12.3 or 0.0123."""
    return f"{value:#.3g}".rstrip(".")


def ratio(value: float) -> str:
    """Such as 12.3x."""
    return f"{value:.2f}x"


def machine() -> str:
    """The processor and its cores."""
    info = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", info.read_text()) if info.exists() else []
    return f"{names[0] if names else platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that matter to the timings."""
    found = {name: version(name) for name in ("scarlet-fl", "torch", "numpy")}
    return {"python": platform.python_version(), **found}


def section(comparison: Comparison, where: Circumstances) -> str:
    """A comparison as a section of RESULTS.md."""
    peak = median(comparison.peaks) / 1e9
    lines = [
        f"## {comparison.workload}",
        "",
        f"{comparison.about}.",
        "",
        f"{where.date}; {where.machine}, two of them multiply at {peak:.0f} GFLOPS; "
        + ", ".join(f"{name} {number}" for name, number in where.versions.items())
        + f"; {where.repeats} repeats of {where.rounds} rounds after a warm-up; `{where.command}`",
        "",
        f"| {' | '.join(COLUMNS[1:])} |",
        f"|{'---|' * (len(COLUMNS) - 1)}",
        *(f"| {' | '.join(cells(row)[1:])} |" for row in comparison.rows()),
    ]
    return "\n".join(lines) + "\n"


def update(path: Path, sections: Mapping[str, str]) -> None:
    """Replace or add sections, by the name of their workload, in a file; the other sections stay as they are."""
    before = path.read_text() if path.exists() else f"{_TITLE}\n"
    head, *parts = re.split(r"^(?=## )", before, flags=re.MULTILINE)
    kept = {part.splitlines()[0].removeprefix("## "): part for part in parts}
    kept |= sections
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(part.rstrip("\n") + "\n" for part in (head, *kept.values())))
