"""The pages about runs that are in directories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scarlet.records import RunResult
from scarlet.report.library import LIBRARY


def page_about(results: Sequence[RunResult]) -> str:
    """The page about some runs, complete in itself."""
    from scarlet.report.page import render  # slow to load, and only needed here

    return render(results, partition_svg=_partition_of(results[0]))


def write_page(results: Sequence[RunResult], directory: Path, *, running: bool = False) -> None:
    """Write report.html about some runs, with the data partition of the first."""
    from scarlet.report.page import write_report  # slow to load, and only needed here

    write_report(
        results,
        directory / "report.html",
        partition_svg=_partition_of(results[0]),
        library=shared_library(directory),
        running=running,
    )


def shared_library(directory: Path) -> Path | None:
    """The plot library of the sweep that a run belongs to, if it does."""
    library = directory.parent / LIBRARY
    return library if library.exists() else None


def _partition_of(result: RunResult) -> str | None:
    figure = None if result.directory is None else result.directory / "partition.svg"
    return figure.read_text(errors="replace") if figure is not None and figure.exists() else None
