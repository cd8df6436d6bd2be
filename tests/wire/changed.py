"""What the tests of entropy coding share: bytes that are changed, and long ones told in short."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """The same with a few bits or bytes changed, or cut, or extended."""
    changed = bytearray(data)
    match rng.integers(4):
        case 0 if changed:
            for bit in rng.integers(8 * len(changed), size=rng.integers(1, 4)).tolist():
                changed[bit // 8] ^= 1 << bit % 8
        case 1 if changed:
            changed[int(rng.integers(len(changed)))] = int(rng.integers(256))
        case 2:
            del changed[int(rng.integers(len(changed) + 1)) :]
        case _:
            changed += rng.bytes(int(rng.integers(1, 9)))
    return bytes(changed)


def told(data: bytes) -> str:
    """The bytes in hex; or, where they are many, their number and hash."""
    return data.hex() if len(data) <= 50 else f"{len(data)} bytes, {blake2b(data, digest_size=16).hexdigest()}"
