"""Checkpoints of a run on this machine: written by a thread while the next round is under way."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from scarlet.arrays import Array
from scarlet.errors import ConfigError, ScarletError
from scarlet.protocol.server import Server
from scarlet.protocol.state import pack, restore
from scarlet.store import Folder, Snapshot, Store
from scarlet.transport.transport import States
from scarlet.wire.ledger import COLUMNS, Bytes

APPENDED = ("metrics.jsonl", "ledger.csv", "clients.csv")  # what a run writes beside its checkpoints, round by round
FORMAT = 3  # of what a checkpoint holds; it grows when an older one cannot be read any more
# A part for the server, one for its model, one for each client, and one for what the server remembers of each client.
_SERVER, _MODEL, _CLIENT, _OF_CLIENT = "server", "model", "client-", "server-of-client-"


class CheckpointError(ScarletError):
    """A checkpoint could not be written."""


class Checkpoints:
    """Saves the whole federation as it is between two rounds. Use it as a context manager.

    What is saved belongs to one instant, so a resumed run goes on exactly as the uninterrupted one would have.
    """

    def __init__(self, directory: Path, identity: Mapping[str, object], every: int) -> None:
        self._directory, self._every = directory, every
        self._identity = json.loads(json.dumps(identity))  # of the run, as a manifest will give it back
        self._store = Store(Folder(directory))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None

    def due(self, round: int) -> bool:
        """Whether a round ends with a checkpoint."""
        return round % self._every == 0

    def snapshot(self, server: Server, changed: Collection[int], clients: States) -> Snapshot:
        """The federation as it is now, but for the server's model, which may still be learning.

        `changed` are the clients that were asked since the last checkpoint; `clients` is what the transport keeps.
        """
        packed = pack(server.state)
        parts: dict[str, Mapping[str, Array]] = {f"{_CLIENT}{number}": state for number, state in clients.items()}
        parts[_SERVER] = _copied(packed.common)
        for number, arrays in packed.by_client.items():
            if number in changed:
                parts[f"{_OF_CLIENT}{number}"] = _copied(arrays)
        ledger = {column: asdict(total) for column, total in server.ledger.total.items()}
        return Snapshot(server.state.round, {"format": FORMAT, "run": self._identity, "ledger": ledger}, parts)

    def save(self, snapshot: Snapshot, model: Mapping[str, Array]) -> None:
        """Begin to write a snapshot with the server's model as it was then."""
        self.wait()
        whole = replace(snapshot, parts={**snapshot.parts, _MODEL: model})
        self._pending = self._thread.submit(self._save, whole)

    def _save(self, snapshot: Snapshot) -> None:
        """Write a snapshot when all that a run has written until then is on disk: both are needed to go on."""
        run = Folder(self._directory.parent)
        for name in APPENDED:
            if (run.path / name).exists():
                run.sync(name)
        self._store.save(snapshot)

    def load(self) -> Checkpoint | None:
        """The newest checkpoint that is whole; ConfigError if it is not one of this run on this data."""
        snapshot = self._store.load()
        for damage in self._store.damaged:
            instead = "beginning again" if snapshot is None else f"going on from round {snapshot.number}"
            print(f"scarlet: {damage}; {instead}", file=sys.stderr)
        if snapshot is None:
            return None
        written = snapshot.meta.get("format", 1)
        if written != FORMAT:
            raise ConfigError(
                f"the checkpoint in {self._directory} has format {written}, and this version of scarlet reads format "
                f"{FORMAT}; resume with the version that wrote it, or run anew"
            )
        if snapshot.meta["run"] != self._identity:
            raise ConfigError(
                f"the checkpoint in {self._directory} is of other options or other data; restore those, or run anew"
            )
        return Checkpoint(snapshot)

    def wait(self) -> None:
        """Wait for the checkpoint under way."""
        if self._pending is None:
            return
        try:
            self._pending.result()
        except OSError as error:
            raise CheckpointError(
                f"cannot write a checkpoint to {self._directory}: {error.strerror}; "
                f"make room, then go on with 'scarlet resume {self._directory.parent}'"
            ) from error
        finally:
            self._pending = None

    def discard(self) -> None:
        """Remove the checkpoints of a run that is finished."""
        self.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

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


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A federation that was saved; a client's state is read when it is asked for."""

    snapshot: Snapshot

    def restore_server(self, server: Server) -> None:
        """Bring a new server and its ledger to what was saved."""
        parts = self.snapshot.parts
        arrays = dict(parts[_SERVER])
        for part in parts:
            if part.startswith(_OF_CLIENT):
                arrays |= parts[part]
        restore(server.state, arrays)
        totals: Any = self.snapshot.meta["ledger"]
        for column in COLUMNS:
            server.ledger.total[column] = Bytes(**totals[column])

    def server_model(self) -> Mapping[str, Array]:
        """The server's model, and what its optimiser remembers."""
        return self.snapshot.parts[_MODEL]

    def clients(self) -> States:
        """The states of the clients that were ever asked."""
        return _ClientStates(self.snapshot.parts)


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
