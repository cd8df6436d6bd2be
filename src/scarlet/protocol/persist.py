"""Server and client state as plain arrays and numbers, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import numpy as np
import numpy.typing as npt

from scarlet.protocol.client import ClientState
from scarlet.protocol.delta import Memory
from scarlet.protocol.schedule import Schedule
from scarlet.protocol.server_state import Lessons, Progress, ServerState
from scarlet.protocol.types import Exceptional, Labels, Sync
from scarlet.wire.ledger import COLUMNS, Bytes, Ledger

Array = npt.NDArray[np.generic]


def server_arrays(state: ServerState) -> dict[str, Array]:
    """The arrays of a server's state; `server_numbers` has the rest."""
    arrays: dict[str, Array] = {
        "cache.value": state.cache.value,
        "cache.stamp": state.cache.stamp,
        "holdings.acknowledged": state.holdings.acknowledged,
        "holdings.drawn": state.holdings.drawn,
    }
    if state.target is not None:
        arrays["target"] = state.target
    for number, memory in sorted((state.accepted or {}).items()):
        arrays |= _memory_arrays(f"accepted.{number}", memory)
    if state.lessons is not None:
        arrays |= {f"lessons.{name}": getattr(state.lessons, name) for name in ("index", "value", "clients", "choice")}
        arrays["lessons.drawn"] = np.array([state.lessons.drawn])
    if state.progress is not None:
        arrays |= _progress_arrays(state.progress)
    if state.sync is not None:
        arrays |= {"sync.index": state.sync.index, "sync.fresh": state.sync.fresh, "sync.dropped": state.sync.dropped}
        arrays["sync.attempt"] = np.array([state.sync.attempt])
        if state.sync.signal is not None:
            arrays["sync.signal"] = state.sync.signal
    return arrays


def server_numbers(state: ServerState, ledger: Ledger) -> dict[str, object]:
    """What is not an array: the round, the attempt, the digest and the bytes so far."""
    totals = {column: asdict(total) for column, total in ledger.total.items()}
    return {"round": state.round, "attempt": state.attempt, "digest": state.digest.hex(), "ledger": totals}


def restore_server(
    state: ServerState, ledger: Ledger, arrays: Mapping[str, Array], numbers: Mapping[str, object]
) -> None:
    """Bring a new server and its ledger to a state that was saved."""
    np.copyto(state.cache.value, arrays["cache.value"])
    np.copyto(state.cache.stamp, arrays["cache.stamp"])
    np.copyto(state.holdings.acknowledged, arrays["holdings.acknowledged"])
    np.copyto(state.holdings.drawn, arrays["holdings.drawn"])
    if state.target is not None:
        np.copyto(state.target, arrays["target"])
    if state.accepted is not None:
        state.accepted = {number: _memory(f"accepted.{number}", arrays) for number in _accepted_clients(arrays)}
    if "lessons.index" in arrays:
        state.lessons = Lessons(
            arrays["lessons.index"].astype(np.int64),
            arrays["lessons.value"].astype(np.float32),
            arrays["lessons.clients"].astype(np.int64),
            arrays["lessons.choice"].astype(np.int32),
            int(arrays["lessons.drawn"].astype(np.int64)[0]),
        )
    if state.progress is not None:
        _restore_progress(state.progress, arrays)
    state.round = _whole(numbers["round"])
    state.attempt = _whole(numbers["attempt"])
    state.digest = bytes.fromhex(str(numbers["digest"]))
    if "sync.index" in arrays:
        signal = arrays.get("sync.signal")
        state.sync = Sync(
            state.round,
            arrays["sync.index"].astype(np.int64),
            None if signal is None else signal.astype(np.int64),
            arrays["sync.fresh"].astype(np.float32),
            arrays["sync.dropped"].astype(np.int64),
            int(arrays["sync.attempt"].astype(np.int64)[0]),
        )
    totals = numbers["ledger"]
    assert isinstance(totals, dict)
    for column in COLUMNS:
        ledger.total[column] = Bytes(**totals[column])


