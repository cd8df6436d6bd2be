"""Entropy coding of quantised soft-labels: adaptive counts, exact on every machine.

A row of levels l_1 ... l_N with sum m is a stick that is broken from class to class: with r_j = m - l_1 - ... - l_{j-1}
left, class j takes l_j of r_j, and the last class takes what is left. So whatever is decoded is a distribution, classes
after the end of the stick cost nothing, and a certain label costs little more than its class. What a class takes is
nothing, all, or a part of some magnitude: a symbol, whose probabilities are counts of the rows before it, followed by
the magnitude's lower bits as they are.

Counts are taken after each of a few blocks of rows that double in size, so that a whole block is coded at once. Of one
bit, where a row is no more than a class, classes that are all alike are coded without counts, which would have to be
learned first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import constriction
import numpy as np
import numpy.typing as npt

from scarlet.errors import MessageError

Levels = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_NONE, _ALL, _PART = 0, 1, 2  # a part is _PART + 2 (bits of its magnitude - 1) + whether it is the larger half
_FIRST_BLOCK = 8  # rows
_SPLITS = 4  # of what is left of a stick: all of it, more than a half, more than an eighth, less
_TRUST = 4.0  # rows that the counts of all classes together stand for, beside those of the class itself
_UNIFORM = b"\1"  # instead of the number of lower bits, of which labels of one bit have none
_ANS = constriction.stream.stack.AnsCoder
_FAMILY = constriction.stream.model.Categorical(perfect=False)


def encode_labels(levels: Levels, bits: int) -> bytes:
    """Rows of levels that sum to 2^bits - 1, as bytes; their number and length are not in them.

    No bytes at all if a row is no distribution: to turn it down is the receiver's part.
    """
    rows, classes = levels.shape
    total = 2**bits - 1
    if (levels.sum(axis=1) != total).any():
        return b""
    part = np.ascontiguousarray(levels[:, :-1].T)  # class after class, as the decoder must do it
    left = total - np.cumsum(part, axis=0) + part
    alive = left > 0
    counts, edges = _Counts(classes, bits), _edges(total)
    symbols = np.zeros(np.count_nonzero(alive), np.int32)
    tables = np.empty((len(symbols), counts.symbols))
    lowers, widths, at = [], [], 0
    for block in _blocks(rows):
        of, row = np.nonzero(alive[:, block])
        row += block.start
        rest, taken = left[of, row], part[of, row]
        context = of * _SPLITS + (_SPLITS - 1) - edges.searchsorted(rest)
        here = slice(at, at + len(of))
        some = np.flatnonzero(taken)  # most classes take nothing
        symbols[here][some], lower, width = _symbols(taken[some], rest[some])
        counts.table().take(context, axis=0, out=tables[here], mode="clip")
        counts.add(context, symbols[here])
        lowers.append(lower)
        widths.append(width)
        at += len(of)
    if not at:
        return b""
    coder = _ANS()
    coder.encode_reverse(symbols, _FAMILY, tables)
    plain = _pack(np.concatenate(lowers), np.concatenate(widths))
    coded = varint(len(plain)) + plain + _words(coder)
    if bits == 1:
        return min(coded, _UNIFORM + _uniform(levels.argmax(axis=1), classes), key=len)
    return coded


def decode_labels(data: bytes | memoryview, rows: int, classes: int, bits: int) -> Levels:
    """The levels of so many rows; MessageError if the bytes are not theirs."""
    total = 2**bits - 1
    levels = np.zeros((classes, rows), np.int64)
    if not rows:
        if len(data):
            raise MessageError("the message has labels of samples that there are not")
        return levels.T
    if not len(data):
        raise MessageError("the message has no labels, as if they were not distributions", "unnormalised")
    if bits == 1 and data[:1] == _UNIFORM:
        levels[_of_uniform(data[1:], rows, classes), np.arange(rows)] = 1
        return levels.T
    count, at = read_varint(data, 0)
    plain = _Bits(bytes(data[at : at + count]))
    coder = _coder(data[at + count :])
    counts, edges, of_symbol = _Counts(classes, bits), _edges(total), _meanings(bits)
    for block in _blocks(rows):
        live = np.arange(block.start, block.stop)  # the rows of which something is left
        left = np.full(len(live), total)
        split = edges.searchsorted(left)
        table = counts.table()
        contexts, symbols, smalls, wholes = [], [], [], []
        for of in range(classes - 1):
            context = of * _SPLITS + (_SPLITS - 1) - split
            symbol = coder.decode(_FAMILY, table.take(context, axis=0))
            contexts.append(context)
            symbols.append(symbol)
            some = symbol.nonzero()[0]  # most classes take nothing
            if not len(some):
                continue
            symbol, whole = symbol[some], left[some]
            width, least = of_symbol.take(symbol, axis=1)
            small = least + plain.read(width)
            taken = np.where(symbol & 1, whole - small, small)
            smalls.append(small)
            wholes.append(whole)
            levels[of, live[some]] = taken
            left[some] = rest = whole - taken
            split[some] = edges.searchsorted(rest)
            if not rest.all():
                some = left.nonzero()[0]
                live, left, split = live[some], left[some], split[some]
                if not len(live):
                    break
        if smalls and (2 * np.concatenate(smalls) > np.concatenate(wholes)).any():
            raise MessageError("a label of the message takes more than there is")
        levels[classes - 1, live] = left
        counts.add(np.concatenate(contexts), np.concatenate(symbols))
    if not (coder.is_empty() and plain.exhausted):
        raise MessageError("the message has more labels than samples")
    return levels.T


def _uniform(symbols: Levels, size: int) -> bytes:
    """Numbers below `size` in log2(size) bits each."""
    coder = _ANS()
    coder.encode_reverse(symbols.astype(np.int32), constriction.stream.model.Uniform(size))
    return _words(coder)


def _of_uniform(data: bytes | memoryview, count: int, size: int) -> npt.NDArray[np.int32]:
    coder = _coder(data)
    symbols: npt.NDArray[np.int32] = coder.decode(constriction.stream.model.Uniform(size), count)
    if not coder.is_empty():
        raise MessageError("the message has more labels than samples")
    return symbols


def encode_mask(mask: Mask) -> bytes:
    """A mask, by how many of it are true: about len(mask) H bits."""
    if not len(mask):
        return b""
    count = int(mask.sum())
    coder = _ANS()
    if 0 < count < len(mask):
        coder.encode_reverse(mask.astype(np.int32), _chances(count, len(mask)))
    words = _words(coder)
    return varint(count) + varint(len(words)) + words


def decode_mask(data: bytes | memoryview, at: int, size: int) -> tuple[Mask, int]:
    """The mask at a place, and the place after it."""
    if not size:
        return np.zeros(0, np.bool_), at
    count, at = read_varint(data, at)
    length, at = read_varint(data, at)
    if count > size or length > len(data) - at:
        raise MessageError("the message has a mask of more samples than there are")
    if count in (0, size):
        mask = np.full(size, count > 0)
        coder = _coder(data[at : at + length])
    else:
        coder = _coder(data[at : at + length])
        mask = coder.decode(_chances(count, size), size).astype(np.bool_)
    if not coder.is_empty() or mask.sum() != count:
        raise MessageError("the message has a mask that is not what it announces")
    return mask, at + length


def _chances(count: int, size: int) -> object:
    return constriction.stream.model.Categorical(np.array([size - count, count], np.float64), perfect=False)


def _words(coder: Any) -> bytes:
    """All that was encoded, as `_coder` takes it."""
    words: bytes = coder.get_compressed().astype("<u4").tobytes()
    return words.rstrip(b"\0")


def _coder(data: bytes | memoryview) -> Any:
    words = bytes(data)
    try:
        return _ANS(np.frombuffer(words + bytes(-len(words) % 4), "<u4").astype(np.uint32))
    except ValueError:
        raise MessageError("the message is not coded as it should be") from None


def varint(number: int) -> bytes:
    """A number of 0 or more in as many bytes as it needs, seven bits in each, the lowest first."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The number at a place, and the place after it."""
    number = 0
    for shift in range(0, 63, 7):
        if at >= len(data):
            break
        number |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return number, at
    raise MessageError("the message has a number that does not end")


