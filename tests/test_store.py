from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
from safetensors.numpy import load as load_safetensors

from scarlet.store import Disk, Folder, Snapshot, Store
from tests.stored import Array, Counting, State, changes, content, disk, expected, loaded, snapshot, state, written

__all__ = ["disk"]  # a fixture

ARRAYS: dict[str, Array] = {
    "f32": np.array([[0.1, -0.0], [np.nan, np.inf], [5e-324, 3.4e38]], np.float32),
    "i32": np.array([-1, 2**31 - 1], np.int32),
    "i64": np.array([[-(2**63)], [2**63 - 1]], np.int64),
    "u64": np.array([0, 2**64 - 1], np.uint64),
    "u8": np.arange(256, dtype=np.uint8),
    "f64": np.array([np.pi, -np.inf]),
    "bool": np.array([True, False]),
    "none": np.empty(0, np.uint8),
    "no rows": np.empty((0, 10), np.float32),
    "no columns": np.empty((3, 0), np.int64),
    "a view": np.arange(12, dtype=np.float32).reshape(3, 4)[::2, ::-1],
    "transposed": np.arange(6, dtype=np.int64).reshape(2, 3).T,
    "model.bn.weight/with a slash": np.ones(1, np.float32),
}
META = {"round": 7, "digest": "00ff", "ledger": {"uplink": {"payload": 2**60, "frame": 1}}, "none": None, "x": 0.1}


def test_an_empty_directory_holds_no_checkpoint(disk: Disk) -> None:
    store = Store(disk)
    assert store.load() is None
    assert store.damaged == []


def test_what_was_saved_is_loaded_bit_by_bit(disk: Disk) -> None:
    parts: State = {
        "server": ARRAYS,
        "client-1": {"i64": np.arange(3)},
        "client-10": {"u8": np.arange(4, dtype=np.uint8)},
    }
    parts["empty"] = {}
    Store(disk).save(Snapshot(7, META, parts))
    found = Store(disk).load()
    assert found is not None
    assert found.number == 7
    assert found.meta == META
    assert content(dict(found.parts)) == content(parts)


def test_a_single_number_keeps_its_shape(disk: Disk) -> None:
    parts: State = {"model": {"num_batches_tracked": np.array(9), "temperature": np.array(0.1, np.float32)}}
    Store(disk).save(Snapshot(1, {}, parts))
    assert loaded(disk) == (1, content(parts))


def test_parts_that_are_left_out_are_as_in_the_checkpoint_before(disk: Disk) -> None:
    store = Store(disk)
    for number in range(1, 25):
        assert ("client-2" in changes(number)) == (number % 2 == 1)
        store.save(snapshot(number))
        assert loaded(disk) == expected(number)
        found = Store(disk).load()
        assert found is not None
        assert found.meta == {"number": number}


def test_a_process_that_loads_goes_on_where_the_last_one_stopped(disk: Disk) -> None:
    for number in range(1, 25):
        store = Store(disk)
        assert (store.load() is None) == (number == 1)
        store.save(snapshot(number))
        assert store.damaged == []
        assert loaded(disk) == expected(number)


def test_only_what_changed_is_written(tmp_path: Path) -> None:
    disk = Counting(tmp_path)
    store = Store(disk)
    many = {f"client-{k}": {"model": np.full(10_000, k, np.float32)} for k in range(50)}
    store.save(Snapshot(1, {}, many))
    assert disk.count > 50 * 40_000
    for number in range(2, 6):
        disk.count = 0
        one = {f"client-{number}": {"model": np.full(10_000, -number, np.float32)}}
        store.save(Snapshot(number, {}, one))
        assert 40_000 < disk.count < 50_000
        many |= one
        assert loaded(disk) == (number, content(many))
    disk.count = 0
    store.save(Snapshot(6, {}, {}))
    assert disk.count < 10_000
    assert loaded(disk) == (6, content(many))


