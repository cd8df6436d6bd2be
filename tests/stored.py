"""A state that changes from checkpoint to checkpoint, and disks to keep it on."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from scarlet.store import Disk, Folder, Snapshot, Store
from tests.faults.disk import SimulatedDisk

Array = npt.NDArray[np.generic]
State = dict[str, dict[str, Array]]


def content(parts: object) -> object:
    """Parts in a form that == compares bit by bit."""
    if isinstance(parts, np.ndarray):
        return parts.dtype.str, parts.shape, parts.tobytes()
    assert isinstance(parts, dict)
    return {name: content(part) for name, part in parts.items()}


def loaded(disk: Disk) -> tuple[int, object] | None:
    """What a new process finds."""
    found = Store(disk).load()
    return None if found is None else (found.number, content(dict(found.parts)))


def state(number: int) -> State:
    """A server, which changes in every round, and three clients; client k does not change in each k-th."""
    server: dict[str, Array] = {"cache": np.full((5, 3), number, np.float32), "stamp": np.arange(number)}
    clients: State = {f"client-{k}": {"model": np.arange(40) + 100 * k + number - number // k} for k in (2, 3, 20)}
    return {"server": server, **clients}


def changes(number: int) -> State:
    """The parts of a state that are not as they were before."""
    return {
        part: arrays
        for part, arrays in state(number).items()
        if number == 1 or content(arrays) != content(state(number - 1)[part])
    }


def snapshot(number: int) -> Snapshot:
    return Snapshot(number, {"number": number}, changes(number))


def written(disk: Disk, last: int) -> Store:
    """Checkpoints 1 to `last`."""
    store = Store(disk)
    for number in range(1, last + 1):
        store.save(snapshot(number))
    return store


def expected(number: int) -> tuple[int, object] | None:
    return (number, content(state(number))) if number else None


def simulated(seed: int = 0) -> SimulatedDisk:
    return SimulatedDisk(np.random.default_rng(seed))


@pytest.fixture(params=["folder", "simulated disk"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return Folder(tmp_path / "checkpoint") if request.param == "folder" else simulated()


class Counting(Folder):
    """A folder that counts what is written to it, and may be full."""

    room: int | None = None  # writes that still succeed
    count = 0  # bytes

    def write(self, name: str, data: bytes) -> None:
        if self.room is not None:
            self.room -= 1
            if self.room < 0:
                super().write(name, data[: len(data) // 2])
                raise OSError(errno.ENOSPC, "No space left on device")
        self.count += len(data)
        super().write(name, data)