class _Counts:
    """How often each symbol has occurred in a context: a class, and how much was left."""

    def __init__(self, classes: int, bits: int) -> None:
        self.symbols = _PART + 2 * bits
        start = np.ones(self.symbols)
        start[_NONE], start[_ALL] = 8, 2  # before anything is seen, nothing is likeliest
        self._shared = np.tile(start, (_SPLITS, 1))
        self._own = np.zeros(((classes - 1) * _SPLITS, self.symbols))

    def table(self) -> npt.NDArray[np.float64]:
        """A row of weights for each context; they need not sum to 1."""
        pooled = _TRUST * self._shared / self._shared.sum(axis=1, keepdims=True)
        table: npt.NDArray[np.float64] = self._own + np.tile(pooled, (len(self._own) // _SPLITS, 1))
        return table

    def add(self, context: Levels, symbol: npt.NDArray[np.int32]) -> None:
        """Count the symbols of a block."""
        cell = context * self.symbols + symbol
        new = np.bincount(cell, minlength=self._own.size).reshape(self._own.shape)
        self._own += new
        self._shared += new.reshape(-1, _SPLITS, self.symbols).sum(axis=0)


def _blocks(rows: int) -> Iterator[slice]:
    start, size = 0, _FIRST_BLOCK
    while start < rows:
        yield slice(start, min(rows, start + size))
        start += size
        size = start


def _edges(total: int) -> Levels:
    """Of what is left of a stick, in ascending order: up to each of them it is less than before."""
    return np.array([total // 8, total // 2, total - 1])


def _symbols(taken: Levels, left: Levels) -> tuple[Levels, Levels, Levels]:
    """The symbol of each class that takes something; of the parts also the lower bits, and how many they are."""
    some = taken < left
    symbol = np.full(len(taken), _ALL)
    taken, left = taken[some], left[some]
    larger = 2 * taken > left
    small = np.where(larger, left - taken, taken)
    width = np.frexp(small.astype(np.float64))[1].astype(np.int64) - 1  # 0 for 1, 1 for 2 and 3, ...
    symbol[some] = _PART + 2 * width + larger
    return symbol, small - (1 << width), width


def _meanings(bits: int) -> Levels:
    """For each symbol the width of its lower bits and the magnitude without them; all is all but a magnitude of 0."""
    width = np.arange(2 * bits + _PART) // 2 - 1
    return np.where(width < 0, 0, [width, 1 << np.maximum(width, 0)])


def _pack(values: Levels, widths: Levels) -> bytes:
    """Numbers of different widths, one after the other, as bits; the last byte is filled up with zeros."""
    if not len(values):
        return b""
    ends = np.cumsum(widths)
    bits = np.zeros(int(ends[-1]), np.uint8)
    for place in range(int(widths.max())):
        mask = widths > place
        bits[ends[mask] - 1 - place] = values[mask] >> place & 1
    return np.packbits(bits).tobytes()


class _Bits:
    """Reads what `_pack` wrote."""

    def __init__(self, data: bytes) -> None:
        self._last = data[-1:]
        byte = np.frombuffer(data + bytes(4), np.uint8).astype(np.int64)
        self._windows = byte[:-3] << 24 | byte[1:-2] << 16 | byte[2:-1] << 8 | byte[3:]  # from each byte on
        self._bits = 8 * len(data)
        self._at = 0

    def read(self, widths: Levels) -> Levels:
        """The next numbers, of at most 24 bits each."""
        ends = self._at + widths.cumsum()
        if ends[-1] > self._bits:
            raise MessageError("the message's labels are cut short")
        starts = ends - widths
        self._at = int(ends[-1])
        values: Levels = self._windows[starts >> 3] >> (32 - (starts & 7) - widths) & ((1 << widths) - 1)
        return values

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left but zeros that fill the last byte."""
        rest = self._bits - self._at
        return rest < 8 and not (rest and self._last[0] & ((1 << rest) - 1))
