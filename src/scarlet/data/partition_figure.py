"""A picture of the partition: which client holds how many images of which class.

The SVG is written directly: to load a plotting library would take longer than a short run.
"""

from __future__ import annotations

import io
import re
from base64 import b64encode
from collections.abc import Iterator
from html import escape
from pathlib import Path

import numpy as np

from scarlet.arrays import Integers

MOST_CLASSES, MOST_CLIENTS = 40, 200  # beyond these, circles are too small to read
INK, GRID, TEXT = (179, 32, 44), "#e4e4e4", "#333333"
LEFT, TOP, RIGHT, BOTTOM = 54, 34, 16, 46  # pixels around the plot
_TOTALS = "Training samples of each client: "


def partition_figure(counts: Integers, path: Path, title: str) -> None:
    """Write an SVG of counts (i64[clients, classes]): clients to the right, classes upwards.

    The area of a circle is proportional to the count; large tables become a heat map.
    """
    path.write_text("\n".join(_svg(counts, title)) + "\n", encoding="utf-8")


def totals_in(svg: str) -> list[int]:
    """The number of samples of each client, which the picture describes itself with; none in a picture without."""
    found = re.search(rf"{_TOTALS}([\d ]*)", svg)
    return [int(total) for total in found.group(1).split()] if found else []


def _svg(counts: Integers, title: str) -> Iterator[str]:
    clients, classes = counts.shape
    circles = classes <= MOST_CLASSES and clients <= MOST_CLIENTS
    cell = min(26.0, 1000 / clients, 700 / classes)
    across, up = (cell, cell) if circles else (800 / clients, 420 / classes)
    width, height = across * clients, up * classes
    size = f"{max(300, LEFT + width + RIGHT):.0f} {TOP + height + BOTTOM:.0f}"
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" width="{size.split()[0]}" role="img">'
    yield f"<title>{escape(title)}</title>"
    yield f"<desc>{_TOTALS}{' '.join(map(str, counts.sum(axis=1).tolist()))}</desc>"
    yield f'<rect width="100%" height="100%" fill="white"/><g font-family="sans-serif" font-size="12" fill="{TEXT}">'
    yield f'<text x="{LEFT}" y="20" font-size="14">{escape(title)}</text>'
    yield f'<text x="{LEFT + width / 2:.1f}" y="{TOP + height + 38:.1f}" text-anchor="middle">client</text>'
    middle = TOP + height / 2
    yield f'<text transform="translate(14 {middle:.1f}) rotate(-90)" text-anchor="middle">class</text>'
    for at in _ticks(clients):
        x = LEFT + (at + 0.5) * across
        yield f'<text x="{x:.1f}" y="{TOP + height + 18:.1f}" text-anchor="middle">{at}</text>'
        if circles:
            yield f'<path d="M{x:.1f} {TOP}v{height:.1f}" stroke="{GRID}"/>'
    for at in _ticks(classes):
        y = TOP + height - (at + 0.5) * up
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{at}</text>'
        if circles:
            yield f'<path d="M{LEFT} {y:.1f}h{width:.1f}" stroke="{GRID}"/>'
    yield from _circles(counts, cell, height) if circles else _heat_map(counts, width, height)
    yield f'<path d="M{LEFT} {TOP}v{height:.1f}h{width:.1f}" fill="none" stroke="{TEXT}"/></g></svg>'


def _ticks(count: int, most: int = 12) -> range:
    """Numbers below `count` at a step of 1, 2 or 5 times a power of ten, at most that many."""
    steps = (step * 10**power for power in range(9) for step in (1, 2, 5))
    return range(0, count, next(step for step in steps if count <= most * step))


def _circles(counts: Integers, cell: float, height: float) -> Iterator[str]:
    yield f'<g fill="rgb{INK}" fill-opacity="0.8">'
    for client, label in np.argwhere(counts).tolist():
        radius = 0.475 * cell * float(np.sqrt(counts[client, label] / counts.max()))  # the largest fills its cell
        x, y = LEFT + (client + 0.5) * cell, TOP + height - (label + 0.5) * cell
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.2f}"/>'
    yield "</g>"


def _heat_map(counts: Integers, width: float, height: float) -> Iterator[str]:
    from PIL import Image  # only needed here

    # Most counts are small: a square root keeps them apart from zero.
    depth = np.rint(255 * np.sqrt(counts.T[::-1] / max(1, counts.max()))).astype(np.uint8)
    image, file = Image.fromarray(depth), io.BytesIO()
    image.putpalette([round(255 + shade / 255 * (ink - 255)) for shade in range(256) for ink in INK])
    image.save(file, "PNG", optimize=True)
    data = b64encode(file.getvalue()).decode()
    yield f'<image x="{LEFT}" y="{TOP}" width="{width:.1f}" height="{height:.1f}" preserveAspectRatio="none"'
    yield f' style="image-rendering: pixelated" href="data:image/png;base64,{data}"/>'
    yield f'<text x="{LEFT + width:.1f}" y="20" text-anchor="end">darkest: {counts.max()} images</text>'
