"""Pictures: lines, bars and heat maps in one style, a method in the colour that it has on every page."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scarlet.methods.registry import METHODS
from scarlet.records import LAST_ROUNDS, RunResult
from scarlet.report.colours import colours_of
from scarlet.report.curves import curve

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.5,
    "svg.hashsalt": "scarlet",
    "svg.fonttype": "path",
}
SHADES = "viridis"


def panels(columns: int, rows: int = 1, *, width: float = 3.6, height: float = 2.8) -> tuple[Figure, list[Axes]]:
    """A figure with panels, row after row."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
        return figure, list(np.ravel(figure.subplots(rows, columns)))


def drawn(figure: Figure, kind: str) -> bytes:
    """A picture as the content of a file, svg or png; the same picture is the same file."""
    file = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        metadata = {"Date": None} if kind == "svg" else {}
        figure.savefig(file, format=kind, bbox_inches="tight", dpi=110, metadata=metadata)
    return file.getvalue()


def colour_of(method: str) -> str:
    return colours_of(METHODS)[method]


def title_of(method: str) -> str:
    return METHODS[method].title


def against_megabytes(
    axes: Axes, runs: Sequence[RunResult], quantity: str, label: str, colour: str | None = None, dash: str = "-"
) -> None:
    """A quantity against cumulative megabytes, mean and span over seeds; nothing where there is no run."""
    _line(axes, runs, quantity, label, colour, dash, rounds=False)


def by_round(
    axes: Axes, runs: Sequence[RunResult], quantity: str, label: str, colour: str | None = None, dash: str = "-"
) -> None:
    """A quantity over the rounds, likewise."""
    _line(axes, runs, quantity, label, colour, dash, rounds=True)


def _line(
    axes: Axes, runs: Sequence[RunResult], quantity: str, label: str, colour: str | None, dash: str, *, rounds: bool
) -> None:
    drawn = curve(runs, quantity) if runs else None
    if drawn is None or not (known := np.isfinite(drawn.mean)).any():
        return
    at = (drawn.rounds if rounds else drawn.megabytes)[known]
    if not rounds and not at.any():  # who sends nothing has an accuracy, but no curve
        axes.axhline(float(drawn.mean[known][-LAST_ROUNDS:].mean()), color=colour, linestyle=":", label=label)
        return
    (line,) = axes.plot(at, drawn.mean[known], dash, color=colour, label=label)
    axes.fill_between(at, drawn.low[known], drawn.high[known], color=line.get_color(), alpha=0.15, linewidth=0)


def heat_map(axes: Axes, values: Mapping[tuple[str, str], float], *, across: str, down: str, title: str) -> None:
    """A number for each pair of values (across, down), written in its cell; the best of each row is bold."""
    xs, ys = (list(dict.fromkeys(each)) for each in zip(*values, strict=True))
    grid = np.array([[values.get((x, y), np.nan) for x in xs] for y in ys])
    axes.imshow(grid, cmap=SHADES, aspect="auto", origin="lower")
    axes.grid(visible=False)
    axes.set_xticks(range(len(xs)), xs)
    axes.set_yticks(range(len(ys)), ys)
    axes.set(xlabel=across, ylabel=down, title=title)
    middle = (np.nanmin(grid) + np.nanmax(grid)) / 2
    for (row, column), value in np.ndenumerate(grid):
        if np.isfinite(value):
            weight = "bold" if value == np.nanmax(grid[row]) else "normal"
            ink = "black" if value > middle else "white"
            axes.text(column, row, f"{value:.1f}", ha="center", va="center", color=ink, weight=weight)
