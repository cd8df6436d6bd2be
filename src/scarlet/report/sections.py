"""The parts of the page that its script fills or that not every page has."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from scarlet.report.axes import WITHOUT, Axis
from scarlet.report.embedded import data_script
from scarlet.report.figures import Drawn
from scarlet.report.settings import settings
from scarlet.report.strokes import Stroke
from scarlet.report.summary import steps
from scarlet.report.variants import Variant


def figure(name: str, title: str, caption: str, drawn: Drawn, attributes: str = "") -> str:
    """A plot with its caption; the script of the page draws it when it is first seen."""
    height = drawn["layout"]["height"]
    return (
        f"<figure{attributes}>\n<figcaption><b>{title}</b>{caption}</figcaption>\n"
        f'<div class="plot" id="{name}" style="height: {height}px"></div>{data_script(drawn)}\n</figure>'
    )


def cost_of_a_target(variants: Sequence[Variant], strokes: Sequence[Stroke], target: float | None) -> Iterator[str]:
    """A slider for the server accuracy, and what each variant needs to reach it."""
    best = max((step.accuracy for variant in variants for step in steps(variant)), default=None)
    if best is None:
        return
    most = math.ceil(best * 100) / 100
    start = target or round(best / 2, 2)
    yield '<h2 id="cost-title">Cost of a server accuracy</h2>'
    yield '<p class="quiet">What is sent up to the first round in which the mean over seeds is as accurate.</p>'
    yield '<p class="slider"><label for="target">Server accuracy</label>'
    yield f'<input id="target" type="range" min="0" max="{most:.2f}" step="0.005" value="{start:.2f}">'
    yield f'<output for="target">{start:.3f}</output></p>'
    head = "".join(f'<th scope="col">{cell}</th>' for cell in ("method", "MB", "rounds"))
    yield '<div class="scroll tall">\n<table class="cost" aria-labelledby="cost-title">'
    yield f"<thead><tr>{head}<td></td></tr></thead>\n<tbody>"
    for at, (variant, stroke) in enumerate(zip(variants, strokes, strict=True)):
        name = f"{stroke.sample}{escape(variant.name)}"
        yield f'<tr data-variant="{at}"><th scope="row">{name}</th><td></td><td></td><td><i></i></td></tr>'
    yield "</tbody>\n</table>\n</div>"


def heat_maps(axes: Sequence[Axis]) -> Iterator[str]:
    """Tables of accuracy over two options."""
    if len(axes) < 2:
        return
    # An option that not all methods have would leave cells empty.
    widest = max(range(1, len(axes)), key=lambda at: (WITHOUT not in axes[at].values, len(axes[at].values)))
    yield '<h2>Accuracy over two options</h2>\n<p class="axes">'
    for name, chosen in (("down", 0), ("across", widest)):
        options = "".join(
            f'<option value="{at}"{" selected" if at == chosen else ""}>{escape(axis.option)}</option>'
            for at, axis in enumerate(axes)
        )
        yield f'<label>{name} <select id="{name}">{options}</select></label>'
    yield '</p>\n<p class="quiet" id="heat-mean"></p>\n<div class="heat-maps">'
    for quantity, title in (("server_accuracy", "Server accuracy"), ("client_accuracy", "Client accuracy")):
        table = f'<table class="heat" data-quantity="{quantity}"><caption>{title}</caption></table>'
        yield f'<div class="scroll">{table}</div>'
    yield "</div>"


def copied_settings(variants: Sequence[Variant]) -> Iterator[str]:
    """The options of a variant and its versions as text, with a button that copies it."""
    yield "<h2>Configuration</h2>"
    how = "The options as a TOML file for <code>scarlet run --config</code>, and the versions in use."
    yield f'<p class="quiet">{how}</p>'
    yield '<p class="copy">'
    if len(variants) > 1:
        options = "".join(f'<option value="{at}">{escape(each.name)}</option>' for at, each in enumerate(variants))
        yield f'<label>of <select id="of">{options}</select></label>'
    yield '<button type="button" id="copy">copy</button> <span role="status"></span></p>'
    yield f'<pre id="settings" tabindex="0">{escape(settings(variants[0]))}</pre>'
