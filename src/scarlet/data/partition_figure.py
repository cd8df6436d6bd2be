"""A picture of the partition: which client holds how many images of which class."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from scarlet.arrays import Integers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_CLASSES, MOST_CLIENTS = 40, 200  # beyond these, circles are too small to read
INK = "#b3202c"
_TOTALS = "Training samples of each client: "


def partition_figure(counts: Integers, path: Path, title: str) -> None:
    """Write an SVG of counts (i64[clients, classes]): clients to the right, classes upwards.

    The area of a circle is proportional to the count; large tables become a heat map.
    """
    totals = _TOTALS + " ".join(map(str, counts.sum(axis=1).tolist()))
    draw(counts, title).savefig(path, format="svg", metadata={"Date": None, "Description": totals})


def totals_in(svg: str) -> list[int]:
    """The number of samples of each client, which the picture describes itself with; none in a picture without."""
    found = re.search(rf"{_TOTALS}([\d ]*)", svg)
    return [int(total) for total in found.group(1).split()] if found else []


def draw(counts: Integers, title: str) -> Figure:
    """The figure, not yet written."""
    # Without pyplot a figure belongs to its caller alone, and no window system is asked for.
    from matplotlib.figure import Figure

    clients, classes = counts.shape
    circles = classes <= MOST_CLASSES and clients <= MOST_CLIENTS
    cell = min(0.3, 12 / clients, 8 / classes) if circles else 0.0
    size = (max(4.0, clients * cell + 1.2), max(2.6, classes * cell + 1.1)) if circles else (9.0, 5.5)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    if circles:
        _circles(axes, counts, cell)
    else:
        _heat_map(figure, axes, counts)
    axes.set(title=title, xlabel="client", ylabel="class")
    axes.locator_params(integer=True, steps=[1, 2, 5, 10])
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _circles(axes: Axes, counts: Integers, cell: float) -> None:
    clients, classes = counts.shape
    client, label = np.nonzero(counts)
    # The largest circle fills its cell; scatter takes areas in points squared.
    area = counts[client, label] / max(1, counts.max()) * (0.95 * cell * 72) ** 2
    axes.scatter(client, label, s=area, color=INK, alpha=0.8, linewidths=0)
    axes.set(xlim=(-0.6, clients - 0.4), ylim=(-0.6, classes - 0.4))
    axes.grid(color="#e4e4e4", linewidth=0.5)
    axes.set_axisbelow(True)


def _heat_map(figure: Figure, axes: Axes, counts: Integers) -> None:
    from matplotlib.colors import PowerNorm

    # Most counts are small: a square root keeps them apart from zero.
    norm = PowerNorm(0.5, vmin=0, vmax=max(1, int(counts.max())))
    image = axes.imshow(counts.T, origin="lower", aspect="auto", cmap="Reds", norm=norm, interpolation="nearest")
    figure.colorbar(image, ax=axes, label="images")
