"""Numbers and names as text of the page."""

from __future__ import annotations

from html import escape as _escape

from scarlet.report.summary import Estimate

DASH = "–"


def escape(value: str) -> str:
    """Text from a file, so that none of it is read as HTML."""
    return _escape(value, quote=True)


def accuracy(value: Estimate | None) -> str:
    """Three decimals, with the deviation over seeds if there is one."""
    if value is None:
        return DASH
    spread = "" if value.deviation is None else f" ± {value.deviation:.3f}"
    return f"{value.mean:.3f}{spread}"


def megabytes(value: float | None) -> str:
    """About three digits, whatever the size."""
    if value is None:
        return DASH
    if value >= 100:
        return f"{value:,.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3g}"


def decimal(value: float | None, digits: int) -> str:
    """A number with a fixed number of decimals."""
    return DASH if value is None else f"{value:,.{digits}f}"
