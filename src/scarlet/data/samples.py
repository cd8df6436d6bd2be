"""Samples with their classes, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from scarlet.arrays import Array, Index, Inputs, Integers


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


def joined(parts: Sequence[Part]) -> Labelled:
    """The samples of some parts, one part after another."""
    arrays = [part.arrays() for part in parts]
    return Labelled(np.concatenate([each.inputs for each in arrays]), np.concatenate([each.labels for each in arrays]))


def fingerprint(array: Array) -> str:
    """Names an array: its type, shape and content."""
    content = blake2b(f"{array.dtype.str}{array.shape}".encode(), digest_size=16)
    content.update(np.ascontiguousarray(array).data)
    return content.hexdigest()
