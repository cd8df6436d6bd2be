"""The page itself: its parts in order, written so that a reader never sees half of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path

from plotly.offline import get_plotlyjs

from scarlet.errors import ScarletError
from scarlet.records import LAST_ROUNDS, RunResult
from scarlet.report.counts import COUNTS, PAYLOAD, Count, counted
from scarlet.report.figures import draw, stroke
from scarlet.report.panels import ROUND_BY_ROUND, TRADE_OFF, Panel
from scarlet.report.summary import summarise
from scarlet.report.tables import models_table, options_table, sentence, summary_table
from scarlet.report.variants import Variant, group

# The browser itself refuses whatever is not in the file.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
BORDERS = {"solid": "solid", "dash": "dashed", "dot": "dotted"}


def write_report(runs: Sequence[RunResult], path: Path, *, partition_svg: str | None = None) -> None:
    """Write one HTML page that compares the runs and opens from disk without a network."""
    page = render(runs, partition_svg=partition_svg)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            aside.write_text(page, encoding="utf-8")
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        raise ScarletError(f"cannot write {path} ({error.strerror}); choose another place") from error


def render(runs: Sequence[RunResult], *, partition_svg: str | None = None) -> str:
    """The page as text."""
    return "\n".join(_page({count: group([counted(run, count) for run in runs]) for count in COUNTS}, partition_svg))


def _page(by_count: Mapping[Count, Sequence[Variant]], partition_svg: str | None) -> Iterator[str]:
    """What depends on the bytes that are counted is in the page once for each count; the payload's is shown first."""
    variants = by_count[PAYLOAD]
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield "<title>Accuracy against megabytes</title>"
    yield f"<style>\n{_packaged('page.css')}</style>"
    yield f"<script>{get_plotlyjs()}</script>\n</head>\n<body>"
    yield "<h1>Accuracy against megabytes</h1>"
    yield from _choice()
    for count, those in by_count.items():
        summary = summarise(those)
        yield f"<div{_shown_for(count)}>"
        yield f'<p class="result">{sentence(summary)}</p>'
        yield from _unfinished(variants)
        yield f'<div class="scroll">\n{summary_table(summary)}\n</div>'
        yield f'<p class="quiet">{_how_to_read(summary.target, count)}</p>\n</div>'
    yield "<noscript><p>The figures need JavaScript; the tables do not.</p></noscript>"
    yield "<section>\n<h2>What accuracy costs</h2>"
    yield from _legend(variants)
    yield from _panels("trade-off", TRADE_OFF, by_count)
    yield "<h2>Round by round</h2>"
    yield from _panels("rounds", ROUND_BY_ROUND, by_count)
    yield "</section>"
    if by_model := models_table(variants):
        yield "<h2>Accuracy by model</h2>"
        yield '<p class="quiet">Mean accuracy of the clients that have each model: last rounds, all seeds.</p>'
        yield f'<div class="scroll">\n{by_model}\n</div>'
    if partition_svg is not None:
        yield "<h2>Data partition</h2>\n<figure>"
        yield "<figcaption>Private training samples of each client and class.</figcaption>"
        # An SVG file starts with an XML declaration, which has no place within HTML.
        yield f'<div class="partition">{partition_svg[partition_svg.find("<svg") :]}</div>\n</figure>'
    yield "<details>\n<summary>Options</summary>"
    yield '<p class="quiet">Options that differ between the methods come first and are set apart.</p>'
    yield f'<div class="scroll">\n{options_table(variants)}\n</div>\n</details>'
    yield f"<script>\n{_packaged('page.js')}</script>\n</body>\n</html>\n"


def _unfinished(variants: Sequence[Variant]) -> Iterator[str]:
    runs = [(variant.name, run) for variant in variants for run in variant.runs if run.interrupted]
    if runs:
        names = ", ".join(f"{name} seed {run.seed} ({len(run.records)} rounds)" for name, run in runs)
        yield f"<p>Not finished, and shown up to their last round: {escape(names)}.</p>"


def _choice() -> Iterator[str]:
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
        f"Accuracy is the mean of the last {LAST_ROUNDS} evaluated rounds, ± one standard deviation over "
        "seeds. All other numbers are means over seeds. "
        f"MB are 10<sup>6</sup> {count.caption}, of all clients; {reached}."
    )


def _legend(variants: Sequence[Variant]) -> Iterator[str]:
    seeds = max(len(variant.runs) for variant in variants)
    bands = "span the two seeds" if seeds == 2 else "are ± one standard deviation (the span, for two seeds)"
    lines = "Each line is one run." if seeds == 1 else f"Lines are means over seeds, and bands {bands}."
    yield f'<p class="quiet">{lines} Choose a method to hide or show it in all figures.</p>'
    yield '<div class="legend">'
    for position, variant in enumerate(variants):
        drawn = stroke(position)
        sample = f'<i style="border-color: {drawn.colour}; border-top-style: {BORDERS[drawn.dash]}"></i>'
        yield f'<button type="button" value="{position}" aria-pressed="true">{sample}'
        yield f"{escape(variant.name)}</button>"
    yield "</div>"


def _panels(layout: str, panels: Sequence[Panel], by_count: Mapping[Count, Sequence[Variant]]) -> Iterator[str]:
    yield f'<div class="panels {layout}">'
    for panel in panels:
        for count in by_count if panel.shows_traffic else (PAYLOAD,):
            plot = draw(panel, by_count[count], panel.id if count is PAYLOAD else f"{panel.id}-{count.id}")
            shown = _shown_for(count) if panel.shows_traffic else ""
            if plot is not None:
                caption = f"<figcaption><b>{panel.title}</b>{panel.caption}</figcaption>"
                yield f"<figure{shown}>\n{caption}\n{plot}\n</figure>"
    yield "</div>"


def _packaged(name: str) -> str:
    return resources.files("scarlet.report").joinpath(name).read_text(encoding="utf-8")
