"""Samples with their classes, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from scarlet.arrays import Array, Index, Integers

# [n, ...]: bytes or float32 of any shape, such as images [n, C, H, W] or rows of a table [n, d]; or i64, such as tokens
Inputs = npt.NDArray[np.uint8] | npt.NDArray[np.float32] | npt.NDArray[np.int64]


class Labelled(NamedTuple):
    """Inputs and the class of each."""

    inputs: Inputs
    labels: Integers  # i64[n]


@dataclass(frozen=True, slots=True)
class Part:
    """Some samples of a dataset; they are copied only when they are wanted."""

    of: Labelled
    index: Index | None = None  # which of them; None: all

    def __len__(self) -> int:
        return len(self.of.labels if self.index is None else self.index)

    @property
    def labels(self) -> Integers:
        return self.of.labels if self.index is None else self.of.labels[self.index]

    def arrays(self) -> Labelled:
        """The samples themselves."""
        if self.index is None:
            return self.of
        return Labelled(self.of.inputs[self.index], self.of.labels[self.index])


def fingerprint(array: Array) -> str:
    """Names the content of an array, its type and its order."""
    content = blake2b(f"{array.dtype.str}{array.shape}".encode(), digest_size=16)
    content.update(np.ascontiguousarray(array).data)
    return content.hexdigest()
