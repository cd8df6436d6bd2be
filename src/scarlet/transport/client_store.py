"""Clients of one process: made when they are first asked, a bounded number in memory, the others on disk."""

from __future__ import annotations

import tempfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

import numpy as np
from safetensors.numpy import load, save

from scarlet.arrays import Array
from scarlet.errors import ScarletError

_MOST_IN_WRITING = 4  # a disk that is slower than training delays a round, so that memory stays bounded

Arrays = Mapping[str, Array]
T = TypeVar("T")


class ScratchError(ScarletError):
    """A client's state could not be written to disk, or read back."""


class Kept(Protocol):
    """A client in memory."""

    def arrays(self) -> Arrays:
        """All that it remembers."""


K = TypeVar("K", bound=Kept)


class ClientStore(Generic[K]):
    """Keeps at most `limit` clients in memory; the least recently used go to disk while others are at work."""

    def __init__(self, limit: int, make: Callable[[int, Arrays | None], K], saved: Mapping[int, Arrays]) -> None:
        assert limit >= 1
        self._limit = limit
        self._make = make  # (client, what it remembers, if anything)
        self._saved = saved  # by an earlier run
        self._taken_over: dict[int, Arrays] = {}  # what clients remember that ran elsewhere, until they are asked
        self._scratch = _Scratch()
        self._ready: OrderedDict[int, K] = OrderedDict()  # the least recently used first
        self._leaving: dict[int, tuple[K, Future[None]]] = {}  # in memory until they are written
        self._coming: dict[int, Future[Arrays]] = {}  # at most one

    def __getitem__(self, number: int) -> K:
        """A client; it stays in memory until `limit` others have been asked for."""
        client = self._ready.pop(number, None) or self._recalled(number)
        if client is None:
            self._make_room()
            client = self._make(number, self._remembered(number))
            self._taken_over.pop(number, None)
        self._ready[number] = client
        return client

    def expect(self, number: int) -> None:
        """Begin to read a client that will be asked for soon, if it is on disk."""
        if number in self._scratch and self._in_memory(number) is None and number not in self._coming:
            self._coming = {number: self._scratch.read(number)}

    def arrays(self, number: int, *, keep: bool = False) -> Arrays | None:
        """What a client remembers; None if it was never asked. It need not be in memory, nor does it come there.

        `keep` what an earlier run saved of it in memory: what is saved anew may outlive the file that it came from.
        """
        client = self._in_memory(number)
        if client is not None:
            return client.arrays()
        found = self._remembered(number)
        if keep and found is not None and number not in self._scratch:
            self._taken_over[number] = found
        return found

    def take_over(self, number: int, arrays: Arrays) -> None:
        """Take over a client that remembers this."""
        self._taken_over[number] = arrays

    def replace(self, number: int, client: K) -> None:
        """Put another client in the place of one that was just asked for."""
        self._ready[number] = client

    def forget(self, number: int) -> None:
        """Give a client away; should it come back, then with all that it remembers."""
        self._ready.pop(number, None)
        self._taken_over.pop(number, None)
        self._coming.pop(number, None)
        if number in self._leaving:
            self._leaving.pop(number)[1].cancel()
        self._scratch.forget(number)

    def close(self) -> None:
        """Give back the disk."""
        self._scratch.close()

    def _in_memory(self, number: int) -> K | None:
        if number in self._leaving:
            return self._leaving[number][0]
        return self._ready.get(number)

    def _recalled(self, number: int) -> K | None:
        """A client that is still being written: it is used as it is, and will be written again."""
        if number not in self._leaving:
            return None
        client, writing = self._leaving.pop(number)
        writing.cancel()
        self._make_room()
        return client

    def _remembered(self, number: int) -> Arrays | None:
        if number in self._taken_over:
            return self._taken_over[number]
        if number in self._scratch:
            coming = self._coming.pop(number, None) or self._scratch.read(number)
            return _outcome(coming)
        return self._saved.get(number)

    def _make_room(self) -> None:
        while len(self._ready) >= self._limit:
            number, client = self._ready.popitem(last=False)
            self._leaving[number] = client, self._scratch.write(number, client.arrays())
        for number in [number for number, (_, writing) in self._leaving.items() if writing.done()]:
            _outcome(self._leaving.pop(number)[1])
        while len(self._leaving) > _MOST_IN_WRITING:
            _outcome(self._leaving.pop(next(iter(self._leaving)))[1])


class _Scratch:
    """States in a file without a name, so that it goes away with the process, whatever ends that.

    One thread reads and writes, in the order in which it is asked.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="scarlet-")  # noqa: SIM115
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="scratch")
        self._places: dict[int, _Place] = {}
        self._holes: list[_Place] = []
        self._end = 0

    def __contains__(self, number: int) -> bool:
        return number in self._places

    def write(self, number: int, arrays: Arrays) -> Future[None]:
        return self._thread.submit(self._write, self._places.setdefault(number, _Place()), arrays)

    def read(self, number: int) -> Future[Arrays]:
        return self._thread.submit(self._read, self._places[number])

    def forget(self, number: int) -> None:
        if number in self._places:
            self._thread.submit(self._leave, self._places.pop(number))  # when nothing is being written there

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
        self._file.close()

    def _write(self, place: _Place, arrays: Arrays) -> None:
        content = save({name: np.asarray(array, order="C") for name, array in arrays.items()})
        place.size = len(content)
        if place.size > place.room:
            self._find_room(place)
        self._file.seek(place.start)
        self._file.write(content)
        self._file.flush()

    def _find_room(self, place: _Place) -> None:
        """A state that has outgrown its place moves to one that was left, or to the end, with a quarter to spare."""
        self._leave(replace(place))
        for hole in self._holes:
            if hole.room >= place.size:
                self._holes.remove(hole)
                place.start, place.room = hole.start, hole.room
                break
        else:
            place.start, place.room = self._end, place.size + place.size // 4
            self._end += place.room

    def _leave(self, place: _Place) -> None:
        if place.room:
            self._holes.append(place)

    def _read(self, place: _Place) -> Arrays:
        self._file.seek(place.start)
        return load(self._file.read(place.size))


@dataclass(slots=True, eq=False)
class _Place:
    start: int = 0
    size: int = 0
    room: int = 0


def _outcome(done: Future[T]) -> T:
    try:
        return done.result()
    except OSError as error:
        raise ScratchError(
            f"a client's state cannot be kept in {tempfile.gettempdir()}: {error.strerror}; "
            "make room, set TMPDIR to another directory, or keep more clients_in_memory"
        ) from error
