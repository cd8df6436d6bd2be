"""The numbers that the page computes with: what its script reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from scarlet.report.axes import WITHOUT, Axis
from scarlet.report.counts import PAYLOAD, Count
from scarlet.report.settings import settings
from scarlet.report.strokes import Stroke
from scarlet.report.summary import last_rounds, over_seeds, steps
from scarlet.report.variants import Variant


def embedded(by_count: Mapping[Count, Sequence[Variant]], strokes: Sequence[Stroke], axes: Sequence[Axis]) -> object:
    """The options that vary, and of each variant its values of them, its accuracies and what they cost."""
    traffic = [[steps(variant) for variant in variants] for variants in by_count.values()]
    return {
        "counts": [count.id for count in by_count],
        "axes": [{"option": axis.option, "values": axis.values, "without": _without(axis)} for axis in axes],
        "variants": [
            {
                "name": variant.name,
                "colour": stroke.colour,
                "opacity": stroke.opacity,
                "at": [axis.position(variant.runs[0]) for axis in axes],
                "server_accuracy": _mean(variant, "server_accuracy"),
                "client_accuracy": _mean(variant, "client_accuracy"),
                # [accuracy, round, MB for each of the counts]
                "steps": [
                    [round(same[0].accuracy, 6), same[0].round, *(round(step.megabytes, 6) for step in same)]
                    for same in zip(*(of_count[at] for of_count in traffic), strict=True)
                ],
                "settings": settings(variant),
            }
            for at, (variant, stroke) in enumerate(zip(by_count.get(PAYLOAD, ()), strokes, strict=True))
        ],
    }


def data_script(content: object, attributes: str = "") -> str:
    """An element with data for a script, which nothing in the data can end."""
    written = json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    return f'<script type="application/json"{attributes}>{written}</script>'


def _mean(variant: Variant, quantity: str) -> float | None:
    found = over_seeds(variant, lambda run: last_rounds(run, quantity))
    return None if found is None else round(found.mean, 6)


def _without(axis: Axis) -> int | None:
    return axis.values.index(WITHOUT) if WITHOUT in axis.values else None
