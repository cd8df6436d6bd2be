"""How the clients' soft-labels of a sample become one: a mean, and what sharpens it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from scarlet.arrays import Index, Labels
from scarlet.errors import ConfigError
from scarlet.protocol.aggregation import Aggregate, Aggregation

Rows = npt.NDArray[np.float64]
Sharpen = Callable[[Rows], Rows]
Keep = Callable[[Rows], npt.NDArray[np.bool_]]  # which rows are worth teaching

# Soft-labels are summed as integers of 2^-40, because integer addition gives the same sum in every order of arrival.
# The sum of 2^23 clients still fits into 63 bits, and the step of 1e-12 is far below the rounding of a float32.
# That is the step of a float64 from 2^12 to 2^13, so to add a number in their middle rounds to it; the bits of the
# result are then the integer and the bits of that number, which are taken away again in the end.
_MIDDLE = np.float64(1.5 * 2**12)
_MIDDLE_BITS = _MIDDLE.view(np.int64)


def power(beta: float) -> Sharpen:
    """Enhanced ERA: z_i^beta / sum_j z_j^beta (Eq. 4), in log space; an exact zero stays zero. beta=1: the identity."""
    if not (np.isfinite(beta) and beta > 0):
        raise ConfigError(f"beta must be more than 0, got {beta}; use 1 to leave the mean as it is")

    def sharpen(mean: Rows) -> Rows:
        with np.errstate(divide="ignore"):
            return _softmax(np.log(mean), beta)

    return sharpen


def era(temperature: float) -> Sharpen:
    """ERA of DS-FL: softmax(z / T) over the averaged *probabilities* (Eq. 2). It is not the identity for any T."""
    if not (np.isfinite(temperature) and temperature > 0):
        raise ConfigError(f"temperature must be more than 0, got {temperature}; 0.1 is usual for ten classes")
    return lambda mean: _softmax(mean, 1 / temperature)


def mean(*, then: Sharpen | None = None, keep: Keep | None = None) -> Aggregate:
    """The mean over the clients that answered a sample; then those that `keep` keeps, as `then` makes them.

    Memory: O(|I_req| x N), whatever the clients.
    """
    return lambda request, classes: _Mean(request, classes, then, keep)


class _Mean(Aggregation):
    def __init__(self, request: Index, classes: int, then: Sharpen | None, keep: Keep | None) -> None:
        self._request = request
        self._bits = np.zeros((len(request), classes), np.int64)
        self._shifted = np.empty((len(request), classes))
        self._whole = 0  # answers to all of the request
        self._answers = np.zeros(len(request), np.int64)  # the others
        self._then = then
        self._keep = keep

    def add(self, client: int, labels: Labels) -> None:
        shifted = self._shifted[: len(labels.index)]
        shifted[:] = labels.value
        shifted += _MIDDLE
        if len(labels.index) == len(self._request):
            self._bits += shifted.view(np.int64)
            self._whole += 1
        else:
            row = np.searchsorted(self._request, labels.index)
            self._bits[row] += shifted.view(np.int64)
            self._answers[row] += 1

    def finish(self) -> Labels:
        answers = self._answers + self._whole
        index, total = self._request, self._bits - _MIDDLE_BITS * answers[:, np.newaxis]
        if not self._whole:  # some samples may be nobody's
            answered = answers > 0
            index, total = index[answered], total[answered]
        rows = total.astype(np.float64)
        rows /= rows.sum(axis=1, keepdims=True)
        if self._keep is not None:
            kept = self._keep(rows)
            index, rows = index[kept], rows[kept]
        if self._then is not None:
            rows = self._then(rows)
        return Labels(index, rows.astype(np.float32))


def _softmax(scores: Rows, factor: float) -> Rows:
    """softmax(factor x scores); the largest score of a row becomes 0 before it is scaled, so that nothing overflows."""
    if not len(scores):
        return scores
    below = scores - scores.max(axis=1, keepdims=True)
    with np.errstate(over="ignore", invalid="ignore"):
        raised = np.where(below == 0, 1.0, np.exp(factor * below))
    softened: Rows = raised / raised.sum(axis=1, keepdims=True)
    return softened
