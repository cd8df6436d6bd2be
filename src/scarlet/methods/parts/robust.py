"""Averages that a minority of false answers cannot move far: coordinate-wise trimmed mean and median."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from typing_extensions import Doc

from scarlet.arrays import Index, Labels, Mask, Values
from scarlet.errors import ConfigError
from scarlet.methods.parts.mean import mean
from scarlet.methods.parts.sharpening import Adaptive, Rows, Sharpen, doubts, sharpened
from scarlet.protocol.aggregation import Aggregate, Aggregation

Average = Annotated[
    Literal["mean", "median", "trimmed"],
    Doc("aggregate of the clients' soft-labels; median and trimmed limit what single false answers can do"),
]
Trim = Annotated[float, Doc("with --average trimmed: fraction of the answers that is discarded at each end, per class")]


def average(kind: Average, trim: Trim, *, then: Sharpen | Adaptive) -> Aggregate:
    """The aggregate of that name, sharpened. `trimmed` with trim=0 is the mean."""
    if not 0 <= trim < 0.5:
        raise ConfigError(f"trim must be at least 0 and less than 0.5, got {trim}; it is cut off at both ends")
    match kind:
        case "mean":
            return mean(then=then)
        case "median":
            return lambda request, classes: _Trimmed(request, classes, 0.5, then)
        case "trimmed":
            return lambda request, classes: _Trimmed(request, classes, trim, then)
    raise ConfigError(f"average must be mean, median or trimmed, got {kind!r}")


class _Trimmed(Aggregation):
    """Leave out, in each entry of a label, the `trim` share of the answers at either end; 0.5 leaves the median.

    It must gather all answers: memory is O(clients x |I_req| x N).
    """

    def __init__(self, request: Index, classes: int, trim: float, then: Sharpen | Adaptive) -> None:
        self._request = request
        self._shape = (len(request), classes)
        self._trim = trim
        self._then = then
        self._answers: list[Values] = []

    def add(self, client: int, labels: Labels) -> None:
        value = np.full(self._shape, np.nan, np.float32)
        value[np.searchsorted(self._request, labels.index)] = labels.value
        self._answers.append(value)

    def finish(self) -> Labels:
        if not self._answers:
            return Labels(self._request[:0], np.empty((0, self._shape[1]), np.float32))
        answers = np.sort(np.stack(self._answers).astype(np.float64), axis=0)  # [K, n, N]; what is missing comes last
        count = (~np.isnan(answers[:, :, :1])).sum(axis=0)  # [n, 1]
        answered = count[:, 0] > 0
        answers, count = answers[:, answered], count[answered]
        cut = np.minimum((self._trim * count).astype(np.int64), (count - 1) // 2)
        rank = np.arange(len(answers))[:, np.newaxis, np.newaxis]
        kept = (rank >= cut) & (rank < count - cut)
        rows = _mean_of(answers, kept)
        # Where the answers have nothing in common, such as as many certain classes, nothing is left between the ends.
        empty = rows.sum(axis=1) <= 0
        rows[empty] = _mean_of(answers[:, empty], rank < count[empty])
        rows /= rows.sum(axis=1, keepdims=True)
        doubt = None
        if isinstance(self._then, Adaptive):
            unsure = np.sort([doubts(each) for each in self._answers], axis=0)[:, answered, np.newaxis]
            doubt = _mean_of(unsure.astype(np.float64), kept)[:, 0]
        return sharpened(self._request[answered], rows, doubt, self._then)


def _mean_of(answers: Rows, kept: Mask) -> Rows:
    total: Rows = np.where(kept, answers, 0).sum(axis=0)
    total /= kept.sum(axis=0)
    return total
