"""Damaged files, crashes and full disks: a store holds the newest checkpoint that is whole."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from scarlet.store import Disk, Folder, Snapshot, Store
from tests.faults.disk import Crash
from tests.stored import Counting, changes, content, disk, expected, loaded, simulated, snapshot, state, written

__all__ = ["disk"]  # a fixture

Damage = Callable[[bytes], bytes | None]  # what becomes of a file's content; None: the file is missing


def cut(at: int) -> Damage:
    return lambda data: data[:at]


def flipped(at: int) -> Damage:
    return lambda data: data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


def damages(size: int, stride: int) -> dict[str, Damage]:
    places = sorted({*range(0, size, stride), 1, size - 1})
    return (
        {f"cut to {at}": cut(at) for at in places}
        | {f"flipped at {at}": flipped(at) for at in places}
        | {"a byte more": lambda data: data + b"\0", "zeros": lambda data: bytes(len(data)), "missing": lambda _: None}
    )


def damage(disk: Disk, name: str, how: Damage) -> None:
    data = how(disk.read(name))
    disk.remove(name)
    if data is not None:
        disk.write(name, data)


@pytest.mark.parametrize("file", ["5.safetensors", "5.json"])
@pytest.mark.parametrize("kind", ["folder", "simulated disk"])
def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before_and_says_so(
    tmp_path: Path, kind: str, file: str
) -> None:
    whole = simulated()
    written(whole, 5)
    whole.sync("")
    size = len(whole.read(file))
    tried = damages(size, 3 if kind == "simulated disk" else size // 4)
    assert len(tried) > (140 if kind == "simulated disk" else 10)
    for number, (name, how) in enumerate(tried.items()):
        disk: Disk = whole.copy()
        if kind == "folder":
            disk = Folder(tmp_path / str(number))
            written(disk, 5)
        damage(disk, file, how)
        store = Store(disk)
        found = store.load()
        assert found is not None, name
        assert (found.number, content(dict(found.parts))) == expected(4), name
        if (file, name) != ("5.json", "missing"):  # then there is no newest checkpoint to speak of
            assert len(store.damaged) == 1, name
            assert store.damaged[0].startswith("checkpoint 5 is damaged ("), name
            assert "\n" not in store.damaged[0]
        store.save(snapshot(5))
        assert loaded(disk) == expected(5), name
        assert set(disk.names()) >= {"4.json", "5.json"}


def test_a_damaged_file_of_an_earlier_checkpoint_damages_all_that_need_it(disk: Disk) -> None:
    written(disk, 20)  # client-20 was written by 19 and is left out of 20
    assert "client-20" not in changes(20)
    damage(disk, "19.safetensors", lambda data: data[:-1])
    store = Store(disk)
    assert store.load() is None
    assert [text.split(" (")[0] for text in store.damaged] == ["checkpoint 20 is damaged", "checkpoint 19 is damaged"]


def test_a_damaged_checkpoint_before_the_newest_is_no_hindrance(disk: Disk) -> None:
    written(disk, 5)
    damage(disk, "4.json", lambda data: data[:-1])
    assert loaded(disk) == expected(5)
    store = Store(disk)
    store.load()
    store.save(snapshot(6))
    assert loaded(disk) == expected(6)


@pytest.mark.parametrize(
    "files", [("4.json", "5.json"), ("4.safetensors", "5.safetensors"), ("4.json", "5.safetensors")]
)
def test_two_damaged_checkpoints_are_none_and_both_are_named(disk: Disk, files: tuple[str, str]) -> None:
    written(disk, 5)
    for name in files:
        damage(disk, name, lambda data: data[:-1] + b"\xff")
    store = Store(disk)
    assert store.load() is None
    assert [text.split(" (")[0] for text in store.damaged] == ["checkpoint 5 is damaged", "checkpoint 4 is damaged"]
    store.save(snapshot(1))  # the run begins anew
    assert loaded(disk) == expected(1)


@pytest.mark.parametrize("number", [1, 2, 3, 6])
def test_a_crash_at_any_step_of_a_save_leaves_the_old_state_or_the_new(number: int) -> None:
    """And what was half done is no hindrance to the next save."""
    ends: set[str] = set()
    step, done = 0, False
    while not done:
        for seed in range(30):
            disk = simulated(seed)
            store = written(disk, number - 1)
            disk.crash_in = step
            with suppress(Crash):
                store.save(snapshot(number))
                done = True
            disk.crash()
            store = Store(disk)
            found = store.load()
            outcome = None if found is None else (found.number, content(dict(found.parts)))
            if done:  # whatever happens after a save has returned
                assert outcome == expected(number)
                continue
            assert outcome in (expected(number - 1), expected(number)), f"step {step}"
            ends.add("new" if outcome == expected(number) else "old")
            following = number + (outcome == expected(number))
            store.save(snapshot(following))
            disk.crash()
            assert loaded(disk) == expected(following)
        step += 1
    assert step >= 8
    assert ends == {"old", "new"}


def test_what_a_crash_leaves_half_done_is_not_called_damage() -> None:
    for step in range(14):
        for seed in range(10):
            disk = simulated(seed)
            store = written(disk, 5)
            disk.crash_in = step
            with suppress(Crash):
                store.save(snapshot(6))
            disk.crash()
            store = Store(disk)
            assert store.load() is not None
            assert store.damaged == [], f"step {step}"


def test_crash_after_crash_at_any_step_the_state_only_moves_forward() -> None:
    rng = np.random.default_rng(0)
    for seed in range(200):
        disk, reached = simulated(seed), 0
        for _ in range(12):
            store = Store(disk)
            found = store.load()
            at = 0 if found is None else found.number
            assert at >= reached
            assert (None if found is None else (at, content(dict(found.parts)))) == expected(at)
            disk.crash_in = int(rng.integers(0, 25))
            try:
                while True:
                    store.save(snapshot(at + 1))
                    at += 1
                    reached = at
            except Crash:
                disk.crash()


@pytest.mark.parametrize("room", [0, 1])
@pytest.mark.parametrize("number", [1, 4])
def test_a_full_disk_leaves_the_last_good_checkpoint_and_the_save_can_be_tried_again(
    tmp_path: Path, number: int, room: int
) -> None:
    folder, memory = Counting(tmp_path), simulated()
    for each in (folder, memory):
        store = written(each, number - 1)
        if isinstance(each, Counting):
            each.room = room
        else:
            each.fail_in = room
        with pytest.raises(OSError, match="No space left on device"):
            store.save(snapshot(number))
        assert loaded(each) == expected(number - 1)
        folder.room = memory.fail_in = None
        store.save(snapshot(number))
        assert loaded(each) == expected(number)
        assert not [name for name in each.names() if name.endswith(".part")]


@pytest.mark.parametrize("room", [0, 1])
def test_what_did_not_fit_on_a_full_disk_is_not_counted_as_saved(room: int) -> None:
    disk = simulated()
    store = written(disk, 3)
    disk.fail_in = room
    with pytest.raises(OSError, match="No space"):
        store.save(Snapshot(4, {}, {"client-2": {"model": np.zeros(3)}}))
    store.save(Snapshot(5, {}, {"client-3": {"model": np.ones(3)}}))
    assert loaded(disk) == (5, content(state(3) | {"client-3": {"model": np.ones(3)}}))
    damage(disk, "5.json", cut(9))
    assert loaded(disk) == expected(3)


def test_a_checkpoint_that_could_not_be_read_once_is_not_lost(tmp_path: Path) -> None:
    class Flaky(Folder):
        def read(self, name: str, start: int = 0, length: int = -1) -> bytes:
            if name == "3.json":
                raise OSError(errno.EIO, "Input/output error")
            return super().read(name, start, length)

    written(Folder(tmp_path), 3)
    assert loaded(Flaky(tmp_path)) == expected(2)
    assert loaded(Folder(tmp_path)) == expected(3)


def test_a_full_disk_and_then_a_crash_leave_the_last_good_checkpoint() -> None:
    for room in (0, 1):
        for seed in range(30):
            disk = simulated(seed)
            store = written(disk, 3)
            disk.fail_in = room
            with pytest.raises(OSError, match="No space"):
                store.save(snapshot(4))
            disk.crash()
            assert loaded(disk) == expected(3)


def test_the_simulated_disk_forgets_what_was_not_synced() -> None:
    """Or none of the tests above would mean anything."""
    kept, lost = set(), 0
    for seed in range(60):
        disk = simulated(seed)
        disk.write("a", b"lasts")
        disk.sync("a")
        disk.sync("")
        disk.write("a", b"forgotten, perhaps")
        disk.write("b", b"new")
        disk.crash()
        kept.add(disk.read("a"))
        lost += "b" not in disk.names()
    assert {b"lasts", b"forgotten, perhaps"} < kept  # and cut anywhere
    assert 10 < lost < 50