def client_arrays(state: ClientState) -> dict[str, Array]:
    """All of a client's state, its kept reply included."""
    arrays: dict[str, Array] = {
        "cache.value": state.cache.value,
        "cache.stamp": state.cache.stamp,
        "downlink": np.frombuffer(state.downlink, np.uint8),
    }
    for number, message in enumerate(state.reply):
        arrays[f"reply.{number}"] = np.frombuffer(message, np.uint8)
    for name, array in (state.kept or {}).items():
        arrays[f"kept.{name}"] = array
    if state.schedule is not None:
        arrays |= {"schedule.stamps": state.schedule.stamps, "schedule.before": state.schedule.before}
        arrays["schedule.round"] = np.array([state.schedule.round])
    if state.sent is not None:
        arrays |= _memory_arrays("sent", state.sent.memory)
        arrays["sent.base"] = np.frombuffer(state.sent.base, np.uint8)
        if state.sent.before is not None:
            before = state.sent.before
            arrays |= {"before.index": before.index, "before.value": before.value, "before.known": state.sent.known}
    return arrays


def restore_client(state: ClientState, arrays: Mapping[str, Array]) -> None:
    """Bring a new client to a state that was saved."""
    np.copyto(state.cache.value, arrays["cache.value"])
    np.copyto(state.cache.stamp, arrays["cache.stamp"])
    state.downlink = arrays["downlink"].tobytes()
    names = sorted(name for name in arrays if name.startswith("reply."))
    state.reply = [arrays[name].tobytes() for name in names]
    kept = {name.removeprefix("kept."): np.array(arrays[name]) for name in arrays if name.startswith("kept.")}
    state.kept = kept or None
    if state.schedule is not None:
        state.schedule = Schedule(
            arrays["schedule.stamps"].astype(np.int32),
            arrays["schedule.before"].astype(np.int32),
            int(arrays["schedule.round"].astype(np.int64)[0]),
        )
    if state.sent is not None:
        state.sent.memory = _memory("sent", arrays)
        state.sent.base = arrays["sent.base"].tobytes()
        state.sent.before = None
        if "before.index" in arrays:
            index, value = arrays["before.index"].astype(np.int64), arrays["before.value"].astype(np.float32)
            state.sent.before = Labels(index, value)
            state.sent.known = arrays["before.known"].astype(np.bool_)


def _progress_arrays(progress: Progress) -> dict[str, Array]:
    odd = progress.exceptions
    return {
        "progress.before": progress.before,
        "progress.applied": progress.applied,
        "progress.forgotten": np.array([progress.forgotten]),
        # For each exception: its round, its attempt, and how many of the samples that follow were dropped.
        "progress.exceptions": np.array([[each.round, each.attempt, len(each.dropped)] for each in odd], np.int64),
        "progress.dropped": np.concatenate([np.empty(0, np.int64), *(each.dropped for each in odd)]),
    }


def _restore_progress(progress: Progress, arrays: Mapping[str, Array]) -> None:
    progress.before = arrays["progress.before"].astype(np.int32)
    progress.applied = arrays["progress.applied"].astype(np.int32)
    progress.forgotten = int(arrays["progress.forgotten"].astype(np.int64)[0])
    odd = arrays["progress.exceptions"].astype(np.int64).reshape(-1, 3)
    dropped = np.split(arrays["progress.dropped"].astype(np.int64), np.cumsum(odd[:, 2])[:-1]) if len(odd) else []
    progress.exceptions = [
        Exceptional(int(round), int(attempt), samples)
        for (round, attempt, _), samples in zip(odd.tolist(), dropped, strict=True)
    ]


def _memory_arrays(name: str, memory: Memory) -> dict[str, Array]:
    return {
        f"{name}.value": memory.value,
        f"{name}.known": memory.known,
        f"{name}.name": np.frombuffer(memory.name, np.uint8),
    }


def _memory(name: str, arrays: Mapping[str, Array]) -> Memory:
    return Memory(
        arrays[f"{name}.value"].astype(np.float32),
        arrays[f"{name}.known"].astype(np.bool_),
        arrays[f"{name}.name"].tobytes(),
    )


def _accepted_clients(arrays: Mapping[str, Array]) -> list[int]:
    return [int(name.split(".")[1]) for name in arrays if name.startswith("accepted.") and name.endswith(".name")]


def _whole(value: object) -> int:
    assert isinstance(value, int)
    return value
