"""How the clients' soft-labels of a sample become one: their mean, which may then be sharpened."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from scarlet.arrays import Index, Labels
from scarlet.methods.parts.sharpening import Adaptive, Rows, Sharpen, doubts, sharpened
from scarlet.protocol.aggregation import Aggregate, Aggregation

Keep = Callable[[Rows], npt.NDArray[np.bool_]]  # which rows are worth teaching

# Soft-labels are summed as integers of 2^-40, because integer addition gives the same sum in every order of arrival.
# The sum of 2^23 clients still fits into 63 bits, and the step of 1e-12 is far below the rounding of a float32.
# That is the step of a float64 from 2^12 to 2^13, so to add a number in their middle rounds to it; the bits of the
# result are then the integer and the bits of that number, which are taken away again in the end.
_STEPS = 2**40
_MIDDLE = np.float64(1.5 * 2**12)
_MIDDLE_BITS = _MIDDLE.view(np.int64)


def mean(*, then: Sharpen | Adaptive | None = None, keep: Keep | None = None) -> Aggregate:
    """The mean over the clients that answered a sample; then those that `keep` keeps, as `then` makes them.

    Memory: O(|I_req| x N), whatever the clients.
    """
    return lambda request, classes: _Mean(request, classes, then, keep)


class _Mean(Aggregation):
    def __init__(self, request: Index, classes: int, then: Sharpen | Adaptive | None, keep: Keep | None) -> None:
        self._request = request
        self._bits = np.zeros((len(request), classes), np.int64)
        self._shifted = np.empty((len(request), classes))
        self._whole = 0  # answers to all of the request
        self._answers = np.zeros(len(request), np.int64)  # the others
        self._doubt = np.zeros(len(request), np.int64) if isinstance(then, Adaptive) else None  # sums of entropies
        self._then = then
        self._keep = keep

    def add(self, client: int, labels: Labels) -> None:
        shifted = self._shifted[: len(labels.index)]
        shifted[:] = labels.value
        shifted += _MIDDLE
        if len(labels.index) == len(self._request):
            row: Index | slice = slice(None)
            self._whole += 1
        else:
            row = np.searchsorted(self._request, labels.index)
            self._answers[row] += 1
        self._bits[row] += shifted.view(np.int64)
        if self._doubt is not None:
            self._doubt[row] += np.rint(doubts(labels.value) * _STEPS).astype(np.int64)

    def finish(self) -> Labels:
        answers = self._answers + self._whole
        answered = slice(None) if self._whole else answers > 0  # some samples may be nobody's
        index, answers = self._request[answered], answers[answered]
        total = self._bits[answered] - _MIDDLE_BITS * answers[:, np.newaxis]
        rows = total.astype(np.float64)
        rows /= rows.sum(axis=1, keepdims=True)
        doubt = None if self._doubt is None else self._doubt[answered] / (_STEPS * answers)
        if self._keep is not None:
            kept = self._keep(rows)
            index, rows = index[kept], rows[kept]
            doubt = None if doubt is None else doubt[kept]
        return sharpened(index, rows, doubt, self._then)
