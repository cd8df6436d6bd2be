"""A disk that forgets, at a crash, what was not synced."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field

import numpy as np


class Crash(BaseException):
    """The process that was using the disk dies at this very instant."""


@dataclass(slots=True)
class _File:
    content: bytes = b""  # as a running process sees it
    lasting: bytes = b""  # as it is after a crash


@dataclass(slots=True)
class SimulatedDisk:
    """Files of one directory. `crash_in` counts down the operations to a crash; `fail_in` to a disk that is full."""

    rng: np.random.Generator
    crash_in: int | None = None
    fail_in: int | None = None
    _names: dict[str, _File] = field(default_factory=dict)  # as a running process sees them
    _lasting: dict[str, _File] = field(default_factory=dict)  # as they are after a crash

    def read(self, name: str, start: int = 0, length: int = -1) -> bytes:
        if name not in self._names:
            raise FileNotFoundError(errno.ENOENT, "No such file", name)
        content = self._names[name].content
        return content[start:] if length < 0 else content[start : start + length]

    def write(self, name: str, data: bytes) -> None:
        self._step()
        file = self._names.setdefault(name, _File())
        if self.fail_in is not None:
            self.fail_in -= 1
            if self.fail_in < 0:
                self.fail_in = None
                file.content = data[: len(data) // 2]
                raise OSError(errno.ENOSPC, "No space left on device")
        file.content = data

    def sync(self, name: str) -> None:
        self._step()
        if name:
            self._names[name].lasting = self._names[name].content
        else:
            self._lasting = dict(self._names)

    def rename(self, old: str, new: str) -> None:
        self._step()
        self._names[new] = self._names.pop(old)

    def remove(self, name: str) -> None:
        self._step()
        self._names.pop(name, None)

    def names(self) -> list[str]:
        return list(self._names)

    def crash(self) -> None:
        """Lose what was not synced: names as they were or as they had become, contents whole, cut or not at all."""
        self.crash_in = self.fail_in = None
        survived = self._names if self.rng.random() < 0.5 else self._lasting
        self._names = {}
        for name, file in survived.items():
            # Drawn for every file, so that the faults of a schedule do not depend on what its files say.
            cut, fate = int(self.rng.random() * (len(file.content) + 1)), self.rng.integers(3)
            if file.content != file.lasting:
                file.lasting = (file.lasting, file.content[:cut], file.content)[fate]
            file.content = file.lasting
            self._names[name] = file
        self._lasting = dict(self._names)

    def copy(self) -> SimulatedDisk:
        """A backup of what would last."""
        files = {name: _File(file.lasting, file.lasting) for name, file in self._lasting.items()}
        return SimulatedDisk(self.rng, None, None, files, dict(files))

    def _step(self) -> None:
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in < 0:
                self.crash_in = None
                raise Crash
