"""Delta coding of what is taught: a cache policy that does not send again what everybody holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from scarlet.arrays import Index, Labels
from scarlet.protocol.cache import ABSENT, CachePolicy, CacheTable, Duration
from scarlet.protocol.messages import Signal, Sync


@dataclass(frozen=True, slots=True)
class Unchanged:
    """A fresh label that is the one held already is announced, and not sent.

    A client holds an entry until it is replaced, however old; one that was away for more than `window` rounds is sent
    it again. Labels repeat only if they are coarsely quantised: of float32 labels hardly any do.
    """

    policy: Duration
    caches: ClassVar[bool] = True
    window: int = 62  # rounds for which the server remembers who holds what; one word of bits

    @property
    def duration(self) -> int:
        return max(self.policy.duration, self.window)

    @property
    def stamping(self) -> CachePolicy:
        return self.policy  # whether a fresh label is the one that was held makes no difference to its stamp

    def request(self, table: CacheTable, index: Index, round: int) -> Index:
        return self.policy.request(table, index, round)

    def commit(self, table: CacheTable, fresh: Labels, index: Index, round: int) -> Sync:
        value, had = table.value[fresh.index], table.stamp[fresh.index] != ABSENT
        sync = self.policy.commit(table, fresh, index, round)
        assert sync.signal is not None
        same = had & (value == fresh.value).all(axis=tuple(range(1, value.ndim)))
        signal = sync.signal.copy()
        signal[np.searchsorted(sync.index, fresh.index[same])] = Signal.UNCHANGED
        signal[sync.signal == Signal.EXPIRED] = Signal.EXPIRED  # the entry is gone, so nothing is stored anew
        sent = signal[np.searchsorted(sync.index, fresh.index)] != Signal.UNCHANGED
        return Sync(round, sync.index, signal, fresh.value[sent], sync.dropped)
