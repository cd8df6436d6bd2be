"""The bar that chooses which variants are shown: by the values of options, or one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from scarlet.report.axes import WITHOUT, Axis
from scarlet.report.strokes import Stroke
from scarlet.report.variants import Variant


def choice_of_variants(variants: Sequence[Variant], strokes: Sequence[Stroke], axes: Sequence[Axis]) -> Iterator[str]:
    """Select boxes and the legend; nothing where there is nothing to choose."""
    if len(variants) < 2:
        return
    yield '<div class="bar">'
    if len(axes) > 1 or len(variants) > 8:  # otherwise the legend is as quick
        yield from _filters(axes)
    yield '<div class="legend">'
    for title in dict.fromkeys(variant.title for variant in variants):
        members = [at for at, variant in enumerate(variants) if variant.title == title]
        if len(members) == 1:
            yield _button(members[0], title, strokes[members[0]])
            continue
        name = escape(title)
        yield f'<div class="group" role="group" aria-label="{name}"><button type="button" class="all">{name}</button>'
        yield from (_button(at, variants[at].marks, strokes[at]) for at in members)
        yield "</div>"
    yield "</div>\n</div>"


def _filters(axes: Sequence[Axis]) -> Iterator[str]:
    yield '<div class="filters">Show'
    for at, axis in enumerate(axes):
        options = "".join(
            f'<option value="{place}">{escape(value)}</option>'
            for place, value in enumerate(axis.values)
            if value != WITHOUT
        )
        box = f'<select data-axis="{at}"><option value="">all</option>{options}</select>'
        yield f"<label>{escape(axis.option)} {box}</label>"
    yield "</div>"


def _button(at: int, name: str, stroke: Stroke) -> str:
    return f'<button type="button" value="{at}" aria-pressed="true">{stroke.sample}{escape(name)}</button>'
