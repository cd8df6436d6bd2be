"""Delta coding of answers: a client sends only the labels that differ from those which the server last accepted.

An answer has a name, a hash of its bytes, and says on which accepted answer it builds. The server names in each
downlink the answer of that client which it accepted last, so both sides know what the other has: an answer that was
lost, or that belonged to an attempt which failed, is taken back by the client, and whoever lost its memory begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from scarlet.errors import MessageError
from scarlet.protocol.types import DIGEST_BYTES, NOTHING, Index, Labels, Uplink, Values


def name_of(answer: bytes) -> bytes:
    """The name of an answer."""
    return blake2b(answer, digest_size=DIGEST_BYTES).digest()


@dataclass(slots=True)
class Memory:
    """The last label of each sample, where there is one."""

    value: Values  # f32[P, N]
    known: npt.NDArray[np.bool_]  # bool[P]
    name: bytes = NOTHING  # of the last answer in it

    @classmethod
    def empty(cls, size: int, classes: int) -> Memory:
        return cls(np.zeros((size, classes), np.float32), np.zeros(size, np.bool_))

    def forget(self) -> None:
        """Begin anew."""
        self.value[:], self.known[:] = 0, False
        self.name = NOTHING

    def take(self, labels: Labels, base: bytes, name: bytes) -> None:
        """Take in a whole answer that builds on `base`."""
        if base == NOTHING:
            self.forget()
        self.value[labels.index], self.known[labels.index], self.name = labels.value, True, name

    def whole(self, uplink: Uplink) -> Labels:
        """All labels of an answer, those that were not sent included; MessageError if it builds on something else."""
        if uplink.base == NOTHING:
            return uplink.labels
        if uplink.base != self.name:
            raise MessageError(f"client {uplink.client} builds on an answer that was not its last", "wrong base")
        if not self.known[uplink.same].all():
            raise MessageError(f"client {uplink.client} refers to labels that it never sent", "wrong base")
        index = np.concatenate([uplink.labels.index, uplink.same])
        order = np.argsort(index, kind="stable")
        if np.any(np.diff(index[order]) == 0):
            raise MessageError(f"client {uplink.client} labels a sample twice", "wrong samples")
        return Labels(index[order], np.concatenate([uplink.labels.value, self.value[uplink.same]])[order])


@dataclass(slots=True)
class Sent:
    """A client's memory of its own answers, and of what the last of them replaced."""

    memory: Memory
    base: bytes = NOTHING  # what the last answer built on
    before: Labels | None = None  # what it replaced; None: there is no way back
    known: npt.NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))  # of `before`

    def agree(self, accepted: bytes) -> None:
        """Bring the memory to what the server says it accepted last."""
        memory = self.memory
        if accepted == memory.name:
            return
        if self.before is not None and accepted == self.base:
            memory.value[self.before.index] = self.before.value
            memory.known[self.before.index] = self.known
            memory.name, self.before = self.base, None
        else:
            memory.forget()
            self.before = None

    def split(self, labels: Labels) -> tuple[Labels, Index]:
        """The labels that must be sent, and the samples whose label is as it was."""
        same = self.memory.known[labels.index] & (self.memory.value[labels.index] == labels.value).all(axis=1)
        return Labels(labels.index[~same], labels.value[~same]), labels.index[same]

    def note(self, labels: Labels, name: bytes) -> None:
        """An answer has been given; keep what it replaces."""
        memory = self.memory
        self.base = memory.name
        self.before = Labels(labels.index, memory.value[labels.index].copy())
        self.known = memory.known[labels.index].copy()
        memory.take(labels, self.base, name)
