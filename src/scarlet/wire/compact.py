"""Messages that say only what the other side cannot work out.

Samples follow from the seed and the stamps (`core/schedule.py`); labels are quantised and entropy coded
(`wire/entropy.py`). What the paper does not count is small here, so nothing is left out: the payload is all but the
frame and the two fingerprints.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from scarlet.errors import MessageError
from scarlet.protocol.schedule import Known, Schedule
from scarlet.protocol.types import (
    DIGEST_BYTES,
    NOTHING,
    Broadcast,
    CatchUp,
    Exceptional,
    History,
    Index,
    Labels,
    Lesson,
    Message,
    Signal,
    Stamps,
    Sync,
    Uplink,
    Values,
)
from scarlet.wire import frame
from scarlet.wire.codec import KINDS
from scarlet.wire.entropy import decode_labels, decode_mask, encode_labels, encode_mask, read_varint, varint
from scarlet.wire.frame import Frame
from scarlet.wire.quantise import RAW_BITS, from_levels, levels
from scarlet.wire.reference import Reference

_SYNC, _UNCHANGED = 1, 2  # flags of a broadcast
_RESET, _STAMPS, _DELTA = 1, 1, 1
_LAST_ROUND = 2**31 - 1  # stamps are 32 bits wide
_CHECKSUM = struct.Struct("<I")  # of the stamps
_SLACK = 1024  # bytes that a message may have beyond its plain form


class Compact(Reference):
    """Draws, hits and requests are derived, labels are quantised and coded by adaptive counts."""

    derives = True

    @staticmethod
    def usual_bits(classes: int | None) -> int:
        """Two levels for each class at least, so that a label that knows nothing can say so."""
        return 8 if classes is None else max(4, math.ceil(math.log2(classes)) + 1)

    def encode(self, message: Message, known: Known | None = None) -> bytes:
        match message:
            case Broadcast():
                body = self._broadcast(message)
            case Uplink():
                assert known is not None
                body = self._uplink(message, known)
            case CatchUp():
                assert known is not None
                size = known.rules.federation.public_size
                body = bytes([message.reset]) + varint(message.client) + _chosen(message.labels.index, size)
                body += self._values(message.labels.value, self.downlink_bits)
            case Lesson():
                assert known is not None
                drawn = known.rules.index(message.round - 1, message.drawn)
                body = varint(message.client) + varint(message.drawn) + _among(message.labels.index, drawn)
                body += self._values(message.labels.value, self.downlink_bits)
            case History():
                body = _history(message)
            case _:
                return super().encode(message, known)
        return frame.wrap(KINDS[type(message)], message.round, message.attempt, body)

    def decode(self, data: bytes | Frame, known: Known | None = None) -> Message:
        outer = frame.unwrap(data)
        if outer.kind not in _READ:
            return super().decode(outer, known)
        assert known is not None
        body = _Body(outer.body, outer.round, outer.attempt, known, self)
        return _READ[outer.kind](body)

    def size(self, message: Message) -> int:
        return super().size(message) + _SLACK

    def payload(self, message: Message, data: bytes) -> int:
        if KINDS[type(message)] not in _READ:
            return super().payload(message, data)
        if _says_nothing(message):
            return 0
        return len(data) - frame.SIZE - (2 * DIGEST_BYTES if isinstance(message, Broadcast) else 0)

    def _broadcast(self, message: Broadcast) -> bytes:
        sync = message.sync
        head = message.digest + message.public
        if sync is None:
            return head + b"\0"
        asked = sync.index if sync.signal is None else sync.index[sync.signal != Signal.CACHED]
        request = np.sort(np.concatenate([asked, sync.dropped]))
        flags, unchanged = _SYNC, b""
        if sync.signal is not None and (same := sync.signal == Signal.UNCHANGED).any():
            flags |= _UNCHANGED
            unchanged = encode_mask(same[sync.signal != Signal.CACHED])
        head += bytes([flags]) + _CHECKSUM.pack(message.stamps) + varint(sync.attempt) + _places(sync.dropped, request)
        return head + unchanged + self._values(sync.fresh, self.downlink_bits)

    def _uplink(self, message: Uplink, known: Known) -> bytes:
        labels, delta = message.labels, message.base != NOTHING
        answered = np.sort(np.concatenate([labels.index, message.same])) if delta else labels.index
        head = bytes([delta]) + varint(message.client) + _among(answered, known.request)
        if delta:
            head += message.base + encode_mask(np.isin(answered, message.same, assume_unique=True))
        return head + self._values(labels.value, self.uplink_bits)

    def _values(self, value: Values, bits: int) -> bytes:
        if bits >= RAW_BITS:
            return value.astype("<f4", copy=False).tobytes()
        return encode_labels(levels(value, bits).reshape(-1, value.shape[-1]), bits)


def _says_nothing(message: Message) -> bool:
    """Whether a message only keeps the protocol going: nothing is asked, taught or answered."""
    match message:
        case Broadcast():
            return not len(message.request) and (message.sync is None or not len(message.sync.index))
        case Uplink():
            return not len(message.labels.index) and not len(message.same)
    return False


class _Body:
    """A message that is read from front to back, with what the reader knows."""

    def __init__(self, body: memoryview, round: int, attempt: int, known: Known, codec: Compact) -> None:
        self._body, self._at = body, 0
        self.round, self.attempt, self.known, self.codec = round, attempt, known, codec
        federation = known.rules.federation
        self.size, self.classes = federation.public_size, federation.classes
        self.label = known.rules.method.label_shape(federation.classes)

    def bytes(self, count: int) -> bytes:
        if count > len(self._body) - self._at:
            raise MessageError("the message is cut short")
        self._at += count
        return bytes(self._body[self._at - count : self._at])

    def flag(self, most: int) -> int:
        (value,) = self.bytes(1)
        if value > most:
            raise MessageError(f"the message has a flag of {value}, at most {most}")
        return value

    def number(self) -> int:
        value, self._at = read_varint(self._body, self._at)
        return value

    def mask(self, size: int) -> npt.NDArray[np.bool_]:
        found, self._at = decode_mask(self._body, self._at, size)
        return found

    def among(self, of: Index) -> Index:
        """Some of these samples; or, with nothing more said, all of them."""
        return of if self.flag(1) == 0 else of[self.mask(len(of))]

    def places(self, of: Index) -> Index:
        """A few of these samples."""
        count, at, found = self.number(), -1, []
        if count > len(of):
            raise MessageError("the message names more samples than there are")
        for _ in range(count):
            at += 1 + self.number()
            if at >= len(of):
                raise MessageError("the message names a sample that there is not")
            found.append(at)
        return of[np.array(found, np.int64)]

    def values(self, count: int, label: tuple[int, ...], bits: int) -> Values:
        """The labels that are the rest of the message."""
        rest, shape = self._body[self._at :], (count, *label)
        self._at = len(self._body)
        if bits >= RAW_BITS:
            if len(rest) != 4 * int(np.prod(shape)):
                raise MessageError(f"the message has {len(rest)} bytes of labels for {count} samples")
            return np.frombuffer(rest, "<f4").astype(np.float32, copy=False).reshape(shape)
        return _heard(bytes(rest), int(np.prod(shape[:-1])), label[-1], bits).reshape(shape)

    def end(self) -> None:
        if self._at != len(self._body):
            raise MessageError(f"the message has {len(self._body) - self._at} bytes after its end")


@lru_cache(maxsize=2)
def _heard(data: bytes, rows: int, classes: int, bits: int) -> Values:
    """Labels that were coded, not to be written to.

    The clients of one process hear the same broadcast one after another, with at most a word of their own between.
    """
    value = from_levels(decode_labels(data, rows, classes, bits), bits)
    value.flags.writeable = False
    return value


def _read_broadcast(body: _Body) -> Broadcast:
    digest, public = body.bytes(DIGEST_BYTES), body.bytes(DIGEST_BYTES)
    known, round = body.known, body.round
    if round > _LAST_ROUND:
        raise MessageError(f"the broadcast is of round {round}, after the last that there can be")
    flags = body.flag(_SYNC | _UNCHANGED)
    if not flags & _SYNC:
        if flags:
            raise MessageError("the broadcast counts labels of a round that it says nothing of")
        body.end()
        request = known.rules.request(Schedule.empty(body.size).stamps, round, body.attempt)
        return Broadcast(round, body.attempt, request, None, digest, public)
    (expected,) = _CHECKSUM.unpack(body.bytes(_CHECKSUM.size))
    attempt = body.number()
    nothing = Schedule.empty(body.size).stamps
    before = known.before(round - 1, expected) if known.rules.keep_stamps else nothing
    stamps = before.copy()
    dropped = body.places(known.rules.request(before, round - 1, attempt))
    sync = known.rules.play(stamps, round - 1, attempt, dropped)
    signal = sync.signal
    if flags & _UNCHANGED:
        if signal is None:
            raise MessageError("the broadcast has labels as they were where nobody keeps any")
        asked = np.flatnonzero(signal != Signal.CACHED)
        signal = signal.copy()
        signal[asked[body.mask(len(asked))]] = Signal.UNCHANGED
    sync = Sync(round - 1, sync.index, signal, sync.fresh, dropped, attempt)
    fresh = body.values(int(np.count_nonzero(~sync.held)), body.label, body.codec.downlink_bits)
    known.after = Schedule(stamps, before, round - 1)
    request = known.rules.request(stamps, round, body.attempt)
    return Broadcast(round, body.attempt, request, replace(sync, fresh=fresh), digest, public, expected)


def _read_uplink(body: _Body) -> Uplink:
    delta, client = body.flag(_DELTA), body.number()
    answered = body.among(body.known.request)
    same, base = answered[:0], NOTHING
    if delta:
        base = body.bytes(DIGEST_BYTES)
        if base == NOTHING:
            raise MessageError("the answer is delta coded against nothing")
        mask = body.mask(len(answered))
        same, answered = answered[mask], answered[~mask]
    value = body.values(len(answered), (body.classes,), body.codec.uplink_bits)
    return Uplink(body.round, body.attempt, client, Labels(answered, value), same, base)


def _read_catch_up(body: _Body) -> CatchUp:
    reset, client = body.flag(_RESET), body.number()
    index = np.flatnonzero(body.mask(body.size))
    labels = Labels(index, body.values(len(index), body.label, body.codec.downlink_bits))
    return CatchUp(body.round, body.attempt, client, bool(reset), labels)


def _read_lesson(body: _Body) -> Lesson:
    client, drawn = body.number(), body.number()
    index = body.among(body.known.rules.index(body.round - 1, drawn))
    labels = Labels(index, body.values(len(index), body.label, body.codec.downlink_bits))
    return Lesson(body.round, body.attempt, client, labels, drawn)


def _read_history(body: _Body) -> History:
    whole, client, after = body.flag(_STAMPS), body.number(), body.number()
    stamps: Stamps | None = None
    exceptions = []
    if whole:
        stamps = _inflated(body.bytes(body.number()), body.size)
    else:
        samples = np.arange(body.size)
        for _ in range(body.number()):
            exceptions.append(Exceptional(body.number(), body.number(), body.places(samples)))
    body.end()
    return History(body.round, body.attempt, client, after, tuple(exceptions), stamps)


_READ: dict[int, Callable[[_Body], Message]] = {
    KINDS[Broadcast]: _read_broadcast,
    KINDS[Uplink]: _read_uplink,
    KINDS[CatchUp]: _read_catch_up,
    KINDS[Lesson]: _read_lesson,
    KINDS[History]: _read_history,
}


def _history(message: History) -> bytes:
    head = bytes([message.stamps is not None]) + varint(message.client) + varint(message.after)
    if message.stamps is not None:
        content = zlib.compress(message.stamps.astype("<i4").tobytes(), 9)
        return head + varint(len(content)) + content
    parts = [head, varint(len(message.exceptions))]
    for each in message.exceptions:
        parts += [varint(each.round), varint(each.attempt), _gaps(each.dropped)]
    return b"".join(parts)


def _inflated(content: bytes, size: int) -> Stamps:
    """The stamps; no more is unpacked than there are samples."""
    inflate = zlib.decompressobj()
    try:
        data = inflate.decompress(content, 4 * size)
    except zlib.error:
        raise MessageError("the stamps of the message cannot be unpacked") from None
    if len(data) != 4 * size or inflate.unconsumed_tail or inflate.unused_data or not inflate.eof:
        raise MessageError(f"the message has not the stamps of {size} samples")
    stamps = np.frombuffer(data, "<i4").astype(np.int32)
    if (stamps < -1).any():
        raise MessageError("the message has a stamp before the first round")
    return stamps


def _among(some: Index, of: Index) -> bytes:
    """Which of these samples: all, or those of a mask."""
    if len(some) == len(of):
        return b"\0"
    return b"\1" + encode_mask(np.isin(of, some, assume_unique=True))


def _chosen(some: Index, size: int) -> bytes:
    mask = np.zeros(size, np.bool_)
    mask[some] = True
    return encode_mask(mask)


def _places(some: Index, of: Index) -> bytes:
    """A few of these samples."""
    return _gaps(np.searchsorted(of, some))


def _gaps(places: Index) -> bytes:
    gaps = np.diff(places, prepend=-1) - 1
    return varint(len(places)) + b"".join(varint(int(gap)) for gap in gaps)
