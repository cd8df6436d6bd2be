"""Who holds what: exact knowledge of every client's cache in about D bits a client and nothing of size K x |P|.

An entry serves for at most D rounds after its stamp, so only the last D + 1 rounds matter. For each client: the rounds
whose sync it has acknowledged. For each public sample: the rounds since its stamp in which it was drawn. A client that
acknowledged a round was brought up to date on all samples of that round, so it holds the current version of a sample if
and only if the two sets share a round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scarlet.arrays import Index, Mask
from scarlet.protocol.messages import Sync

Words = npt.NDArray[np.uint64]


@dataclass(slots=True)
class Holdings:
    """Two tables of bits; round r is bit r modulo the width, which is at least D + 2."""

    acknowledged: Words  # u64[K, W]
    drawn: Words  # u64[P, W]

    @classmethod
    def empty(cls, clients: int, public_size: int, duration: int) -> Holdings:
        words = -(-(duration + 2) // 64)
        return cls(np.zeros((clients, words), np.uint64), np.zeros((public_size, words), np.uint64))

    def commit(self, sync: Sync) -> None:
        """Note which samples a round drew, and which of them have a new label."""
        assert sync.signal is not None
        word, bit = self._place(sync.round)
        # The bit stood for a round that is too old to matter, and now stands for this one.
        self.acknowledged[:, word] &= ~bit
        self.drawn[:, word] &= ~bit
        self.drawn[sync.index[~sync.held]] = 0
        self.drawn[sync.index, word] |= bit

    def acknowledge(self, client: int, round: int) -> None:
        """A client has applied the sync of a round."""
        word, bit = self._place(round)
        self.acknowledged[client, word] |= bit

    def forget(self, client: int) -> None:
        """A client's cache is empty, or cannot be trusted."""
        self.acknowledged[client] = 0

    def lacks(self, client: int, samples: Index) -> Mask:
        """Which of some samples, all with a valid entry, the client does not hold in their current version."""
        shared: Mask = (self.drawn[samples] & self.acknowledged[client]).any(axis=1)
        return ~shared

    def _place(self, round: int) -> tuple[int, np.uint64]:
        position = round % (64 * self.drawn.shape[1])
        return position // 64, np.uint64(1 << (position % 64))
