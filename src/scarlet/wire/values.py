"""Soft-labels as bytes: plain, as the paper counts them, or entropy coded."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from scarlet.arrays import Values
from scarlet.errors import MessageError
from scarlet.wire.body import Body, f4, i8
from scarlet.wire.entropy import decode_labels, encode_labels
from scarlet.wire.quantise import RAW_BITS, from_levels, levels, pack, unpack


def plain(value: Values, bits: int) -> bytes:
    """A float32 for each entry of a label, an int64 for a label of one bit, entries of 2 to 23 bits packed."""
    if bits >= RAW_BITS:
        return f4(value)
    if bits == 1:
        level = levels(value, 1)
        # A row that is no distribution has no best class, and its receiver must not take it for one that has.
        return i8(np.where(level.any(axis=-1), level.argmax(axis=-1), -1))
    return pack(levels(value, bits), bits)


def plain_size(shape: tuple[int, ...], bits: int) -> int:
    """The bytes of `plain`, for an array of that shape."""
    if bits >= RAW_BITS:
        return 4 * math.prod(shape)
    return 8 * math.prod(shape[:-1]) if bits == 1 else -(-bits * math.prod(shape) // 8)


def read_plain(body: Body, shape: tuple[int, ...], bits: int, most_classes: int) -> Values:
    """The reverse of `plain`; MessageError for what it cannot have written."""
    if bits >= RAW_BITS:
        flat = np.frombuffer(body.raw(4 * math.prod(shape)), "<f4")
        return flat.astype(np.float32, copy=False).reshape(shape)
    if bits > 1:
        return from_levels(unpack(body.take(-(-bits * math.prod(shape) // 8)), shape, bits), bits)
    best, classes = body.integers(math.prod(shape[:-1])), shape[-1]
    if classes > most_classes:  # the size of a label of one bit on the wire says nothing of its size in memory
        raise MessageError(f"the message has labels of {classes} classes; at most {most_classes}", "wrong shape")
    if np.any((best < 0) | (best >= classes)):
        raise MessageError("the message has a label of a class that there is not", "unnormalised")
    value = np.zeros((len(best), classes), np.float32)
    value[np.arange(len(best)), best] = 1
    return value.reshape(shape)


def coded(value: Values, bits: int) -> bytes:
    """Quantised to so many bits an entry and entropy coded; from RAW_BITS on, float32."""
    if bits >= RAW_BITS:
        return f4(value)
    return encode_labels(levels(value, bits).reshape(-1, value.shape[-1]), bits)


def read_coded(body: Body, shape: tuple[int, ...], bits: int) -> Values:
    """The reverse of `coded`, which is the rest of a body."""
    rest = body.rest()
    if bits < RAW_BITS:
        return _decoded(bytes(rest), math.prod(shape[:-1]), shape[-1], bits).reshape(shape)
    if len(rest) != 4 * math.prod(shape):
        raise MessageError(f"the message has {len(rest)} bytes of labels for {shape[0]} samples")
    return np.frombuffer(rest, "<f4").astype(np.float32, copy=False).reshape(shape)


@lru_cache(maxsize=2)
def _decoded(data: bytes, rows: int, classes: int, bits: int) -> Values:
    """Labels that were coded, not to be written to.

    The clients of one process decode the same broadcast one after another, with at most one other message between.
    """
    value = from_levels(decode_labels(data, rows, classes, bits), bits)
    value.flags.writeable = False
    return value
