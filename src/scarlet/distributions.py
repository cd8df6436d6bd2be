"""What a soft-label must be, and how sharp it is."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from scarlet.arrays import Values
from scarlet.errors import MessageError

# How far a row may be from a sum of 1. A float32 softmax over 1,000 classes is off by less than 1e-5.
SUM_TOLERANCE = 1e-3
# The bits of floats from 0 up are in their order, and above them come those of infinity, NaN and all that is negative.
_BITS_OF_2 = int(np.float32(2).view(np.uint32))


def check_distributions(value: Values, who: str) -> None:
    """Raise MessageError unless every row is finite, has no negative entry and sums to 1."""
    if value.size and _plainly_sound(value):  # as nearly always
        return
    if not np.isfinite(value).all():
        raise MessageError(
            f"{who} sends a soft-label with NaN or infinity; a smaller lr may keep it from diverging", "not finite"
        )
    if (value < 0).any():
        raise MessageError(f"{who} sends a soft-label with a negative entry", "negative")
    if (np.abs(value.sum(axis=-1, dtype=np.float64) - 1) > SUM_TOLERANCE).any():
        raise MessageError(f"{who} sends a soft-label that does not sum to 1", "unnormalised")


def _plainly_sound(value: Values) -> bool:
    """Whether all is well within the rules; if not, it may still be at their edge."""
    bits = value.view(np.uint32)
    if bits.item(bits.argmax()) >= _BITS_OF_2:
        return False
    off = value.reshape(-1, value.shape[-1]).dot(_ones(value.shape[-1])) - 1
    return bool(off.dot(off) < (0.9 * SUM_TOLERANCE) ** 2)


@cache
def _ones(classes: int) -> Values:
    return np.ones(classes, np.float32)


def entropy(value: Values) -> npt.NDArray[np.float64]:
    """The entropy of each row, in nats: -sum_i z_i ln z_i, with 0 ln 0 = 0."""
    rows = value.astype(np.float64)
    logs = np.log(rows, where=rows > 0, out=np.zeros_like(rows))
    result: npt.NDArray[np.float64] = -(rows * logs).sum(axis=-1)
    return result
