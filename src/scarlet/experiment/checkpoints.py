"""Checkpoints of a run on this machine: written by a thread while the next round is under way."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from scarlet.errors import ConfigError, ScarletError
from scarlet.models.registry import Weights
from scarlet.protocol.persist import Array, server_arrays, server_numbers
from scarlet.protocol.server import Server
from scarlet.store import Folder, Snapshot, Store
from scarlet.transport.client_store import model_arrays

_SERVER, _CLIENT = "server", "client-"
_ACCEPTED = "accepted."  # what the server remembers of one client


class CheckpointError(ScarletError):
    """A checkpoint could not be written."""


class Checkpoints:
    """Saves the whole federation as it is between two rounds. Use it as a context manager.

    What is saved belongs to one instant, so a resumed run goes on exactly as the uninterrupted one would have.
    """

    def __init__(self, directory: Path, identity: Mapping[str, object]) -> None:
        self.directory = directory
        self._identity = json.loads(json.dumps(identity))  # of the run, as a manifest will give it back
        self.store = Store(Folder(directory))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None

    def snapshot(self, server: Server, clients: Mapping[int, Mapping[str, Array]]) -> Snapshot:
        """The federation as it is now, but for the server's model, which may still be learning.

        `clients` are the states of those that have changed since the last checkpoint.
        """
        parts: dict[str, Mapping[str, Array]] = {f"{_CLIENT}{number}": state for number, state in clients.items()}
        common, accepted = _of_clients(server_arrays(server.state))
        parts[_SERVER] = _copied(common)
        parts |= {f"{_ACCEPTED}{number}": _copied(its) for number, its in accepted.items() if number in clients}
        return Snapshot(
            server.state.round, server_numbers(server.state, server.ledger) | {"run": self._identity}, parts
        )

    def save(self, snapshot: Snapshot, weights: Weights) -> None:
        """Begin to write a snapshot with the server's model as it was then."""
        self.wait()
        server = {**snapshot.parts[_SERVER], **model_arrays(weights)}
        whole = replace(snapshot, parts={**snapshot.parts, _SERVER: server})
        self._pending = self._thread.submit(self.store.save, whole)

    def load(self) -> Snapshot | None:
        """The newest checkpoint that is whole; ConfigError if it is not one of this run on this data."""
        snapshot = self.store.load()
        if snapshot is not None and snapshot.meta["run"] != self._identity:
            raise ConfigError(
                f"the checkpoint in {self.directory} is of other options or other data; restore those, or run anew"
            )
        return snapshot

    def wait(self) -> None:
        """Wait for the checkpoint under way."""
        if self._pending is None:
            return
        try:
            self._pending.result()
        except OSError as error:
            raise CheckpointError(
                f"cannot write a checkpoint to {self.directory}: {error.strerror}; "
                f"make room, then go on with 'scarlet resume {self.directory.parent}'"
            ) from error
        finally:
            self._pending = None

    def discard(self) -> None:
        """Remove the checkpoints of a run that is finished."""
        self.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.wait()
        finally:
            self._thread.shutdown()


def client_states(snapshot: Snapshot) -> Mapping[int, Mapping[str, Array]]:
    """The clients among the parts of a snapshot; a state is read when it is asked for."""
    return _ClientStates(snapshot.parts)


def server_part(snapshot: Snapshot) -> Mapping[str, Array]:
    """The server's arrays in a snapshot, its model's included."""
    found = dict(snapshot.parts[_SERVER])
    for part in snapshot.parts:
        if part.startswith(_ACCEPTED):
            found |= snapshot.parts[part]
    return found


def _of_clients(arrays: Mapping[str, Array]) -> tuple[dict[str, Array], dict[int, dict[str, Array]]]:
    """A server's arrays, apart from those that belong to one client; and those of each client."""
    common: dict[str, Array] = {}
    single: dict[int, dict[str, Array]] = {}
    for name, array in arrays.items():
        if name.startswith(_ACCEPTED):
            single.setdefault(int(name.split(".")[1]), {})[name] = array
        else:
            common[name] = array
    return common, single


def _copied(arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {name: array.copy() for name, array in arrays.items()}


@dataclass(frozen=True, slots=True)
class _ClientStates(Mapping[int, Mapping[str, Array]]):
    parts: Mapping[str, Mapping[str, Array]]

    def __getitem__(self, number: int) -> Mapping[str, Array]:
        return self.parts[f"{_CLIENT}{number}"]

    def __iter__(self) -> Iterator[int]:
        return (int(part.removeprefix(_CLIENT)) for part in self.parts if part.startswith(_CLIENT))

    def __len__(self) -> int:
        return sum(1 for _ in self)
