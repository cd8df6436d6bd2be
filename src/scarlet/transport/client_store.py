"""The clients of one host: made when they are first asked, a bounded number in memory, the others on disk."""

from __future__ import annotations

import tempfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from safetensors.numpy import load, save

from scarlet.errors import ScarletError
from scarlet.protocol.client import Client
from scarlet.protocol.federation import Federation
from scarlet.protocol.method import Method
from scarlet.protocol.persist import Array, client_arrays
from scarlet.training.train import Samples

BUDGET = 2e9  # bytes of memory for clients, over all workers, unless their number is given
_MOST_IN_WRITING = 4  # a disk that is slower than training holds a round up, so that memory stays bounded

Arrays = Mapping[str, Array]
T = TypeVar("T")


class ScratchError(ScarletError):
    """A client's state could not be written to disk, or read back."""


@dataclass(frozen=True, slots=True)
class Site:
    """One client with all that it needs to take part in a round."""

    client: Client
    model: torch.nn.Module
    private: Samples
    test: Samples

    def arrays(self) -> dict[str, Array]:
        """All that it remembers: its protocol state and its model, not copied where that can be helped."""
        return client_arrays(self.client.state) | model_arrays(self.model.state_dict())


def model_arrays(weights: Mapping[str, torch.Tensor]) -> dict[str, Array]:
    """A model's weights and buffers as arrays, which share the memory of what is on the CPU."""
    return {f"model.{name}": value.detach().cpu().numpy() for name, value in weights.items()}


def weights_of(saved: Mapping[str, Array]) -> dict[str, torch.Tensor]:
    """The weights and buffers among saved arrays, copied."""
    return {
        name.removeprefix("model."): torch.from_numpy(np.array(array))
        for name, array in saved.items()
        if name.startswith("model.")
    }


def site_bytes(method: Method, federation: Federation, weights: int, images: int) -> int:
    """The memory of a client whose model and images take that many bytes."""
    labels = int(np.prod(method.label_shape(federation.classes)))
    a_sample = 4 * labels + 3 * 4  # its entry in the cache, and three stamps
    if method.delta:
        a_sample += 4 * federation.classes + 1
    return weights + images + federation.public_size * a_sample


def in_memory(wanted: int | None, clients: int, a_client: int) -> int:
    """How many clients are kept in memory, over all workers."""
    return min(clients, max(1, int(BUDGET // a_client)) if wanted is None else wanted)


class Sites:
    """Keeps at most `limit` clients in memory; the least recently used go to disk while others are at work."""

    def __init__(self, limit: int, make: Callable[[int, Arrays | None], Site], saved: Mapping[int, Arrays]) -> None:
        assert limit >= 1
        self._limit = limit
        self._make = make  # (client, what it remembers, if anything)
        self._saved = saved  # by an earlier run
        self._adopted: dict[int, Arrays] = {}  # what clients remember that ran elsewhere, until they are asked
        self._scratch = _Scratch()
        self._ready: OrderedDict[int, Site] = OrderedDict()  # the least recently used first
        self._leaving: dict[int, tuple[Site, Future[None]]] = {}  # in memory until they are written
        self._coming: dict[int, Future[Arrays]] = {}  # at most one

    def __getitem__(self, number: int) -> Site:
        """A client; it stays in memory until `limit` others have been asked for."""
        site = self._ready.pop(number, None) or self._recalled(number)
        if site is None:
            self._make_room()
            site = self._make(number, self._remembered(number))
            self._adopted.pop(number, None)
        self._ready[number] = site
        return site

    def expect(self, number: int) -> None:
        """Begin to read a client that will be asked for soon, if it is on disk."""
        if number in self._scratch and self._in_memory(number) is None and number not in self._coming:
            self._coming = {number: self._scratch.read(number)}

    def arrays(self, number: int) -> Arrays | None:
        """What a client remembers; None if it was never asked. It need not be in memory, nor does it come there."""
        site = self._in_memory(number)
        return self._remembered(number) if site is None else site.arrays()

    def adopt(self, number: int, arrays: Arrays) -> None:
        """Take over a client that remembers this."""
        self._adopted[number] = arrays

    def forget(self, number: int) -> None:
        """Give a client away; should it come back, then with all that it remembers."""
        self._ready.pop(number, None)
        self._adopted.pop(number, None)
        self._coming.pop(number, None)
        if number in self._leaving:
            self._leaving.pop(number)[1].cancel()
        self._scratch.forget(number)

    def close(self) -> None:
        """Give back the disk."""
        self._scratch.close()

    def _in_memory(self, number: int) -> Site | None:
        if number in self._leaving:
            return self._leaving[number][0]
        return self._ready.get(number)

    def _recalled(self, number: int) -> Site | None:
        """A client that is still being written: it is used as it is, and will be written again."""
        if number not in self._leaving:
            return None
        site, writing = self._leaving.pop(number)
        writing.cancel()
        self._make_room()
        return site

    def _remembered(self, number: int) -> Arrays | None:
        if number in self._adopted:
            return self._adopted[number]
        if number in self._scratch:
            coming = self._coming.pop(number, None) or self._scratch.read(number)
            return _outcome(coming)
        return self._saved.get(number)

    def _make_room(self) -> None:
        while len(self._ready) >= self._limit:
            number, site = self._ready.popitem(last=False)
            self._leaving[number] = site, self._scratch.write(number, site.arrays())
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
