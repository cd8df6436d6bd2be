from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import load as load_safetensors

from scarlet.store import Disk, Folder, Snapshot, Store
from tests.faults.disk import Crash, SimulatedDisk

Array = npt.NDArray[np.generic]
State = dict[str, dict[str, Array]]

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
    for disk in (folder, memory):
        store = written(disk, number - 1)
        if isinstance(disk, Counting):
            disk.room = room
        else:
            disk.fail_in = room
        with pytest.raises(OSError, match="No space left on device"):
            store.save(snapshot(number))
        assert loaded(disk) == expected(number - 1)
        folder.room = memory.fail_in = None
        store.save(snapshot(number))
        assert loaded(disk) == expected(number)
        assert not [name for name in disk.names() if name.endswith(".part")]


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


def test_a_checkpoint_that_could_not_be_read_once_is_not_lost(tmp_path: Path) -> None:
    class Flaky(Folder):
        def read(self, name: str, start: int = 0, length: int = -1) -> bytes:
            if name == "3.json":
                raise OSError(errno.EIO, "Input/output error")
            return super().read(name, start, length)

    written(Folder(tmp_path), 3)
    assert loaded(Flaky(tmp_path)) == expected(2)
    assert loaded(Folder(tmp_path)) == expected(3)


def test_a_save_needs_no_third_write(tmp_path: Path) -> None:
    folder = Counting(tmp_path)
    store = written(folder, 3)
    folder.room = 2
    store.save(snapshot(4))
    assert folder.room == 0


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
