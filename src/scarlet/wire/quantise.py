"""Soft-labels in a few bits: the constrained quantiser of CFD, and its levels as bytes.

A level is a whole number l from 0 to 2^b - 1 and stands for the probability l / (2^b - 1).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from scarlet.arrays import Values
from scarlet.distributions import SUM_TOLERANCE
from scarlet.errors import ConfigError, MessageError

Levels = npt.NDArray[np.int64]

# A float32 has 24 significant bits: from here on a label is sent as it is. Below, rounding to float32 and dividing by
# the sum move a level by a quarter at most, so a label that was quantised once is quantised to itself.
RAW_BITS = 24
_MOST_BITS = 32
_LARGEST_SHAPE = 2**48  # even an empty array must have a shape that numpy can index


def check_bits(name: str, bits: int) -> None:
    """Raise ConfigError unless a soft-label can be sent in that many bits a class."""
    if not 1 <= bits <= _MOST_BITS:
        raise ConfigError(f"{name} must be from 1 to {_MOST_BITS}, got {bits}; {_MOST_BITS} sends float32 as it is")


def quantise(values: Values, bits: int) -> Values:
    """The rows as their receiver reads them: Q_b(p) of CFD (eq. 10); from RAW_BITS on, p itself."""
    return values if bits >= RAW_BITS else from_levels(levels(values, bits), bits)


def levels(values: Values, bits: int) -> Levels:
    """The levels of the distribution on the grid that is nearest to each row p (eq. 10 of CFD).

        argmin_l sum_i |l_i / (2^b - 1) - p_i|, with whole l_i >= 0 and sum_i l_i = 2^b - 1

    Among equals the lowest index moves first, where CFD draws lots. bits=1 gives the one-hot of the argmax (eq. 11).
    A row that is no distribution has the levels 0, which `unpack` refuses: to turn it down is the receiver's part.
    """
    units = 2**bits - 1
    rows = values.astype(np.float64, order="C")  # in any other order a row's sum may end in another last bit
    with np.errstate(invalid="ignore"):
        total = rows.sum(axis=-1, keepdims=True)
    sound = np.abs(total - 1) <= SUM_TOLERANCE
    if rows.size and not rows.min() >= 0:
        sound &= (rows >= 0).all(axis=-1, keepdims=True)
    # The division comes first: two equal halves are then never more than 1/2 each, and do not both round up to 1.
    scaled = np.where(sound, rows, 0) / np.where(sound, total, 1) * units
    rounded = np.rint(scaled)
    deficit = np.where(sound[..., 0], units - rounded.dot(np.ones(values.shape[-1])), 0)
    moved = deficit != 0
    rounded[moved] += _moves(rounded[moved] - scaled[moved], deficit[moved][:, np.newaxis])
    result: Levels = rounded.astype(np.int64)
    return result


def _moves(residual: npt.NDArray[np.float64], deficit: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """By how much each level moves for a row to lose its deficit d: those do that are farthest on the other side of p.

    No residual exceeds 1/2, so at least 2 |d| have the sign of d: what moves does so towards p, and never below 0.
    """
    direction = np.sign(deficit)
    order = np.argsort(direction * residual, axis=-1, kind="stable")
    steps = np.where(np.arange(residual.shape[-1]) < np.abs(deficit), direction, 0)
    moves = np.empty_like(residual)
    np.put_along_axis(moves, order, steps, axis=-1)
    return moves


def from_levels(levels: Levels, bits: int) -> Values:
    """The soft-labels that the levels stand for: l / (2^b - 1), rounded to float32."""
    result: Values = (levels / (2**bits - 1)).astype(np.float32, order="C")
    return result


def pack(levels: Levels, bits: int) -> bytes:
    """The levels one after the other, b bits each, most significant first; zeros fill the last byte.

    bits=1 gives N bits a row, one of them set.
    """
    word = _word(bits)
    wide = np.unpackbits(levels.reshape(-1).astype(word).view(np.uint8)).reshape(-1, 8 * word.itemsize)
    return np.packbits(wide[:, -bits:]).tobytes()


def unpack(data: bytes | memoryview, shape: tuple[int, ...], bits: int) -> Levels:
    """The levels in `data`, or a MessageError if they are not what `pack` makes of rows that sum to 2^b - 1."""
    *leading, classes = shape
    count, rows = math.prod(shape), math.prod(leading)
    # The lengths are compared before anything is made of the shape, which the sender chose.
    if len(data) != (needed := -(-count * bits // 8)):
        raise MessageError(f"the message has {len(data)} bytes of levels where {rows} x {classes} take {needed}")
    if not count and (rows or math.prod(size or 1 for size in shape) > _LARGEST_SHAPE):
        raise MessageError(f"the message has levels of the shape {shape}, which no soft-labels have")
    stream = np.unpackbits(np.frombuffer(data, np.uint8))
    if stream[count * bits :].any():
        raise MessageError("the message's levels do not end in zeros")
    word = _word(bits)
    wide = np.zeros((count, 8 * word.itemsize), np.uint8)
    wide[:, -bits:] = stream[: count * bits].reshape(count, bits)
    levels = np.packbits(wide).view(word).astype(np.int64).reshape(shape)
    if (levels.sum(axis=-1) != 2**bits - 1).any():
        raise MessageError(f"the message has levels that do not sum to {2**bits - 1}", "unnormalised")
    return levels


def _word(bits: int) -> np.dtype[np.unsignedinteger]:
    """The narrowest whole number of that many bits, with its most significant byte first."""
    return np.dtype(">u1" if bits <= 8 else ">u2" if bits <= 16 else ">u4")
