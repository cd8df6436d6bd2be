"""The data of a federation: the datasets, and which samples of the private one each client holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import overload

import numpy as np
import numpy.typing as npt

from scarlet.arrays import Images, Index
from scarlet.data.datasets import PrivateSet
from scarlet.data.samples import fingerprint

_PRIVATE = ("train_images", "train_labels", "test_images", "test_labels")


@dataclass(frozen=True, slots=True)
class Data:
    """The datasets of a federation: the labelled private one, and the unlabelled public one."""

    private: PrivateSet
    public: Images  # [P, C, H, W], of the private images' shape


@dataclass(frozen=True)
class FederatedData:
    """A private dataset shared out among clients, and the public dataset."""

    private: PrivateSet
    public: Images  # [P, C, H, W]
    train: Sequence[Index]  # for each client: its training samples
    test: Sequence[Index]  # for each client: its test samples

    def pooled(self) -> FederatedData:
        """The same data in the hands of one client, which is tested on the whole test split."""
        everything = np.sort(np.concatenate(self.train))
        return replace(self, train=[everything], test=[np.arange(len(self.private.test_labels))])

    def bytes_of_a_client(self) -> int:
        """Memory of one client's own images."""
        train, test = self.private.train_images[0].nbytes, self.private.test_images[0].nbytes
        return int(len(self.train[0]) * train + len(self.test[0]) * test)

    @cached_property
    def public_fingerprint(self) -> str:
        """Names the public dataset: its content, order and preprocessing."""
        return fingerprint(self.public)

    @cached_property
    def fingerprint(self) -> str:
        """Names all data of the federation."""
        private = self.private
        images = fingerprint(private.train_images) + fingerprint(private.test_images)
        labels = fingerprint(private.train_labels) + fingerprint(private.test_labels)
        return self.public_fingerprint + images + labels

    def save(self, folder: Path, *, channels_last: bool) -> StoredData:
        """Write everything to files that many processes can map into memory."""
        for name in _PRIVATE:
            np.save(folder / f"{name}.npy", np.ascontiguousarray(getattr(self.private, name)))
        public = self.public.transpose(0, 2, 3, 1) if channels_last else self.public
        np.save(folder / "public.npy", np.ascontiguousarray(public))
        for name in ("train", "test"):
            _StoredShares.save(getattr(self, name), folder, name)
        empty = dict.fromkeys(_PRIVATE, np.empty(0, np.int64))
        return StoredData(folder, replace(self.private, **empty), channels_last)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class StoredData:
    """Where the data of a federation was saved."""

    folder: Path
    private: PrivateSet  # without its arrays
    channels_last: bool  # how the public images, which every client reads, lie in their file

    def load(self) -> FederatedData:
        # Mode "c" maps a file privately: torch wants arrays that it could write to, though nobody does.
        arrays = {name: np.load(self.folder / f"{name}.npy", mmap_mode="c") for name in (*_PRIVATE, "public")}
        public = arrays.pop("public")
        return FederatedData(
            replace(self.private, **arrays),
            public.transpose(0, 3, 1, 2) if self.channels_last else public,
            _StoredShares(self.folder, "train"),
            _StoredShares(self.folder, "test"),
        )


class _StoredShares(Sequence[Index]):
    """For each client, the numbers of its samples, in one file for all clients."""

    def __init__(self, folder: Path, name: str) -> None:
        self._flat: npt.NDArray[np.int32] = np.load(folder / f"{name}.shares.npy", mmap_mode="r")
        self._ends: Index = np.load(folder / f"{name}.ends.npy")

    @staticmethod
    def save(shares: Sequence[Index], folder: Path, name: str) -> None:
        np.save(folder / f"{name}.shares.npy", np.concatenate([share.astype(np.int32) for share in shares]))
        np.save(folder / f"{name}.ends.npy", np.cumsum([len(share) for share in shares]))

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, client: int) -> Index: ...
    @overload
    def __getitem__(self, client: slice) -> list[Index]: ...
    def __getitem__(self, client: int | slice) -> Index | list[Index]:
        if isinstance(client, slice):
            return [self[each] for each in range(*client.indices(len(self)))]
        if not 0 <= client < len(self):
            raise IndexError(client)
        start = int(self._ends[client - 1]) if client else 0
        return self._flat[start : int(self._ends[client])].astype(np.int64)
