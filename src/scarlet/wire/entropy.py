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

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import constriction
import numpy as np
import numpy.typing as npt

from scarlet.arrays import Mask
from scarlet.errors import MessageError

Levels = npt.NDArray[np.int64]
Small = npt.NDArray[np.int32]
Weights = npt.NDArray[np.float64]

_NONE, _ALL, _PART = 0, 1, 2  # a part is _PART + 2 (bits of its magnitude - 1) + whether it is the larger half
_FIRST_BLOCK = 8  # rows
_SPLITS = 4  # of what is left of a stick: all of it, more than a half, more than an eighth, less
_TRUST = 4.0  # rows that the counts of all classes together stand for, beside those of the class itself
_UNIFORM = b"\1"  # instead of the number of lower bits, of which labels of one bit have none
_ANS = constriction.stream.stack.AnsCoder
_LOOKUP = 2**12  # the largest number of which there are tables
_SHIFTS = np.arange(8, 0, -1, dtype=np.uint32)
_MASKS = (1 << np.arange(25)) - 1
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
    order, sizes = _block_after_block(left > 0)
    if not len(order):
        return b""
    rest, taken = left.ravel()[order], part.ravel()[order]
    context = _SPLITS * (order // rows) + _split(total)(rest)
    symbols, small = _symbols(taken, rest)
    coder = _ANS()
    coder.encode_reverse(symbols, _FAMILY, _weights(context, symbols, sizes, _Counts(classes, bits)))
    width, least, _ = _meanings(bits)
    plain = _pack(small - least[symbols], width[symbols])
    coded = varint(len(plain)) + plain + _words(coder)
    if bits == 1:
        return min(coded, _UNIFORM + _uniform(levels.argmax(axis=1), classes), key=len)
    return coded


def _block_after_block(alive: Mask) -> tuple[Levels, Levels]:
    """Where [class, row] something is left, and how many of these places are in each block: blocks, classes, rows."""
    classes, rows = alive.shape
    place = np.flatnonzero(alive)
    blocks = [block.stop - block.start for block in _blocks(rows)]
    block = np.tile(np.repeat(np.arange(len(blocks), dtype=np.uint8), blocks), classes)[place]
    return place[np.argsort(block, kind="stable")], np.bincount(block)


def _weights(context: Levels, symbols: Small, sizes: Levels, counts: _Counts) -> Weights:
    """The weights of all symbols in each context, as the blocks before have them."""
    weights = np.empty((len(context), counts.symbols))
    ends = np.cumsum(sizes)
    for start, end in zip(ends - sizes, ends, strict=True):
        counts.table().take(context[start:end], axis=0, out=weights[start:end], mode="clip")
        counts.add(context[start:end], symbols[start:end])
    return weights


def decode_labels(data: bytes | memoryview, rows: int, classes: int, bits: int) -> Levels:
    """The levels of so many rows; MessageError if the bytes are not theirs."""
    if not rows:
        if len(data):
            raise MessageError("the message has labels of samples that there are not")
        return np.zeros((0, classes), np.int64)
    if not len(data):
        raise MessageError("the message has no labels, as if they were not distributions", "unnormalised")
    if bits == 1 and data[:1] == _UNIFORM:
        levels = np.zeros((rows, classes), np.int64)
        levels[np.arange(rows), _of_uniform(data[1:], rows, classes)] = 1
        return levels
    decoder = _Decoder(data, rows, classes, bits)
    for block in _blocks(rows):
        decoder.read(block)
    return decoder.levels()


class _Decoder:
    """Breaks sticks as their symbols say, a block of rows at once."""

    def __init__(self, data: bytes | memoryview, rows: int, classes: int, bits: int) -> None:
        count, at = read_varint(data, 0)
        self._plain = _Bits(bytes(data[at : at + count]))
        self._coder = _coder(data[at + count :])
        self._counts = _Counts(classes, bits)
        self._split, self._meanings = _split(2**bits - 1), _meanings(bits)
        self._left = np.zeros((classes + 1, rows), np.int64)  # of each stick, before each class and after the last
        self._left[0] = 2**bits - 1
        self._smalls: list[Levels] = []
        self._wholes: list[Levels] = []

    def read(self, block: slice) -> None:
        """Read the rows of a block."""
        table, contexts, symbols = self._counts.table(), [], []
        before, *others = self._left[:-1, block]
        for of, after in enumerate(others):
            live = (before > 0).nonzero()[0]
            if not len(live):
                break
            left = before[live]
            context = self._split(left) + of * _SPLITS
            symbol = self._coder.decode(_FAMILY, table.take(context, axis=0))
            after[live] = self._rest(left, symbol.astype(np.int64)) if np.count_nonzero(symbol) else left
            contexts.append(context)
            symbols.append(symbol)
            before = after
        if contexts and block.stop < self._left.shape[1]:  # after the last block nobody asks
            self._counts.add(np.concatenate(contexts), np.concatenate(symbols))

    def _rest(self, whole: Levels, symbol: Levels) -> Levels:
        """What is left of sticks; what cannot be is found in the end."""
        width, least, larger = self._meanings
        small = self._plain.read(width[symbol])
        small += least[symbol]
        rest = whole - small
        np.putmask(rest, larger[symbol], small)
        self._smalls.append(small)
        self._wholes.append(whole)
        return rest

    def levels(self) -> Levels:
        """The levels of all rows, once they are read."""
        if self._smalls and (2 * np.concatenate(self._smalls) > np.concatenate(self._wholes)).any():
            raise MessageError("a label of the message takes more than there is")
        if not (self._coder.is_empty() and self._plain.exhausted):
            raise MessageError("the message has more labels than samples")
        return (self._left[:-1] - self._left[1:]).T


def _uniform(symbols: Levels, size: int) -> bytes:
    """Numbers below `size` in log2(size) bits each."""
    coder = _ANS()
    coder.encode_reverse(symbols.astype(np.int32), constriction.stream.model.Uniform(size))
    return _words(coder)


def _of_uniform(data: bytes | memoryview, count: int, size: int) -> Small:
    coder = _coder(data)
    symbols: Small = coder.decode(constriction.stream.model.Uniform(size), count)
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
    coder, mask = _coder(data[at : at + length]), np.full(size, count > 0)
    if 0 < count < size:
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
        self._start = np.ones((_SPLITS, self.symbols))
        self._start[:, _NONE], self._start[:, _ALL] = 8, 2  # before anything is seen, nothing is likeliest
        self._own = np.zeros((classes - 1, self._start.size))
        self._every_class, self._every_symbol = np.ones(classes - 1), np.ones((self.symbols, 1))

    def table(self) -> Weights:
        """A row of weights for each context; they need not sum to 1."""
        # Sums of whole numbers, which are exact in any order.
        shared = self._start + self._every_class.dot(self._own).reshape(self._start.shape)
        pooled = _TRUST * shared / shared.dot(self._every_symbol)
        table: Weights = self._own + pooled.ravel()
        return table.reshape(-1, self.symbols)

    def add(self, context: Levels, symbol: Small) -> None:
        """Count the symbols of a block."""
        cell = context * self.symbols + symbol
        self._own += np.bincount(cell, minlength=self._own.size).reshape(self._own.shape)


def _blocks(rows: int) -> Iterator[slice]:
    start, size = 0, _FIRST_BLOCK
    while start < rows:
        yield slice(start, min(rows, start + size))
        start += size
        size = start


@cache
def _split(total: int) -> Callable[[Levels], Levels]:
    """Which split it is that so much is left of a stick."""
    edges = np.array([total // 8, total // 2, total - 1])  # up to each of them it is less than before
    if total > _LOOKUP:
        return edges.searchsorted
    table: Levels = edges.searchsorted(np.arange(total + 1))
    return table.__getitem__


def _symbols(taken: Levels, left: Levels) -> tuple[Small, Levels]:
    """The symbol of what each class takes, and the smaller half: of nothing and all it is 0, and has 0 bits."""
    small = np.minimum(taken, left - taken)
    _, length = np.frexp(small.astype(np.float32))  # whole numbers of 24 bits are exact
    return 2 * length + (2 * taken > left), small


@cache
def _meanings(bits: int) -> tuple[Levels, Levels, Mask]:
    """For each symbol the width of its lower bits, the magnitude without them, and whether it is that of the rest.

    Nothing is a magnitude of 0, and all is all but 0.
    """
    symbol = np.arange(_PART + 2 * bits)
    width = np.maximum(symbol // 2 - 1, 0)
    return width, np.where(symbol < _PART, 0, 1 << width), symbol % 2 == 1


def _pack(values: Levels, widths: Levels) -> bytes:
    """Numbers of different widths, one after the other, as bits; the last byte is filled up with zeros."""
    some = np.flatnonzero(widths)
    values, widths = values[some], widths[some]
    ends = np.cumsum(widths)
    shifts = np.repeat(ends, widths) - np.arange(1, widths.sum() + 1)
    return np.packbits((np.repeat(values, widths) >> shifts & 1).astype(np.uint8)).tobytes()


class _Bits:
    """Reads what `_pack` wrote."""

    def __init__(self, data: bytes) -> None:
        self._last = data[-1:]
        # The 32 bits up to the end of each byte; shifted, the 24 or more that come before each bit.
        words = np.ndarray(len(data) + 1, ">u4", bytes(3) + data + bytes(1), strides=(1,)).astype(np.uint32)
        self._before = (words[:, np.newaxis] >> _SHIFTS).ravel().view(np.int32)
        self._bits = 8 * len(data)
        self._at = 0

    def read(self, widths: Levels) -> Levels:
        """The next numbers, of at most 24 bits each."""
        ends = np.add.accumulate(widths)
        start, self._at = self._at, self._at + ends.item(-1)
        if self._at > self._bits:
            raise MessageError("the message's labels are cut short")
        values: Levels = self._before[start:][ends] & _MASKS[widths]
        return values

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left but zeros that fill the last byte."""
        rest = self._bits - self._at
        return rest < 8 and not (rest and self._last[0] & ((1 << rest) - 1))
