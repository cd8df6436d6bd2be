"""The methods as the figures want them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scarlet.paper.runs import Wanted
from scarlet.paper.scale import Scale

OTHERS = ("dsfl", "cfd", "comet", "selective-fd", "individual")
CACHES = ("cfd", "comet", "selective-fd")


def scarlet(
    scale: Scale,
    alpha: float,
    seeds: Sequence[int],
    *,
    beta: float | None = None,
    duration: int | None = None,
    on_expiry: str = "delete",
    shared: Mapping[str, Any] | None = None,
) -> Wanted:
    """SCARLET with the paper's beta for that alpha, its D and its rule of expiry, unless they are given."""
    own = {
        "beta": float(scale.tuned(alpha) if beta is None else beta),
        "cache_duration": scale.duration if duration is None else duration,
        "on_expiry": on_expiry,
    }
    return Wanted("scarlet", seeds, {"alpha": alpha, **own, **(shared or {})})


def other(method: str, alpha: float, seeds: Sequence[int], **options: Any) -> Wanted:
    """Another method, with its own defaults unless options are given."""
    return Wanted(method, seeds, {"alpha": alpha, **options})


def everyone(scale: Scale, alpha: float, **shared: Any) -> list[Wanted]:
    """All methods of the comparison."""
    others = [other(method, alpha, scale.seeds, **shared) for method in OTHERS]
    return [scarlet(scale, alpha, scale.seeds, shared=shared), *others]
