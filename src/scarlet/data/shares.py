"""Lists of images, one for each client, in one array that processes can share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import overload

import numpy as np
import numpy.typing as npt

from scarlet.data.source import Integers


class Shares(Sequence[Integers]):
    """For each client, the indices of its images. They lie in files that are mapped into memory."""

    def __init__(self, folder: Path, name: str) -> None:
        self._flat: npt.NDArray[np.int32] = np.load(folder / f"{name}.npy", mmap_mode="r")
        self._ends: Integers = np.load(folder / f"{name}.ends.npy")

    @staticmethod
    def save(shares: Sequence[Integers], folder: Path, name: str) -> None:
        """Write the files."""
        np.save(folder / f"{name}.npy", np.concatenate([share.astype(np.int32) for share in shares]))
        np.save(folder / f"{name}.ends.npy", np.cumsum([len(share) for share in shares]))

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, client: int) -> Integers: ...
    @overload
    def __getitem__(self, client: slice) -> list[Integers]: ...
    def __getitem__(self, client: int | slice) -> Integers | list[Integers]:
        if isinstance(client, slice):
            return [self[each] for each in range(*client.indices(len(self)))]
        if not 0 <= client < len(self):
            raise IndexError(client)
        start = int(self._ends[client - 1]) if client else 0
        return self._flat[start : int(self._ends[client])].astype(np.int64)
