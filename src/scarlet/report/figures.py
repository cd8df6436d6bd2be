"""The plots, each in a division of its own so that the page can lay them out for any width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import plotly.io

from scarlet.errors import ConfigError
from scarlet.report.curves import Curve, Floats, Integers, curve
from scarlet.report.panels import Panel
from scarlet.report.summary import last_rounds, over_seeds
from scarlet.report.variants import Variant

# A trace or a layout as plotly.js reads it. Plotly's own classes check each property again for every plot, which takes
# most of the time of a page; what is written here is checked by a test.
Drawn: TypeAlias = dict[str, Any]

# Okabe and Ito's colours, which colour-blind readers tell apart; grey stands for their black and yellow,
# which vanish on a dark or a light page.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C")
DASHES = ("solid", "dash", "dot")

LOGARITHMIC_FROM = 10  # times as many megabytes as the thriftiest method that sends any

# Readable on white and on black, for a downloaded image; on the page the style sheet overrides it.
GREY = "#7a7a7a"
GRID = "rgba(128, 128, 128, 0.25)"
CLEAR = "rgba(0, 0, 0, 0)"

CONFIG = {
    "responsive": True,
    "displaylogo": False,
    "displayModeBar": "hover",
    "modeBarButtons": [["toImage", "resetScale2d"]],
}


@dataclass(frozen=True, slots=True)
class Stroke:
    """How the lines of a variant are drawn in every panel."""

    colour: str
    dash: str

    @property
    def band(self) -> str:
        """The colour, translucent."""
        red, green, blue = (int(self.colour[start : start + 2], 16) for start in (1, 3, 5))
        return f"rgba({red}, {green}, {blue}, 0.2)"


def stroke(position: int) -> Stroke:
    """The colour of the variant at this position; a new dash once the colours are used up."""
    return Stroke(COLOURS[position % len(COLOURS)], DASHES[position // len(COLOURS) % len(DASHES)])


def draw(panel: Panel, variants: Sequence[Variant], name: str) -> str | None:
    """The plot as an HTML division of that id without plotly.js, or None if no run has the quantity."""
    curves = [curve(variant.runs, panel.quantity) for variant in variants]
    if not any(np.isfinite(drawn.mean).any() for drawn in curves):
        return None
    totals = [float(np.nanmax(drawn.megabytes, initial=0.0)) for drawn in curves]
    sent, widest = [total for total in totals if total], max(totals)
    # Where some methods send that much more than others, a linear axis would hide the others.
    logarithmic = panel.against == "megabytes" and widest > LOGARITHMIC_FROM * min(sent, default=widest)
    least = min(float(value) for drawn in curves for value in drawn.megabytes if value > 0) if logarithmic else 0.0
    traces: list[Drawn] = []
    for position, (variant, drawn, total) in enumerate(zip(variants, curves, totals, strict=True)):
        if panel.against == "megabytes" and total == 0 < widest:
            traces += _level(variant, position, panel, least, widest)
        else:
            traces += [*_band(drawn, position, panel), _line(variant, drawn, position, panel)]
    figure = {"data": traces, "layout": _layout(panel, logarithmic)}
    options = {"full_html": False, "include_plotlyjs": False, "div_id": name, "config": CONFIG, "validate": False}
    return str(plotly.io.to_html(figure, **options))


def _line(variant: Variant, drawn: Curve, position: int, panel: Panel) -> Drawn:
    stretches = drawn.stretches()
    # Without a marker, a point between two gaps would not be seen.
    marked = sum(map(len, stretches)) <= 30 or any(len(stretch) == 1 for stretch in stretches)
    place = "%{x:.3~f} MB, round %{customdata}" if panel.against == "megabytes" else "round %{x}"
    return {
        "type": "scatter",
        "x": _join([_across(drawn, panel)[stretch] for stretch in stretches]),
        "y": _join([drawn.mean[stretch] / panel.unit for stretch in stretches]),
        "customdata": _join([drawn.rounds[stretch] for stretch in stretches]),
        "mode": "lines+markers" if marked else "lines",
        "line": {"color": stroke(position).colour, "dash": stroke(position).dash, "width": 2},
        "marker": {"size": 5},
        # Plotly reads some HTML in names.
        "name": escape(variant.name),
        "legendgroup": str(position),
        "hovertemplate": place + ": %{y:.3~f}",
    }


def _band(drawn: Curve, position: int, panel: Panel) -> list[Drawn]:
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
            "fillcolor": stroke(position).band,
            "hoverinfo": "skip",
            "legendgroup": str(position),
        }
    ]


def _level(variant: Variant, position: int, panel: Panel, least: float, widest: float) -> list[Drawn]:
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
            "line": {"color": stroke(position).colour, "dash": "dot", "width": 2},
            "name": escape(variant.name),
            "legendgroup": str(position),
            "hovertemplate": "0 MB: %{y:.3~f}",
        }
    ]


def _layout(panel: Panel, logarithmic: bool) -> Drawn:
    axis = {"gridcolor": GRID, "zeroline": False, "automargin": True, "ticks": "outside", "tickcolor": GRID}
    by_round = panel.against == "round"
    across = "traffic so far (MB, logarithmic)" if logarithmic else "traffic so far (MB)"
    title = {"text": "round" if by_round else across, "standoff": 8, "font": {"size": 13}}
    scale = {"type": "log", "dtick": 1} if logarithmic else {"rangemode": "tozero"}
    return {
        "showlegend": False,
        "height": 270 if by_round else 380,
        "margin": {"l": 8, "r": 12, "t": 28, "b": 8},
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": GREY},
        "hovermode": "closest",
        "hoverlabel": {"bgcolor": "#ffffff", "bordercolor": GREY, "font": {"color": "#1f2328"}, "namelength": -1},
        "modebar": {"bgcolor": CLEAR, "color": GREY, "activecolor": COLOURS[0]},
        "xaxis": {**axis, "title": title, **scale},
        "yaxis": {**axis, "rangemode": "tozero" if panel.from_zero else "normal"},
    }


def _across(drawn: Curve, panel: Panel) -> Floats | Integers:
    return drawn.megabytes if panel.against == "megabytes" else drawn.rounds


def _join(parts: Sequence[Floats | Integers]) -> list[float | None]:
    """The parts in a row with a None between them, where plotly lifts the pen."""
    joined: list[float | None] = []
    for part in parts:
        if joined:
            joined.append(None)
        joined += [None if np.isnan(value) else round(value, 6) for value in part.tolist()]
    return joined


def write_cache_figure(hit_ratios: Sequence[tuple[int, Floats]], path: Path) -> None:
    """Write a page with the share of hits in each round, a line for each duration."""
    import plotly.graph_objects as go

    figure = go.Figure(layout={"template": "plotly_white", "title": {"text": "Share of cache hits"}})
    for position, (duration, hit_ratio) in enumerate(hit_ratios):
        line = {"color": stroke(position).colour, "width": 1.2}
        figure.add_scatter(x=np.arange(1, len(hit_ratio) + 1), y=hit_ratio, name=f"D = {duration}", line=line)
    figure.update_xaxes(title_text="round")
    figure.update_yaxes(title_text="share of the round's samples that hit", range=[0, 1.02])
    try:
        path.write_text(figure.to_html(include_plotlyjs=True, config={"displaylogo": False}))
    except OSError as error:
        raise ConfigError(f"out cannot be written: {path}: {error.strerror}; choose another name") from None