def test_files_that_no_checkpoint_needs_are_removed(disk: Disk) -> None:
    store = Store(disk)
    for number in range(1, 20):
        store.save(Snapshot(number, {}, {"server": {"x": np.arange(number)}}))
        kept = {number, number - 1} - {0}
        names = {f"{n}.{kind}" for n in kept for kind in ("json", "safetensors")}
        assert set(disk.names()) == names
    disk.write("20.safetensors.part", b"left by a crash")
    store.save(Snapshot(20, {}, {"server": {"x": np.arange(20)}}))
    assert set(disk.names()) == {"19.json", "19.safetensors", "20.json", "20.safetensors"}


def test_files_are_safetensors_and_json_and_nothing_is_pickled(tmp_path: Path) -> None:
    written(Folder(tmp_path), 5)
    kinds = set()
    for path in tmp_path.iterdir():
        data = path.read_bytes()
        kinds.add(path.suffix)
        if path.suffix == ".safetensors":
            assert load_safetensors(data)
        else:
            digest, body = data.split(b"\n", 1)
            assert re.fullmatch(rb"[0-9]+-[0-9a-f]{8}", digest)
            assert set(json.loads(body)) == {"meta", "parts", "digests"}
    assert kinds == {".safetensors", ".json"}


def test_nothing_is_found_under_its_own_name_before_it_is_synced(tmp_path: Path) -> None:
    """Each file is written and synced under another name, and then renamed; the directory is synced last."""
    steps: list[str] = []

    class Traced(Folder):
        def write(self, name: str, data: bytes) -> None:
            steps.append(f"write {name}")
            super().write(name, data)

        def sync(self, name: str) -> None:
            steps.append(f"sync {name}".strip())
            super().sync(name)

        def rename(self, old: str, new: str) -> None:
            steps.append(f"rename {new}")
            super().rename(old, new)

        def remove(self, name: str) -> None:
            steps.append(f"remove {name}")
            super().remove(name)

    store = written(Traced(tmp_path), 2)
    steps.clear()
    store.save(Snapshot(3, {}, state(3)))
    assert steps[:7] == [
        "write 3.safetensors.part",
        "sync 3.safetensors.part",
        "rename 3.safetensors",
        "write 3.json.part",
        "sync 3.json.part",
        "rename 3.json",
        "sync",
    ]
    assert steps[7:]
    assert all(step.startswith("remove ") for step in steps[7:])


def test_of_a_part_only_its_own_bytes_are_read(tmp_path: Path) -> None:
    read: list[int] = []

    class Counting(Folder):
        def read(self, name: str, start: int = 0, length: int = -1) -> bytes:
            found = super().read(name, start, length)
            read.append(len(found))
            return found

    parts: State = {f"client-{k}": {"model": np.full(1000, k), "empty": np.zeros((0, 3))} for k in range(50)}
    Store(Folder(tmp_path)).save(Snapshot(1, {}, parts))
    found = Store(Counting(tmp_path)).load()
    assert found is not None
    size = (tmp_path / "1.safetensors").stat().st_size
    read.clear()
    assert content(dict(found.parts)) == content(parts)
    assert sum(read) == size


def test_a_save_needs_no_third_write(tmp_path: Path) -> None:
    folder = Counting(tmp_path)
    store = written(folder, 3)
    folder.room = 2
    store.save(snapshot(4))
    assert folder.room == 0


def test_files_of_other_names_are_not_taken_for_checkpoints(disk: Disk) -> None:
    written(disk, 2)
    for name in ("notes.json", "-1.json", "3.json.part", "3.safetensors", "99", ".json"):
        disk.write(name, b"{}")
    store = Store(disk)
    found = store.load()
    assert found is not None
    assert found.number == 2
    assert store.damaged == []


def test_a_file_whose_name_only_looks_like_a_number_is_left_alone(disk: Disk) -> None:
    written(disk, 2)
    disk.write("²³.json", b"{}")
    assert loaded(disk) == expected(2)
