"""The array types, and soft-labels, which nearly everything here is about."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
Integers = npt.NDArray[np.int64]
Index = Integers  # i64[n]: numbers of samples, ascending
Mask = npt.NDArray[np.bool_]
Values = npt.NDArray[np.float32]
# [n, ...]: bytes or float32 of any shape, such as images [n, C, H, W] or rows of a table [n, d]; or i64, such as tokens
Inputs = npt.NDArray[np.uint8] | npt.NDArray[np.float32] | npt.NDArray[np.int64]

DIGEST_BYTES = 8


@dataclass(frozen=True, slots=True)
class Labels:
    """Soft-labels of some public samples."""

    index: Index  # i64[n], ascending
    value: Values  # f32[n, N], each row a distribution; or f32[n, C, N] where a sample has several teachers

    def digest(self) -> bytes:
        """A fingerprint of the values, and of the samples that they belong to."""
        content = blake2b(self.index.astype("<i8").tobytes(), digest_size=DIGEST_BYTES)
        content.update(self.value.astype("<f4", copy=False).tobytes())
        return content.digest()
