"""`scarlet report DIR...`: one page about runs that are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typing_extensions import Doc

from scarlet.cli.options import options_of, parse, split
from scarlet.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Output:
    """Where to write."""

    out: Annotated[Path, Doc("the page to write; one that is there is replaced")] = Path("report.html")


def main(argv: Sequence[str]) -> int:
    """Write the page."""
    words, rest = split(argv)
    given = parse("scarlet report DIR...", "One page about finished runs.", options_of(Output), rest)
    if not words:
        raise ConfigError("scarlet report takes the directories of runs before the options, got none")

    from scarlet.report import read_run, write_report

    directories = [run for word in words for run in _runs(Path(word))]
    path = given.get("out", Path("report.html"))
    write_report([read_run(directory) for directory in directories], path)
    print(f"report: {path}")
    return 0


def _runs(directory: Path) -> list[Path]:
    """The run in a directory, or the runs of the comparison in it."""
    inner = sorted(path.parent for path in directory.glob("*/config.json"))
    return inner if inner and not (directory / "config.json").exists() else [directory]
