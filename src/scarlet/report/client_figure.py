"""The accuracy of each client, sorted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from scarlet.report.clients import Client, read_clients
from scarlet.report.figures import Drawn, layout, short
from scarlet.report.strokes import Stroke
from scarlet.report.variants import Variant

MOST = 200  # clients of a run that have a dot each


def client_figure(variants: Sequence[Variant], strokes: Sequence[Stroke]) -> Drawn | None:
    """A line for each run, its clients from the least to the most accurate; None where no run has several."""
    traces = []
    for position, (variant, stroke) in enumerate(zip(variants, strokes, strict=True)):
        for run in variant.runs:
            clients = [] if run.directory is None else read_clients(run.directory)
            if len(clients) > 1:
                name = escape(f"{variant.name}, seed {run.seed}")
                traces.append({"name": name, "legendgroup": str(position), **_trace(clients, stroke)})
    if not traces:
        return None
    return {"data": traces, "layout": layout("clients, the least accurate first", {}, {}, height=300)}


def _trace(clients: Sequence[Client], stroke: Stroke) -> Drawn:
    ordered = sorted(clients, key=lambda client: client.accuracy)
    trace: Drawn = {
        "type": "scatter",
        "x": list(range(1, len(ordered) + 1)),
        "y": [short(client.accuracy) for client in ordered],
        "line": {"color": stroke.rgba(), "dash": stroke.dash, "width": 1.5},
    }
    if len(ordered) > MOST:
        return {**trace, "mode": "lines", "hovertemplate": "%{y:.3~f}"}
    trace |= {
        "mode": "lines+markers",
        "text": [escape(_described(client)) for client in ordered],
        "hovertemplate": "%{text}: %{y:.3~f}",
    }
    samples = [client.samples or 0 for client in ordered]
    if len(set(samples)) > 1:  # the area of a dot shows their number
        trace["marker"] = {"size": [round(4 + 10 * math.sqrt(own / max(samples)), 1) for own in samples]}
    return trace


def _described(client: Client) -> str:
    known = "" if client.samples is None else f", {client.samples:,} training samples"
    return f"client {client.name}{known}"
