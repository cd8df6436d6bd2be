"""The data of a federation: the samples of each client, and the public dataset."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import overload

import numpy as np
from numpy.lib.format import open_memmap

from scarlet.arrays import Index, Inputs
from scarlet.data.samples import Labelled, Part, fingerprint, joined


@dataclass(frozen=True)
class FederatedData:
    """Who holds what. Clients are numbered from 0, in the order of their names."""

    names: Sequence[str]  # of the clients
    train: Sequence[Part]  # for each client: its training samples
    test: Sequence[Part | None]  # for each client: its test samples; None: its accuracy is not measured
    public: Inputs  # [P, ...]
    held_out: Part | None  # what the server's model is tested on; None: its accuracy is not measured
    classes: int
    class_names: tuple[str, ...] | None = None  # None: the classes have numbers only
    validation: Sequence[Part | None] | None = None  # for each client: what it holds out; None: nothing

    def pooled(self) -> FederatedData:
        """The same data in the hands of one client, which is tested on all that is held out."""
        kept = [part for part in self.validation or () if part is not None]
        return replace(
            self,
            names=["0"],
            train=[Part(joined(self.train))],
            test=[self.held_out],
            validation=[Part(joined(kept))] if kept else None,
        )

    def samples_of_a_client(self) -> float:
        """The mean number of training samples."""
        return sum(map(len, self.train)) / len(self.train)

    def bytes_of_a_client(self) -> int:
        """Memory of one client's own inputs, on average."""
        own = sum(len(part) for part in chain(self.train, self.test, self.validation or ()) if part is not None)
        return int(own / len(self.train) * _bytes_each(self.train[0].of.inputs))

    def nbytes(self) -> int:
        """Memory of all inputs but the public ones."""
        return sum(int(pool.inputs.nbytes) for pool in _pools([*self.train, *self.test, self.held_out]))

    @cached_property
    def public_fingerprint(self) -> str:
        """Names the public dataset: its content, order and preprocessing."""
        return fingerprint(self.public)

    @cached_property
    def fingerprint(self) -> str:
        """Names all data of the federation, and who holds it."""
        content = blake2b(repr(list(self.names)).encode(), digest_size=16)
        for pool in _pools([*self.train, *self.test, self.held_out]):
            content.update((fingerprint(pool.inputs) + fingerprint(pool.labels)).encode())
        for part in (*self.train, *self.test, self.held_out):
            content.update(b"-" if part is None else b"all" if part.index is None else part.index.tobytes())
        return self.public_fingerprint + content.hexdigest()

    def save(self, folder: Path, *, channels_last: bool) -> StoredData:
        """Write everything to files that many processes can map into memory; `channels_last` is of public images."""
        parts_of = {"train": self.train, "test": self.test}
        if self.validation is not None:
            parts_of["validation"] = self.validation
        pools = list(_pools(chain(*parts_of.values())))
        starts = dict(zip(map(id, pools), np.cumsum([0, *(len(pool.labels) for pool in pools)]).tolist(), strict=False))
        _save_in_turn(folder / "inputs.npy", [pool.inputs for pool in pools])
        _save_in_turn(folder / "labels.npy", [pool.labels for pool in pools])
        for name, parts in parts_of.items():
            _StoredParts.save([_NOBODYS if part is None else _places(part, starts) for part in parts], folder, name)
        channels_last = channels_last and self.public.ndim == 4
        public = self.public.transpose(0, 2, 3, 1) if channels_last else self.public
        np.save(folder / "public.npy", np.ascontiguousarray(public))
        return StoredData(folder, list(self.names), self.classes, channels_last, self.validation is not None)


@dataclass(frozen=True, slots=True)
class StoredData:
    """Where the data of a federation was saved, but for what is held out."""

    folder: Path
    names: list[str]
    classes: int
    channels_last: bool  # how the public images, which every client reads, lie in their file
    validates: bool = False  # whether clients hold something out

    def load(self) -> FederatedData:
        # Mode "c" maps a file privately: torch wants arrays that it could write to, though nobody does.
        inputs, labels, public = (
            np.load(self.folder / f"{name}.npy", mmap_mode="c") for name in ("inputs", "labels", "public")
        )
        pool = Labelled(inputs, labels)
        return FederatedData(
            names=self.names,
            train=_StoredParts(pool, self.folder, "train"),
            test=_StoredParts(pool, self.folder, "test"),
            public=public.transpose(0, 3, 1, 2) if self.channels_last else public,
            held_out=None,
            classes=self.classes,
            validation=_StoredParts(pool, self.folder, "validation") if self.validates else None,
        )


class _StoredParts(Sequence[Part]):
    """For each client, the places of its samples in the pool of all, in one file for all clients."""

    def __init__(self, pool: Labelled, folder: Path, name: str) -> None:
        self._pool = pool
        self._places: Index = np.load(folder / f"{name}.places.npy", mmap_mode="r")
        self._ends: Index = np.load(folder / f"{name}.ends.npy")

    @staticmethod
    def save(places: Sequence[Index], folder: Path, name: str) -> None:
        np.save(folder / f"{name}.places.npy", np.concatenate(places))
        np.save(folder / f"{name}.ends.npy", np.cumsum([len(each) for each in places]))

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, client: int) -> Part: ...
    @overload
    def __getitem__(self, client: slice) -> list[Part]: ...
    def __getitem__(self, client: int | slice) -> Part | list[Part]:
        if isinstance(client, slice):
            return [self[each] for each in range(*client.indices(len(self)))]
        if not 0 <= client < len(self):
            raise IndexError(client)
        start = int(self._ends[client - 1]) if client else 0
        return Part(self._pool, np.array(self._places[start : int(self._ends[client])]))


_NOBODYS: Index = np.empty(0, np.int64)


def _pools(parts: Iterable[Part | None]) -> Iterable[Labelled]:
    """The arrays that the samples are parts of, each once."""
    return {id(part.of): part.of for part in parts if part is not None}.values()


def _places(part: Part, starts: dict[int, int]) -> Index:
    """Where the samples of a part lie in a file of all pools, one after another."""
    index = np.arange(len(part.of.labels)) if part.index is None else part.index
    return starts[id(part.of)] + index


def _save_in_turn(path: Path, arrays: Sequence[Inputs]) -> None:
    """Write arrays one after another into one file, without a copy of all in memory."""
    total = sum(map(len, arrays))
    out = open_memmap(path, "w+", arrays[0].dtype, (total, *arrays[0].shape[1:]))
    start = 0
    for array in arrays:
        out[start : start + len(array)] = array
        start += len(array)
    out.flush()


def _bytes_each(inputs: Inputs) -> int:
    return inputs.itemsize * int(np.prod(inputs.shape[1:]))
