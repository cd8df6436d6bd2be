"""One client of a federation: its protocol, the state of its model, and the disk that keeps both.

Whoever hosts a node trains its model between `begin` and `finish`, one client or many at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from scarlet.arrays import Array
from scarlet.errors import ConfigError
from scarlet.job import Job, Result
from scarlet.protocol.client import Client
from scarlet.protocol.method import Prepared
from scarlet.protocol.state import arrays_of, restore
from scarlet.store import Disk, Snapshot, Store

_PART = "client"  # the only part of a node's checkpoint
_MODEL = "model."  # the prefix of the model's arrays


class OtherExperiment(ConfigError):
    """A state directory that belongs to another experiment."""


class ModelState(Protocol):
    """What a node must save of the model that is trained for it."""

    def arrays(self) -> Mapping[str, Array]: ...

    def restore(self, arrays: Mapping[str, Array]) -> None: ...


class Node:
    """A client whose state is on disk before its reply leaves.

    Without a disk the host keeps the state: a local run checkpoints all clients at one instant. A disk belongs to one
    experiment, the agreement of the client.

    A client that has answered before and then lost its disk begins with an untrained model, whose soft-labels would
    spoil the aggregate. `abstain` is for how many rounds such a client learns but sends none; whoever hosts the node
    says so where it finds nothing saved and the server knows the client.
    """

    def __init__(
        self,
        client: Client,
        model: ModelState,
        prepare: Callable[[], Prepared],
        disk: Disk | None = None,
        *,
        abstain: int = 0,
    ) -> None:
        self.client, self.model = client, model
        self._prepare = prepare  # computes once what the method's filter needs
        self._store = None if disk is None else Store(disk)
        self._saves = 0
        self._unsaved = False  # the kept reply is not on disk, because writing failed
        saved = None if self._store is None else self._store.load()
        if saved is None:
            self.client.state.abstains = abstain
            return
        if saved.meta.get("agreement") != client.agreement.digest.hex():
            raise OtherExperiment(
                f"the state directory is of experiment {saved.meta.get('agreement')}, and this node takes part in "
                f"{client.agreement.digest.hex()}; use another directory, or that experiment's agreement"
            )
        self.restore(saved.parts[_PART])
        self._saves = saved.number

    def begin(self, downlink: bytes) -> Job | list[bytes]:
        """What to train, or what to send at once: the kept reply to the same downlink, or a request for a reset."""
        received = self.client.receive(downlink)
        if self._unsaved and not isinstance(received, Job):
            self._save()
        return received

    def finish(self, job: Job, result: Result) -> list[bytes]:
        """The reply to a job; it is on disk, with all that the client remembers, when this returns."""
        if self.client.state.prepared is None:
            self.client.state.prepared = self._prepare()
        replies = self.client.reply(job, result)
        self._save()
        return replies

    def arrays(self) -> dict[str, Array]:
        """All that the client remembers, not copied: the state of its protocol and of its model."""
        model = {f"{_MODEL}{name}": array for name, array in self.model.arrays().items()}
        return arrays_of(self.client.state) | model

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Bring the client to a state that was saved."""
        restore(self.client.state, arrays)
        self.model.restore(model_part(arrays))

    def _save(self) -> None:
        if self._store is None:
            return
        self._unsaved = True
        self._saves += 1
        meta = {"agreement": self.client.agreement.digest.hex()}
        self._store.save(Snapshot(self._saves, meta, {_PART: self.arrays()}))
        self._unsaved = False


def model_part(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The model's arrays in a node's state, copied."""
    return {name.removeprefix(_MODEL): np.array(arrays[name]) for name in arrays if name.startswith(_MODEL)}
