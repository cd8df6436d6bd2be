"""Algorithm 2 as the paper prints it: dictionaries, a queue, and one sample after the other.

Where the paper leaves a choice: a sample is requested if it is missing *or expired*; with `refresh` an expired entry is
replaced by the fresh label instead of deleted; a requested sample that nobody answered leaves the round and the cache.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

Label = tuple[float, ...]
GlobalCache = dict[int, tuple[Label, int]]
LocalCache = dict[int, Label]

NEWLY_CACHED, CACHED, EXPIRED = "NEWLY_CACHED", "CACHED", "EXPIRED"


def compute_request(cache: GlobalCache, index: Sequence[int], t: int, D: int) -> list[int]:
    """I_req^t of Algorithm 1."""
    return [i for i in index if i not in cache or t - cache[i][1] > D]


def assemble(cache: GlobalCache, fresh: Mapping[int, Label], index: Sequence[int], t: int, D: int) -> dict[int, Label]:
    """The full set of soft-labels of Algorithm 1: the requested ones that were answered, and the cached ones."""
    request = compute_request(cache, index, t, D)
    cached = {i: cache[i][0] for i in index if i not in request}
    return cached | {i: fresh[i] for i in request if i in fresh}


def update_global_cache(
    cache: GlobalCache, labels: Mapping[int, Label], index: Sequence[int], t: int, D: int, *, refresh: bool = False
) -> dict[int, str]:
    """UpdateGlobalCache: the signal of each sample that stays in the round, in the order of index."""
    signals: dict[int, str] = {}
    for i in index:
        if i not in labels:  # requested, and nobody answered
            cache.pop(i, None)
            continue
        z = labels[i]
        if i not in cache:
            cache[i] = (z, t)
            signals[i] = NEWLY_CACHED
        else:
            _, t_c = cache[i]
            if t - t_c <= D:
                signals[i] = CACHED
            elif refresh:
                cache[i] = (z, t)
                signals[i] = NEWLY_CACHED
            else:
                del cache[i]
                signals[i] = EXPIRED
    return signals


def update_local_cache(
    cache: LocalCache, signals: Mapping[int, str], fresh: Sequence[Label], dropped: Sequence[int]
) -> dict[int, Label]:
    """UpdateLocalCache: the soft-labels of the round, in the order of its samples."""
    labels: dict[int, Label] = {}
    queue = deque(fresh)
    for i, signal in signals.items():
        if signal == NEWLY_CACHED:
            cache[i] = queue.popleft()
            labels[i] = cache[i]
        elif signal == CACHED:
            labels[i] = cache[i]
        elif signal == EXPIRED:
            del cache[i]
            labels[i] = queue.popleft()
    assert not queue
    for i in dropped:
        cache.pop(i, None)
    return labels
