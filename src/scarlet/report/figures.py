"""The plots, as plotly.js reads them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from scarlet.errors import ConfigError
from scarlet.report.colours import COLOURS
from scarlet.report.curves import Curve, Floats, Integers, curve
from scarlet.report.panels import Panel
from scarlet.report.strokes import Stroke
from scarlet.report.summary import last_rounds, over_seeds
from scarlet.report.variants import Variant

# A trace or a layout as plotly.js reads it. Plotly's own classes check each property again for every plot, which takes
# most of the time of a page; what is written here is checked by a test.
Drawn: TypeAlias = dict[str, Any]

LOGARITHMIC_FROM = 10  # times as many megabytes as the thriftiest method that sends any

# Readable on white and on black, for a downloaded image; on the page the style sheet overrides it.
GREY = "#7a7a7a"
GRID = "rgba(128, 128, 128, 0.25)"
CLEAR = "rgba(0, 0, 0, 0)"


def draw(panel: Panel, variants: Sequence[Variant], strokes: Sequence[Stroke]) -> Drawn | None:
    """The figure of a panel, or None if no run has the quantity; the legend group of a trace is its variant's place."""
    curves = [curve(variant.runs, panel.quantity) for variant in variants]
    if not any(np.isfinite(drawn.mean).any() for drawn in curves):
        return None
    totals = [float(np.nanmax(drawn.megabytes, initial=0.0)) for drawn in curves]
    sent, widest = [total for total in totals if total], max(totals)
    # Where some methods send that much more than others, a linear axis would hide the others.
    logarithmic = panel.against == "megabytes" and widest > LOGARITHMIC_FROM * min(sent, default=widest)
    least = min(float(value) for drawn in curves for value in drawn.megabytes if value > 0) if logarithmic else 0.0
    traces: list[Drawn] = []
    for position, (variant, stroke, drawn, total) in enumerate(zip(variants, strokes, curves, totals, strict=True)):
        if panel.against == "megabytes" and total == 0 < widest:
            own = _level(variant, stroke, panel, least, widest)
        else:
            own = [*_band(drawn, stroke, panel), _line(variant, drawn, stroke, panel)]
        traces += [{**trace, "legendgroup": str(position)} for trace in own]
    by_round = panel.against == "round"
    across = "round" if by_round else "traffic so far (MB, logarithmic)" if logarithmic else "traffic so far (MB)"
    scale = {"type": "log", "dtick": 1} if logarithmic else {"rangemode": "tozero"}
    upwards = {"rangemode": "tozero" if panel.from_zero else "normal"}
    return {"data": traces, "layout": layout(across, scale, upwards, height=270 if by_round else 380)}


def _line(variant: Variant, drawn: Curve, stroke: Stroke, panel: Panel) -> Drawn:
    stretches = drawn.stretches()
    # Without a marker, a point between two gaps would not be seen.
    marked = sum(map(len, stretches)) <= 30 or any(len(stretch) == 1 for stretch in stretches)
    where: Drawn = {"hovertemplate": "round %{x}: %{y:.3~f}"}
    if panel.against == "megabytes":
        where = {
            "customdata": _join([drawn.rounds[stretch] for stretch in stretches]),
            "hovertemplate": "%{x:.3~f} MB, round %{customdata}: %{y:.3~f}",
        }
    return {
        "type": "scatter",
        "x": _join([_across(drawn, panel)[stretch] for stretch in stretches]),
        "y": _join([drawn.mean[stretch] / panel.unit for stretch in stretches]),
        "mode": "lines+markers" if marked else "lines",
        "line": {"color": stroke.rgba(), "dash": stroke.dash, "width": 2},
        "marker": {"size": 5},
        # Plotly reads some HTML in names.
        "name": escape(variant.name),
        **where,
    }


def _band(drawn: Curve, stroke: Stroke, panel: Panel) -> list[Drawn]:
    """The spread over seeds, one closed shape for each stretch of the line: along its top and back along its bottom."""
    if np.array_equal(drawn.low, drawn.high, equal_nan=True):
        return []
    stretches, across = drawn.stretches(), _across(drawn, panel)
    return [
        {
            "type": "scatter",
            "x": _join([across[np.append(stretch, stretch[::-1])] for stretch in stretches]),
            "y": _join([np.append(drawn.high[part], drawn.low[part][::-1]) / panel.unit for part in stretches]),
            "mode": "lines",
            "line": {"width": 0},
            "fill": "toself",
            "fillcolor": stroke.rgba(0.2),
            "hoverinfo": "skip",
        }
    ]


def _level(variant: Variant, stroke: Stroke, panel: Panel, least: float, widest: float) -> list[Drawn]:
    """A method that sends nothing has no place on a megabyte axis, so its last accuracy is drawn across."""
    reached = over_seeds(variant, lambda run: last_rounds(run, panel.quantity))
    if reached is None:
        return []
    return [
        {
            "type": "scatter",
            "x": [least, widest],
            "y": [reached.mean, reached.mean],
            "mode": "lines",
            "line": {"color": stroke.rgba(), "dash": "dot", "width": 2},
            "name": escape(variant.name),
            "hovertemplate": "0 MB: %{y:.3~f}",
        }
    ]


def layout(across: str, x: Drawn, y: Drawn, height: int) -> Drawn:
    """What all figures have in common; the style sheet colours the words."""
    axis = {"gridcolor": GRID, "zeroline": False, "automargin": True, "ticks": "outside", "tickcolor": GRID}
    title = {"text": across, "standoff": 8, "font": {"size": 13}}
    return {
        "showlegend": False,
        "height": height,
        "margin": {"l": 8, "r": 12, "t": 28, "b": 8},
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": GREY},
        "hovermode": "closest",
        "hoverlabel": {"bgcolor": "#ffffff", "bordercolor": GREY, "font": {"color": "#1f2328"}, "namelength": -1},
        "modebar": {"bgcolor": CLEAR, "color": GREY, "activecolor": GREY},
        "xaxis": {**axis, "title": title, **x},
        "yaxis": {**axis, **y},
    }


def _across(drawn: Curve, panel: Panel) -> Floats | Integers:
    return drawn.megabytes if panel.against == "megabytes" else drawn.rounds


def _join(parts: Sequence[Floats | Integers]) -> list[float | None]:
    """The parts in a row with a None between them, where plotly lifts the pen."""
    joined: list[float | None] = []
    for part in parts:
        if joined:
            joined.append(None)
        joined += [None if np.isnan(value) else short(value) for value in part.tolist()]
    return joined


def short(value: float) -> float:
    """A number with the digits that a figure can show."""
    return value if isinstance(value, int) else float(f"{value:.5g}")


def write_cache_figure(hit_ratios: Sequence[tuple[int, Floats]], path: Path) -> None:
    """Write a page with the share of hits in each round, a line for each duration."""
    import plotly.graph_objects as go

    figure = go.Figure(layout={"template": "plotly_white", "title": {"text": "Share of cache hits"}})
    colours = list(COLOURS.values())
    for position, (duration, hit_ratio) in enumerate(hit_ratios):
        line = {"color": colours[position % len(colours)], "width": 1.2}
        figure.add_scatter(x=np.arange(1, len(hit_ratio) + 1), y=hit_ratio, name=f"D = {duration}", line=line)
    figure.update_xaxes(title_text="round")
    figure.update_yaxes(title_text="share of the round's samples that hit", range=[0, 1.02])
    try:
        path.write_text(figure.to_html(include_plotlyjs=True, config={"displaylogo": False}))
    except OSError as error:
        raise ConfigError(f"out cannot be written: {path}: {error.strerror}; choose another name") from None
