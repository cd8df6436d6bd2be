"""The page itself: its parts in order, written so that a reader never sees half of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from urllib.parse import quote

from scarlet.records import LAST_ROUNDS, RunResult
from scarlet.report.axes import axes
from scarlet.report.client_figure import client_figure
from scarlet.report.counts import COUNTS, PAYLOAD, Count, counted
from scarlet.report.embedded import data_script, embedded
from scarlet.report.figures import draw
from scarlet.report.legend import choice_of_variants
from scarlet.report.library import policy, script
from scarlet.report.panels import ROUND_BY_ROUND, TRADE_OFF, Panel
from scarlet.report.problems import problems_table
from scarlet.report.sections import copied_settings, cost_of_a_target, figure, heat_maps
from scarlet.report.strokes import Stroke, strokes
from scarlet.report.summary import summarise
from scarlet.report.tables import models_table, options_table, sentence, summary_table
from scarlet.report.variants import Variant, group
from scarlet.whole_file import write_whole

REFRESH = 30  # seconds after which the page of a run that goes on is read again
NAMED = 6  # runs that a sentence names
SCRIPTS = ("page.js", "target.js", "heat_map.js", "plots.js")


def write_report(
    runs: Sequence[RunResult],
    path: Path,
    *,
    partition_svg: str | None = None,
    library: Path | None = None,
    running: bool = False,
) -> None:
    """Write one HTML page that compares the runs and opens from disk without a network.

    The page is complete in itself, or refers to the file of the plot library. While runs are `running`, a browser that
    shows the page reads it again from time to time.
    """
    link = None if library is None else quote(Path(os.path.relpath(library, path.parent)).as_posix())
    write_whole(path, render(runs, partition_svg=partition_svg, link=link, running=running))


def render(
    runs: Sequence[RunResult],
    *,
    partition_svg: str | None = None,
    link: str | None = None,
    running: bool = False,
) -> str:
    """The page as text; `link` is where it finds the plot library, unless that is part of it."""
    return frame([*_unfinished(runs), *about(runs, partition_svg)], link=link, running=running)


def frame(body: Sequence[str], *, link: str | None, running: bool) -> str:
    """A page with its styles and scripts."""
    own = "".join(map(_packaged, SCRIPTS))
    refresh = f' data-refresh="{REFRESH}"' if running else ""
    head = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy(own, link)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<title>Accuracy against megabytes</title>",
        f"<style>\n{_packaged('page.css')}</style>",
        f"{script(link)}\n</head>\n<body{refresh}>\n<h1>Accuracy against megabytes</h1>",
    )
    return "\n".join((*head, *body, f"<script>{own}</script>\n</body>\n</html>\n"))


def about(runs: Sequence[RunResult], partition_svg: str | None = None) -> Iterator[str]:
    """All that is shown of some runs.

    What depends on the bytes that are counted is there once for each count; the payload's is shown first.
    """
    by_count = {count: group([counted(run, count) for run in runs]) for count in COUNTS}
    variants = by_count[PAYLOAD]
    drawn, varying = strokes(variants), axes([variant.runs[0] for variant in variants])
    summaries = {count: summarise(those) for count, those in by_count.items()}
    yield data_script(embedded(by_count, drawn, varying), ' id="data"')
    yield from choice_of_variants(variants, drawn, varying)
    yield from _choice_of_bytes()
    for count, summary in summaries.items():
        yield f"<div{_shown_for(count)}>"
        yield f'<p class="result">{sentence(summary)}</p>'
        yield f'<div class="scroll tall">\n{summary_table(summary, drawn)}\n</div>'
        yield f'<p class="quiet">{_how_to_read(summary.target, count)}</p>\n</div>'
    yield "<noscript><p>The figures need JavaScript; this table does not.</p></noscript>"
    yield f"<h2>What accuracy costs</h2>\n{_lines(variants)}"
    yield from _panels("trade-off", TRADE_OFF, by_count, drawn)
    yield from cost_of_a_target(variants, drawn, summaries[PAYLOAD].target)
    yield from heat_maps(varying)
    yield "<h2>Round by round</h2>"
    yield from _panels("rounds", ROUND_BY_ROUND, by_count, drawn)
    if clients := client_figure(variants, drawn):
        dots = " A larger dot has more training samples." if any("marker" in each for each in clients["data"]) else ""
        caption = f"When they were measured last, a line for each run.{dots}"
        yield figure("clients", "Accuracy of each client", caption, clients)
    yield from _tables(variants)
    if partition_svg is not None:
        yield "<h2>Data partition</h2>\n<figure>"
        yield "<figcaption>Private training samples of each client and class.</figcaption>"
        # An SVG file starts with an XML declaration, which has no place within HTML.
        yield f'<div class="partition">{partition_svg[partition_svg.find("<svg") :]}</div>\n</figure>'
    yield from copied_settings(variants)
    yield "<details>\n<summary>All options</summary>"
    yield '<p class="quiet">Options that differ between the methods come first and are set apart.</p>'
    yield f'<div class="scroll">\n{options_table(variants)}\n</div>\n</details>'


def progress(run: RunResult) -> str:
    """How far a run is."""
    return f"round {len(run.records)} of {run.config.get('rounds', 'an unknown number')}"


def _unfinished(runs: Sequence[RunResult]) -> Iterator[str]:
    left = [run for run in runs if run.interrupted]
    if len(runs) == 1 and left:
        yield f'<p class="unfinished">Not finished: {escape(progress(runs[0]))}.</p>'
    elif left:
        names = ", ".join(f"{run.title} seed {run.seed} ({progress(run)})" for run in left[:NAMED])
        more = f" and {len(left) - NAMED} more" if len(left) > NAMED else ""
        yield f'<p class="unfinished">Not finished, and shown up to their last round: {escape(names)}{more}.</p>'


def _choice_of_bytes() -> Iterator[str]:
    yield '<div class="choice" role="radiogroup" aria-label="Bytes that are counted">Megabytes counted:'
    for count in COUNTS:
        checked = "true" if count is PAYLOAD else "false"
        yield f'<button type="button" role="radio" value="{count.id}" aria-checked="{checked}">{count.name}</button>'
    yield "</div>"


def _shown_for(count: Count) -> str:
    """The attributes of what is shown only while these bytes are counted."""
    return f' data-count="{count.id}"' + ("" if count is PAYLOAD else " hidden")


def _how_to_read(target: float | None, count: Count) -> str:
    reached = "there is no target that all methods reach"
    if target is not None:
        reached = f"{target:.2f} is the largest multiple of 0.05 that every server model reaches in its mean curve"
    return (
        f"Accuracies and the hit ratio are means of the last {LAST_ROUNDS} rounds in which they were measured, all "
        "other numbers are of the whole run; both are averaged over seeds, and ± is one standard deviation over them. "
        f"MB are 10<sup>6</sup> {count.caption}, of all clients; {reached}."
    )


def _lines(variants: Sequence[Variant]) -> str:
    """What the lines of the figures mean."""
    seeds = max(len(variant.runs) for variant in variants)
    bands = "span the two seeds" if seeds == 2 else "are ± one standard deviation (the span, for two seeds)"
    lines = "Each line is one run." if seeds == 1 else f"Lines are means over seeds, and bands {bands}."
    return f'<p class="quiet">{lines}</p>'


def _panels(
    layout: str, panels: Sequence[Panel], by_count: Mapping[Count, Sequence[Variant]], drawn: Sequence[Stroke]
) -> Iterator[str]:
    yield f'<div class="panels {layout}">'
    for panel in panels:
        for count in by_count if panel.shows_traffic else (PAYLOAD,):
            name = panel.id if count is PAYLOAD else f"{panel.id}-{count.id}"
            plot = draw(panel, by_count[count], drawn)
            if plot is not None:
                shown = _shown_for(count) if panel.shows_traffic else ""
                yield figure(name, panel.title, panel.caption, plot, shown)
    yield "</div>"


def _tables(variants: Sequence[Variant]) -> Iterator[str]:
    if by_model := models_table(variants):
        yield "<h2>Accuracy by model</h2>"
        yield '<p class="quiet">Mean accuracy of the clients that have each model: last rounds, all seeds.</p>'
        yield f'<div class="scroll">\n{by_model}\n</div>'
    if problems := problems_table(variants):
        yield "<h2>Rejected or missing</h2>"
        yield '<p class="quiet">How often, in all rounds of all seeds.</p>'
        yield f'<div class="scroll">\n{problems}\n</div>'


def _packaged(name: str) -> str:
    return resources.files("scarlet.report").joinpath(name).read_text(encoding="utf-8")
