"""The figure of the cache simulation: the share of hits in each round, a line for each duration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import plotly.graph_objects as go

from scarlet.errors import ConfigError
from scarlet.report.curves import Floats
from scarlet.report.figures import stroke


def write_cache_figure(hit_ratios: Sequence[tuple[int, Floats]], path: Path) -> None:
    """Write one page that needs nothing else, from each duration and its hit ratios [rounds]."""
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
