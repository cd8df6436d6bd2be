"""State to a directory and back: safetensors and JSON, never pickle; written to the side, synced and renamed.

A checkpoint is a manifest, `N.json`, that names for each part of the state the file that holds it, with a digest of
each file. A file holds only the parts that changed, so a manifest may point to files of earlier checkpoints. The rename
of the manifest is the moment at which a checkpoint comes to be; before it, the one before is the newest.
"""

from __future__ import annotations

import json
import os
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save
from zlib_ng.zlib_ng import crc32

Arrays = Mapping[str, npt.NDArray[np.generic]]

_KEPT = 2  # the newest checkpoint, and the one to fall back to
_LENGTH = struct.Struct("<Q")


class Disk(Protocol):
    """What a checkpoint needs of a file system; names are files of one directory."""

    def read(self, name: str, start: int = 0, length: int = -1) -> bytes:
        """What a file holds, or so many bytes of it."""

    def write(self, name: str, data: bytes) -> None: ...

    def sync(self, name: str) -> None:
        """Make a file's content last; the empty name means the directory itself."""

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, name: str) -> None: ...

    def names(self) -> list[str]: ...


class Folder:
    """A directory of this machine's file system."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)

    def read(self, name: str, start: int = 0, length: int = -1) -> bytes:
        with (self.path / name).open("rb") as file:
            file.seek(start)
            return file.read(length)

    def write(self, name: str, data: bytes) -> None:
        (self.path / name).write_bytes(data)

    def sync(self, name: str) -> None:
        descriptor = os.open(self.path / name, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, old: str, new: str) -> None:
        (self.path / old).replace(self.path / new)

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        return [path.name for path in self.path.iterdir()]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state as it was at some moment; `number` grows from checkpoint to checkpoint."""

    number: int
    meta: Mapping[str, object]  # what is not an array; anything that JSON can hold
    parts: Mapping[str, Arrays]


class Store:
    """Keeps the newest checkpoint of one state, and the one before."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._manifests: dict[int, _Manifest] = {}
        self.damaged: list[str] = []  # what was wrong with the checkpoints that `load` passed over

    def save(self, snapshot: Snapshot) -> None:
        """Write a snapshot; the parts that it leaves out are as in the checkpoint before."""
        before = self._manifests[max(self._manifests)] if self._manifests else _Manifest({}, {}, {})
        file = f"{snapshot.number}.safetensors"
        arrays = {f"{part}/{name}": array for part, its in snapshot.parts.items() for name, array in its.items()}
        content = save({name: np.asarray(array, order="C") for name, array in arrays.items()})
        parts = {**before.parts, **dict.fromkeys(snapshot.parts, file)}
        known = {**before.digests, file: _digest(content)}
        digests = {name: known[name] for name in set(parts.values())}
        manifest = _Manifest(dict(snapshot.meta), parts, digests)
        self._install(file, content)
        self._install(f"{snapshot.number}.json", manifest.encode())
        self._disk.sync("")
        self._manifests[snapshot.number] = manifest
        self._clean()

    def load(self) -> Snapshot | None:
        """The newest checkpoint that is whole; None if there is none. What was passed over is in `damaged`."""
        self._manifests.clear()
        stems = [name.removesuffix(".json") for name in self._disk.names() if name.endswith(".json")]
        found: Snapshot | None = None
        for number in sorted((int(stem) for stem in stems if stem.isdecimal()), reverse=True):
            try:
                manifest = _Manifest.decode(self._disk.read(f"{number}.json"))
                self._check(manifest)
            except (OSError, ValueError, SafetensorError) as error:
                self.damaged.append(f"checkpoint {number} is damaged ({error})")
                continue
            self._manifests[number] = manifest
            found = found or Snapshot(number, manifest.meta, _Parts(self._disk, manifest.parts))
            if len(self._manifests) == _KEPT:
                break  # what is older was being removed, and may rightly be in pieces
        return found

    def _install(self, name: str, content: bytes) -> None:
        # Written and synced under another name first: under its own name a file is whole, or it is not there.
        self._disk.write(f"{name}.part", content)
        self._disk.sync(f"{name}.part")
        self._disk.rename(f"{name}.part", name)

    def _check(self, manifest: _Manifest) -> None:
        for name, digest in manifest.digests.items():
            content = self._disk.read(name)
            if _digest(content) != digest:
                raise ValueError(f"{name} has changed")
            load(content)

    def _clean(self) -> None:
        """Remove all that the kept checkpoints do not need."""
        for number in sorted(self._manifests)[:-_KEPT]:
            del self._manifests[number]
        needed = {f"{number}.json" for number in self._manifests}
        needed |= {file for manifest in self._manifests.values() for file in manifest.digests}
        for name in self._disk.names():
            if name not in needed:
                self._disk.remove(name)


@dataclass(frozen=True, slots=True)
class _Parts(Mapping[str, Arrays]):
    """The parts of a checkpoint, each read when it is wanted: all of them together may not fit into memory.

    The file of a part is there until a newer version of that part has been saved, and one checkpoint more.
    """

    disk: Disk
    files: Mapping[str, str]  # part -> file
    _tables: dict[str, _Table] = field(default_factory=dict)

    def __getitem__(self, part: str) -> Arrays:
        file = self.files[part]
        if file not in self._tables:
            self._tables[file] = _Table(self.disk, file)
        return self._tables[file].read(part)

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)


class _Table:
    """Where in a file of safetensors the arrays of each part lie: after a table in JSON, and the length of that."""

    def __init__(self, disk: Disk, file: str) -> None:
        self._disk, self._file = disk, file
        (length,) = _LENGTH.unpack(disk.read(file, 0, _LENGTH.size))
        self._end = _LENGTH.size + length
        self._parts: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)  # part -> array -> its entry
        for name, entry in json.loads(disk.read(file, _LENGTH.size, length)).items():
            part, _, array = name.partition("/")
            self._parts[part][array] = entry

    def read(self, part: str) -> Arrays:
        """The arrays of a part, from what a file of that part alone would hold."""
        entries, content, size = {}, [], 0
        for name, entry in self._parts[part].items():
            first, last = entry["data_offsets"]
            entries[name] = {**entry, "data_offsets": (size, size + last - first)}
            content.append(self._disk.read(self._file, self._end + first, last - first))
            size += last - first
        table = json.dumps(entries).encode()
        return load(b"".join([_LENGTH.pack(len(table)), table, *content]))


@dataclass(frozen=True, slots=True)
class _Manifest:
    meta: dict[str, object]
    parts: dict[str, str]  # part -> file
    digests: dict[str, str]  # file -> digest of its content

    def encode(self) -> bytes:
        body = json.dumps({"meta": self.meta, "parts": self.parts, "digests": self.digests}).encode()
        return _digest(body).encode() + b"\n" + body

    @classmethod
    def decode(cls, content: bytes) -> _Manifest:
        digest, _, body = content.partition(b"\n")
        if _digest(body).encode() != digest:
            raise ValueError("its manifest has changed")
        return cls(**json.loads(body))


def _digest(content: bytes) -> str:
    """Tells a damaged file from a whole one; a checkpoint is written after every round, and this must be quick."""
    return f"{len(content)}-{crc32(content):08x}"
