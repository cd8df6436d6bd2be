from __future__ import annotations

import errno
import math
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

from scarlet.transport import client_store
from scarlet.transport.client_store import Arrays, ClientStore, ScratchError
from tests.transport.five_clients import exchanged, server, transport


class Counter:
    """A client that remembers how often it has been at work, and grows by it."""

    def __init__(self, number: int, saved: Arrays | None) -> None:
        self.number = number
        self.held = np.zeros(6) if saved is None else saved["held"].astype(np.float64)
        self.reply = b"" if saved is None else saved["reply"].tobytes()

    def work(self) -> None:
        self.held[self.number] += 1
        self.reply = b"x" * int(1000 * self.times**2)

    @property
    def times(self) -> float:
        return float(self.held.sum())

    def arrays(self) -> Arrays:
        return {"held": self.held, "reply": np.frombuffer(self.reply, np.uint8)}


Clients = ClientStore[Counter]


def check(arrays: Arrays | None, number: int, times: int) -> None:
    """Raise AssertionError unless this is what a client remembers that has been at work so often."""
    assert arrays is not None
    assert arrays["held"].tolist() == [times if each == number else 0 for each in range(6)]
    assert len(arrays["reply"]) == 1000 * times**2


@pytest.fixture
def made() -> list[int]:
    """The clients that were made, in their order."""
    return []


def spied(limit: int, made: list[int], saved: Mapping[int, Arrays] | None = None) -> Clients:
    def spy(number: int, saved: Arrays | None) -> Counter:
        made.append(number)
        return Counter(number, saved)

    return ClientStore(limit, spy, saved or {})


def settle(kept: Clients) -> None:
    """Wait until all that is to be written is written."""
    for _, writing in kept._leaving.values():
        writing.result()
    kept._make_room()


def test_a_client_is_made_when_it_is_first_asked_for_and_not_before(made: list[int]) -> None:
    kept = spied(2, made)
    assert made == [] and kept.arrays(3) is None
    assert kept[3] is kept[3]
    assert made == [3]


def test_the_least_recently_used_goes(made: list[int]) -> None:
    kept = spied(2, made)
    first, second = kept[0], kept[1]
    assert kept[0] is first
    kept[2]
    settle(kept)
    assert kept[0] is first
    assert kept[1] is not second and made == [0, 1, 2, 1]


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
@pytest.mark.parametrize("ahead", [False, True])
def test_whatever_the_limit_a_client_comes_back_as_it_went(limit: int, ahead: bool) -> None:
    kept, rng = Clients(limit, Counter, {}), np.random.default_rng(limit)
    order = rng.integers(0, 6, 300).tolist()
    for number, after in zip(order, [*order[1:], 0], strict=True):
        client = kept[number]
        if ahead:
            kept.expect(after)
        client.work()
        assert len(kept._ready) <= limit
    for number in range(6):
        check(kept.arrays(number), number, order.count(number))
    kept.close()


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_a_client_comes_back_as_it_went_from_wherever_it_has_been(limit: int) -> None:
    """Six clients move about between two places, often while they are being written."""
    places, at = (Clients(limit, Counter, {}), Clients(limit, Counter, {})), [0] * 6
    rng = np.random.default_rng(limit)
    order = rng.integers(0, 6, 400).tolist()
    for number in order:
        if rng.random() < 0.4:
            before, at[number] = at[number], 1 - at[number]
            arrays = places[before].arrays(number)
            copied = None if arrays is None else {name: np.array(array) for name, array in arrays.items()}
            places[before].forget(number)
            assert places[before].arrays(number) is None
            if copied is not None:
                places[at[number]].take_over(number, copied)
        places[at[number]][number].work()
    for number in range(6):
        check(places[at[number]].arrays(number), number, order.count(number))
    for place in places:
        place.close()


def test_clients_that_come_and_go_do_not_make_the_file_grow() -> None:
    kept = Clients(1, Counter, {})
    ends = []
    for number in range(50):
        kept.take_over(number, {name: np.array(array) for name, array in Counter(0, None).arrays().items()})
        kept[number]
        settle(kept)
        ends.append(kept._scratch._end)
        kept.forget(number - 1)
    assert ends[1] > 0 and ends[-1] == ends[2], "each has the place of one that has left"
    kept.close()


class Slow:
    """Lets no write begin before it is told to."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        self.written: list[int] = []
        honest = client_store._Scratch._write

        def write(scratch: client_store._Scratch, place: client_store._Place, arrays: Arrays) -> None:
            assert self.go.wait(60)
            honest(scratch, place, arrays)
            self.written += [number for number, own in scratch._places.items() if own is place]

        patch.setattr(client_store._Scratch, "_write", write)


def test_a_client_that_is_being_written_is_used_from_memory(made: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    disk, kept = Slow(monkeypatch), spied(1, made)
    first = kept[0]
    first.work()
    kept[1]
    assert disk.written == []
    assert kept[0] is first and made == [0, 1]
    first.work()
    check(kept.arrays(0), 0, 2)
    disk.go.set()
    kept[1]
    settle(kept)
    assert kept[0].times == 2, "what was written first is out of date, and was written again"


def test_a_slow_disk_does_not_make_memory_grow(made: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    disk, kept, most = Slow(monkeypatch), spied(1, made), client_store._MOST_IN_WRITING
    for number in range(1 + most):
        kept[number]
    assert len(kept._leaving) == most and disk.written == []
    disk.go.set()
    kept[9]
    assert len(kept._leaving) <= most and disk.written[:1] == [0]


def test_a_full_disk_is_an_error_of_one_line_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(scratch: client_store._Scratch, place: client_store._Place, arrays: Arrays) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(client_store._Scratch, "_write", full)
    kept = Clients(1, Counter, {})
    with pytest.raises(
        ScratchError, match=r"No space left on device; make room, set TMPDIR .* clients_in_memory"
    ) as it:
        for number in range(10):
            kept[number]
    assert "\n" not in str(it.value)


def test_a_client_of_an_earlier_run_is_read_when_it_is_asked_for(made: list[int]) -> None:
    old = Counter(4, None)
    old.work()
    kept = spied(1, made, {4: {name: array.copy() for name, array in old.arrays().items()}})
    assert kept[4].times == 1
    kept[4].work()
    assert kept[5].times == 0
    settle(kept)
    assert kept[4].times == 2, "and from then on it is the new one"


def test_the_disk_is_given_back_whatever_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[IO[bytes]] = []
    honest = tempfile.TemporaryFile

    def spy(**options: Any) -> IO[bytes]:
        opened.append(honest(**options))
        return opened[-1]

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("tempfile.TemporaryFile", spy)
    with pytest.raises(KeyError), transport(clients_in_memory=1) as clients:
        exchanged(clients, server().open_round(), math.inf)
        assert [file.closed for file in opened] == [False]
        assert list(tmp_path.glob("scarlet*")) == [], "the file has no name"
        raise KeyError
    assert [file.closed for file in opened] == [True]


def test_what_is_saved_anew_of_a_client_that_was_not_at_work_outlives_the_file_that_it_came_from() -> None:
    """A checkpoint may be removed when two newer ones name the client's state; nobody must look for it there."""
    saved = {1: Counter(1, None).arrays()}
    clients = Clients(2, Counter, saved)
    assert clients.arrays(1, keep=True) is not None
    saved.clear()
    assert clients.arrays(1) is not None and clients[1].times == 0
    clients.close()
