"""The body of a message: how it is read front to back, and the pieces that it is written of."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from scarlet.arrays import Index, Mask, Values
from scarlet.errors import MessageError
from scarlet.wire.entropy import decode_mask, encode_mask, read_varint, varint


class Body:
    """Reads a body front to back; nothing is allocated for what is not there."""

    def __init__(self, data: memoryview, round: int = 0, attempt: int = 0) -> None:
        self._data, self._at = data, 0
        self.round, self.attempt = round, attempt  # of the frame around it

    def take(self, count: int) -> memoryview:
        """The next bytes, not copied."""
        left = len(self._data) - self._at
        if count > left:
            raise MessageError(f"the message is cut short: {count} bytes are announced and {left} are left")
        self._at += count
        return self._data[self._at - count : self._at]

    def raw(self, count: int) -> bytes:
        """The next bytes."""
        return self.take(count).tobytes()

    def rest(self) -> memoryview:
        """All that is left."""
        return self.take(len(self._data) - self._at)

    def end(self) -> None:
        """Raise MessageError unless all was read."""
        if self._at != len(self._data):
            raise MessageError(f"the message has {len(self._data) - self._at} bytes after its end")

    # Plain numbers

    def head(self, layout: struct.Struct) -> tuple[int, ...]:
        return layout.unpack(self.take(layout.size))

    def integers(self, count: int) -> npt.NDArray[np.int64]:
        # A copy, because arithmetic on numbers that are not aligned in memory is slow.
        return np.frombuffer(self.raw(8 * count), "<i8").astype(np.int64, copy=False)

    def index(self, count: int) -> Index:
        """Samples in ascending order."""
        index = self.integers(count)
        if count and (index[0] < 0 or np.any(index[1:] <= index[:-1])):
            raise MessageError("the message's sample indices are not in ascending order from 0")
        return index

    def index_like(self, expected: Index, expected_bytes: bytes, count: int) -> Index:
        """Samples in ascending order; `expected` itself, if they are those, which is quick to see."""
        if bytes(self._data[self._at : self._at + 8 * count]) == expected_bytes:
            self._at += 8 * count
            return expected
        return self.index(count)

    # Few bits

    def flag(self, most: int) -> int:
        value = self.take(1)[0]
        if value > most:
            raise MessageError(f"the message has a flag of {value}, at most {most}")
        return value

    def number(self) -> int:
        value, self._at = read_varint(self._data, self._at)
        return value

    def mask(self, size: int) -> Mask:
        found, self._at = decode_mask(self._data, self._at, size)
        return found

    def among(self, of: Index) -> Index:
        """Some of these samples; or, with nothing more said, all of them."""
        return of if self.flag(1) == 0 else of[self.mask(len(of))]

    def places(self, of: Index) -> Index:
        """A few of these samples, each by its distance from the one before."""
        count, at, found = self.number(), -1, []
        if count > len(of):
            raise MessageError("the message names more samples than there are")
        for _ in range(count):
            at += 1 + self.number()
            if at >= len(of):
                raise MessageError("the message names a sample that there is not")
            found.append(at)
        return of[np.array(found, np.int64)]


def i8(values: npt.NDArray[np.int64]) -> bytes:
    """Integers as little-endian words of 64 bits."""
    return values.astype("<i8", copy=False).tobytes()


def f4(values: Values) -> bytes:
    """Numbers as little-endian float32."""
    return values.astype("<f4", copy=False).tobytes()


def among(some: Index, of: Index) -> bytes:
    """What `Body.among` reads: all of these samples, or those of a mask."""
    if len(some) == len(of):
        return b"\0"
    return b"\1" + encode_mask(np.isin(of, some, assume_unique=True))


def places(some: Index, of: Index) -> bytes:
    """What `Body.places` reads."""
    gaps = np.diff(np.searchsorted(of, some), prepend=-1) - 1
    return varint(len(some)) + b"".join(varint(int(gap)) for gap in gaps)
