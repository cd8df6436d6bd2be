"""The first page of a sweep: every run with its state and a link to its own page, and what they show together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from urllib.parse import quote

from scarlet.records import RunResult
from scarlet.report.axes import Axis, axes
from scarlet.report.curves import MEGABYTE
from scarlet.report.library import LIBRARY, source
from scarlet.report.page import NAMED, about, frame, progress
from scarlet.report.summary import last_rounds
from scarlet.report.tables import decimal, megabytes
from scarlet.report.variants import distinct, group
from scarlet.whole_file import write_whole

FINISHED, INTERRUPTED, UNFINISHED, MISSING, FAILED = "finished", "interrupted", "not finished", "missing", "failed"

Reasons = Mapping[str, str]  # why runs failed, by the names of their directories


def write_library(directory: Path) -> None:
    """Write the plot library, once, for the index of a sweep and the pages of the runs below it."""
    path = directory / LIBRARY
    if not path.exists() or path.read_bytes() != source().encode():
        write_whole(path, source())


def write_index(
    directory: Path, runs: Sequence[RunResult], *, running: bool = False, failed: Reasons | None = None
) -> None:
    """Write index.html about the runs of a sweep, which have their directories below, and the library beside it.

    A run that has not begun is missing: it has a config, and no directory yet. While the sweep is `running`, a browser
    that shows the page reads it again from time to time.
    """
    write_library(directory)
    failed = failed or {}
    body = [*_states(runs, failed), *_overview(directory, runs, failed)]
    if begun := [run for run in runs if run.records]:
        body += about(distinct(begun))
    write_whole(directory / "index.html", frame(body, link=LIBRARY, running=running))


def _state(run: RunResult, failed: Reasons) -> str:
    """How a run stands; one that is not finished may be running, or may have been killed."""
    if run.directory is not None and run.directory.name in failed:
        return FAILED
    if run.directory is None or not (run.directory / "config.json").exists():
        return MISSING
    if not run.interrupted:
        return FINISHED
    return INTERRUPTED if run.summary else UNFINISHED


def _states(runs: Sequence[RunResult], failed: Reasons) -> Iterator[str]:
    counts = Counter(_state(run, failed) for run in runs)
    order = [each for each in (FINISHED, FAILED, INTERRUPTED, UNFINISHED, MISSING) if counts[each]]
    listed = ", ".join(f"{counts[each]} {each}" for each in order) or "none yet"
    shown = "" if order == [FINISHED] else ' class="unfinished"'
    yield f"<p{shown}>{len(runs)} runs: {listed}.</p>"
    together: dict[str, list[str]] = {}
    for name, reason in failed.items():
        together.setdefault(reason, []).append(name)
    for reason, names in together.items():
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        yield f'<p class="unfinished">{escape(", ".join(names[:NAMED]))}{more} failed: {escape(reason)}</p>'


def _overview(directory: Path, runs: Sequence[RunResult], failed: Reasons) -> Iterator[str]:
    """A line for each run."""
    begun = distinct([run for run in runs if run.records])
    place = {id(run): at for at, variant in enumerate(group(begun) if begun else ()) for run in variant.runs}
    varying = axes([_known(run) for run in runs])
    heads = ("run", *(axis.option for axis in varying), "seed", "state", "server accuracy", "client accuracy", "MB")
    head = "".join(f'<th scope="col"{_class(cell)}>{escape(cell)}</th>' for cell in heads)
    yield f'<div class="scroll tall">\n<table class="runs">\n<thead><tr>{head}</tr></thead>\n<tbody>'
    for run in runs:
        shown = f' data-variant="{place[id(run)]}"' if id(run) in place else ""
        named = zip(heads[1:], _cells(run, varying, failed), strict=True)
        cells = "".join(f"<td{_class(name)}>{escape(cell)}</td>" for name, cell in named)
        yield f'<tr{shown}><th scope="row">{_link(directory, run)}</th>{cells}</tr>'
    yield "</tbody>\n</table>\n</div>"


def _class(column: str) -> str:
    return ' class="state"' if column == "state" else ""


def _cells(run: RunResult, varying: Sequence[Axis], failed: Reasons) -> Iterator[str]:
    yield from (axis.value(run) for axis in varying)
    yield str(run.seed)
    how = _state(run, failed)
    yield how if how in (FINISHED, FAILED, MISSING) else f"{how}: {progress(run)}"
    yield decimal(last_rounds(run, "server_accuracy"), 3)
    yield decimal(last_rounds(run, "client_accuracy"), 3)
    yield megabytes(run.records[-1].cumulative_bytes / MEGABYTE if run.records else None)


def _link(directory: Path, run: RunResult) -> str:
    """The name of a run, with a link to its page if it has one."""
    if run.directory is None:
        return escape(run.title)
    name = escape(run.directory.name)
    page = run.directory / "report.html"
    return f'<a href="{quote(page.relative_to(directory).as_posix())}">{name}</a>' if page.exists() else name


def _known(run: RunResult) -> RunResult:
    """The run without the options that are settled when it begins, unless it has."""
    if run.records:
        return run
    return replace(run, config={option: value for option, value in run.config.items() if value not in (None, "auto")})
