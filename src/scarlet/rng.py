"""Every random draw comes from a stream that is named, never from a shared generator.

A stream's name says who draws, when and what for, so the result of a run does not depend on the order or number of
workers, and a run that resumes needs no saved generator state.
"""

from __future__ import annotations

import math
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
from numpy.random.bit_generator import ISeedSequence


class _Key(ISeedSequence):
    """Gives Philox its key. Philox(key=...) does the same, but first reads entropy of the system that it never uses."""

    def __init__(self, key: bytes) -> None:
        self._words = np.frombuffer(key, "<u8")

    def generate_state(self, n_words: int, dtype: npt.DTypeLike = np.uint64) -> npt.NDArray[np.uint64]:
        assert n_words == 2
        return self._words


def stream(
    seed: int, role: str, *, client: int | str = -1, round: int = 0, attempt: int = 0, purpose: str = ""
) -> np.random.Generator:
    """The generator named (seed, role, client, round, attempt, purpose): Philox under a BLAKE2b key of the name."""
    name = f"{seed}/{role}/{client}/{round}/{attempt}/{purpose}"
    key = blake2b(name.encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(_Key(key)))  # type: ignore[arg-type]  # the stub knows no ISeedSequence


def draw(rng: np.random.Generator, population: int, size: int) -> npt.NDArray[np.int64]:
    """`size` of `population` indices, without replacement, in ascending order.

    The indices of the `size` smallest of `population` raw 64-bit words, the lower index first among equals. It uses
    nothing of numpy but the Philox bit stream, which is fixed by its definition.
    """
    words = rng.bit_generator.random_raw(population)
    # Only the words below a bound, which the wanted ones hardly ever exceed, are put in order.
    share = (size + 10 * math.sqrt(size) + 10) / max(1, population)
    near = np.flatnonzero(words <= np.uint64(share * 2.0**63) * 2) if share < 1 else np.arange(population)
    if len(near) < size:
        near = np.arange(population)
    smallest = np.argsort(words[near], kind="stable")[:size]
    return np.sort(near[smallest]).astype(np.int64)
