"""The methods as the figures want them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scarlet.paper.runs import Wanted
from scarlet.paper.scale import Scale

OTHERS = ("dsfl", "cfd", "comet", "selective-fd", "individual")
CACHES = ("cfd", "comet", "selective-fd")
AUTO = "auto"  # the beta that the server chooses
REFERENCE: Mapping[str, Any] = {"codec": "reference"}  # float32 labels, and bytes as the paper counts them


def scarlet(
    scale: Scale, alpha: float, seeds: Sequence[int], *, beta: float | str | None = None, **options: Any
) -> Wanted:
    """SCARLET with the paper's beta for that alpha, unless it or a preset is given, and the scale's D and expiry."""
    own = {} if beta is None and "preset" in options else {"beta": beta or scale.tuned(alpha)}
    return Wanted("scarlet", seeds, {"alpha": alpha, **own, **options})


def compact(scale: Scale) -> Mapping[str, Any]:
    """The codec of `scarlet run`, which only presets differ from."""
    return {"codec": "compact"} if scale.presets else {}


def other(method: str, alpha: float, seeds: Sequence[int], **options: Any) -> Wanted:
    """Another method, with its own defaults unless options are given."""
    return Wanted(method, seeds, {"alpha": alpha, **options})


def everyone(scale: Scale, alpha: float, **shared: Any) -> list[Wanted]:
    """All methods of the comparison."""
    others = [other(method, alpha, scale.seeds, **shared) for method in OTHERS]
    return [scarlet(scale, alpha, scale.seeds, **shared), *others]
