"""Messages to bytes and back, in the paper's own accounting.

The `reference` codec's payload is what the paper counts: float32 soft-labels, int64 indices, int64 signals. All else
(the frame, the counts, the digest) is its frame.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from scarlet.errors import MessageError
from scarlet.protocol.schedule import Known
from scarlet.protocol.types import (
    DIGEST_BYTES,
    NOTHING,
    Accepted,
    Broadcast,
    CatchUp,
    History,
    Index,
    Labels,
    Lesson,
    Message,
    Parameters,
    Report,
    Resync,
    Signal,
    Sync,
    Uplink,
    Values,
)
from scarlet.wire import frame
from scarlet.wire.codec import KINDS
from scarlet.wire.frame import Frame
from scarlet.wire.quantise import RAW_BITS, check_bits, from_levels, levels, pack, quantise, unpack

_NO_SYNC, _NO_SIGNALS, _SIGNALS = 0, 1, 2
_MOST_CLASSES = 2**16  # of a label of one bit, whose size on the wire says nothing of its size in memory

# The shape of a label: teachers (0: a label is one distribution), classes.
# state, round of the sync, shape, samples, fresh labels, dropped samples, requested samples; then the two digests
_BROADCAST_HEAD = struct.Struct("<BIHIIIII")
_UPLINK_HEAD = struct.Struct("<IBHII")  # client, whether it is delta coded, shape, samples
_DELTA_HEAD = struct.Struct("<I")  # samples whose label is the accepted one; after the name of the accepted answer
_REPORT_HEAD = struct.Struct("<I")  # client
_CATCH_UP_HEAD = struct.Struct("<IBHII")  # client, reset, shape, samples
_LESSON_HEAD = struct.Struct("<IHHII")  # client, attempt that was drawn, shape, samples
_PARAMETERS_HEAD = struct.Struct("<III")  # client, samples, numbers
_CLIENT_HEAD = struct.Struct("<I")
_HEAD_SIZES = {
    Broadcast: _BROADCAST_HEAD.size + 2 * DIGEST_BYTES,
    CatchUp: _CATCH_UP_HEAD.size,
    Lesson: _LESSON_HEAD.size,
    Accepted: _CLIENT_HEAD.size,
    Uplink: _UPLINK_HEAD.size,
    Parameters: _PARAMETERS_HEAD.size,
    Resync: _CLIENT_HEAD.size,
    History: 0,
    Report: _REPORT_HEAD.size,
}


class Reference:
    """The paper's accounting, byte for byte: a float32 for each entry of a label, an int64 for a label of one bit.

    Labels of 2 to 23 bits are packed, each entry in as many bits.
    """

    derives = False

    @staticmethod
    def usual_bits(classes: int | None) -> int:
        """Of each entry of a label of so many classes, unless somebody says otherwise."""
        return 32

    def __init__(
        self, uplink_bits: int | None = None, downlink_bits: int | None = None, classes: int | None = None
    ) -> None:
        self.uplink_bits = self.usual_bits(classes) if uplink_bits is None else uplink_bits
        self.downlink_bits = self.usual_bits(classes) if downlink_bits is None else downlink_bits
        check_bits("uplink_bits", self.uplink_bits)
        check_bits("downlink_bits", self.downlink_bits)

    def heard_by_clients(self, value: Values) -> Values:
        return quantise(value, self.downlink_bits)

    def heard_by_server(self, value: Values) -> Values:
        return quantise(value, self.uplink_bits)

    def encode(self, message: Message, known: Known | None = None) -> bytes:
        match message:
            case Broadcast():
                body = self._encode_broadcast(message)
            case Uplink():
                delta = message.base != NOTHING
                head = _UPLINK_HEAD.pack(message.client, delta, *_shape(message.labels))
                body = head + _labels(message.labels, self.uplink_bits)
                if delta:
                    body += message.base + _DELTA_HEAD.pack(len(message.same)) + _i8(message.same)
            case CatchUp():
                head = _CATCH_UP_HEAD.pack(message.client, message.reset, *_shape(message.labels))
                body = head + _labels(message.labels, self.downlink_bits)
            case Lesson():
                head = _LESSON_HEAD.pack(message.client, message.drawn, *_shape(message.labels))
                body = head + _labels(message.labels, self.downlink_bits)
            case Accepted():
                body = _CLIENT_HEAD.pack(message.client) + message.name
            case Parameters():
                head = _PARAMETERS_HEAD.pack(message.client, message.samples, len(message.value))
                body = head + _f4(message.value)
            case Resync():
                body = _CLIENT_HEAD.pack(message.client)
            case History():
                raise TypeError("the reference codec leaves nothing to be worked out, so it sends no history")
            case Report():
                body = _REPORT_HEAD.pack(message.client) + json.dumps(dict(message.metrics)).encode()
        return frame.wrap(KINDS[type(message)], message.round, message.attempt, body)

    def decode(self, data: bytes | Frame, known: Known | None = None) -> Message:
        outer = frame.unwrap(data)
        read = _READERS.get(outer.kind)
        if read is None:
            raise MessageError(f"the message is of kind {outer.kind}, which nobody sends")
        body = _Reader(outer.body, self.uplink_bits, self.downlink_bits, known)
        message = read(outer.round, outer.attempt, body)
        body.end()
        return message

    def size(self, message: Message) -> int:
        return frame.SIZE + _HEAD_SIZES[type(message)] + self._payload(message)

    def payload(self, message: Message, data: bytes) -> int:
        # A report need not be written as this side would write it, so its payload is what its frame leaves.
        return len(data) - frame.SIZE - _HEAD_SIZES[type(message)]

    def _payload(self, message: Message) -> int:
        match message:
            case Broadcast():
                return 8 * len(message.request) + (0 if message.sync is None else self._sync_payload(message.sync))
            case Uplink():
                delta = len(message.base) + _DELTA_HEAD.size + 8 * len(message.same) if message.base != NOTHING else 0
                return _labels_size(message.labels, self.uplink_bits) + delta
            case CatchUp() | Lesson():
                return _labels_size(message.labels, self.downlink_bits)
            case Accepted():
                return len(message.name)
            case Parameters():
                return 4 * len(message.value)
            case Resync() | History():
                return 0
            case Report():
                return len(json.dumps(dict(message.metrics)).encode())

    def _sync_payload(self, sync: Sync) -> int:
        signals = 0 if sync.signal is None else len(sync.signal) + len(sync.dropped)
        return 8 * (len(sync.index) + signals) + _values_size(sync.fresh, self.downlink_bits)

    def _encode_broadcast(self, message: Broadcast) -> bytes:
        sync = message.sync
        if sync is None:
            head = _BROADCAST_HEAD.pack(_NO_SYNC, 0, 0, 0, 0, 0, 0, len(message.request))
            return head + message.digest + message.public + _i8(message.request)
        teachers, classes = _label_shape(sync.fresh)
        head = _BROADCAST_HEAD.pack(
            _NO_SIGNALS if sync.signal is None else _SIGNALS,
            sync.round,
            teachers,
            classes,
            len(sync.index),
            len(sync.fresh),
            0 if sync.signal is None else len(sync.dropped),
            len(message.request),
        )
        signal = b"" if sync.signal is None else _i8(sync.signal)
        dropped = sync.dropped[:0] if sync.signal is None else sync.dropped  # without a cache, no entry to delete
        parts = [
            head,
            message.digest,
            message.public,
            _i8(sync.index),
            signal,
            _values(sync.fresh, self.downlink_bits),
            _i8(dropped),
            _i8(message.request),
        ]
        return b"".join(parts)


def _label_shape(value: Values) -> tuple[int, int]:
    """Teachers and classes of a label; no teachers if it is one distribution."""
    return (0 if value.ndim == 2 else value.shape[1]), value.shape[-1]


def _shape(labels: Labels) -> tuple[int, int, int]:
    return *_label_shape(labels.value), len(labels.index)


def _labels(labels: Labels, bits: int) -> bytes:
    return _i8(labels.index) + _values(labels.value, bits)


def _labels_size(labels: Labels, bits: int) -> int:
    return 8 * len(labels.index) + _values_size(labels.value, bits)


def _values(value: Values, bits: int) -> bytes:
    if bits >= RAW_BITS:
        return _f4(value)
    if bits == 1:
        level = levels(value, 1)
        # A row that is no distribution has no best class, and its receiver must not take it for one that has.
        return _i8(np.where(level.any(axis=-1), level.argmax(axis=-1), -1))
    return pack(levels(value, bits), bits)


def _values_size(value: Values, bits: int) -> int:
    if bits >= RAW_BITS:
        return 4 * value.size
    return 8 * math.prod(value.shape[:-1]) if bits == 1 else -(-bits * value.size // 8)


def _decode_uplink(round: int, attempt: int, body: _Reader) -> Uplink:
    client, delta, *shape = body.head(_UPLINK_HEAD)
    labels = body.labels(shape, body.uplink_bits)
    if delta == 0:
        return Uplink(round, attempt, client, labels)
    base = body.bytes(DIGEST_BYTES)
    if delta != 1 or base == NOTHING:
        raise MessageError("the answer is delta coded against nothing")
    (count,) = body.head(_DELTA_HEAD)
    return Uplink(round, attempt, client, labels, body.index(count), base)


def _decode_report(round: int, attempt: int, body: _Reader) -> Report:
    (client,) = body.head(_REPORT_HEAD)
    return Report(round, attempt, client, body.metrics())


def _decode_catch_up(round: int, attempt: int, body: _Reader) -> CatchUp:
    client, reset, *shape = body.head(_CATCH_UP_HEAD)
    if reset not in (0, 1):
        raise MessageError(f"the catch-up's reset is {reset}, not 0 or 1")
    return CatchUp(round, attempt, client, bool(reset), body.labels(shape, body.downlink_bits))


def _decode_lesson(round: int, attempt: int, body: _Reader) -> Lesson:
    client, drawn, *shape = body.head(_LESSON_HEAD)
    return Lesson(round, attempt, client, body.labels(shape, body.downlink_bits), drawn)


def _decode_accepted(round: int, attempt: int, body: _Reader) -> Accepted:
    (client,) = body.head(_CLIENT_HEAD)
    return Accepted(round, attempt, client, body.bytes(DIGEST_BYTES))


def _decode_parameters(round: int, attempt: int, body: _Reader) -> Parameters:
    client, samples, count = body.head(_PARAMETERS_HEAD)
    return Parameters(round, attempt, client, samples, body.values(count, 0, 1, 32).ravel())


def _decode_resync(round: int, attempt: int, body: _Reader) -> Resync:
    (client,) = body.head(_CLIENT_HEAD)
    return Resync(round, attempt, client)


def _decode_broadcast(round: int, attempt: int, body: _Reader) -> Broadcast:
    state, sync_round, teachers, classes, samples, fresh, dropped, requested = body.head(_BROADCAST_HEAD)
    digest, public = body.bytes(DIGEST_BYTES), body.bytes(DIGEST_BYTES)
    if state == _NO_SYNC:
        if any((sync_round, teachers, classes, samples, fresh, dropped)):
            raise MessageError("the broadcast counts labels of a round that it says nothing of")
        return Broadcast(round, attempt, body.index(requested), None, digest, public)
    if state not in (_NO_SIGNALS, _SIGNALS):
        raise MessageError(f"the broadcast's state is {state}, not 0, 1 or 2")
    index = body.index(samples)
    signal = body.integers(samples) if state == _SIGNALS else None
    if signal is not None and not np.isin(signal, tuple(Signal)).all():
        raise MessageError("the broadcast has a cache signal that there is not")
    value = body.values(fresh, teachers, classes, body.downlink_bits)
    sync = Sync(sync_round, index, signal, value, body.index(dropped))
    expected = samples - np.count_nonzero(sync.held)
    if fresh != expected:
        raise MessageError(f"the broadcast has {fresh} fresh labels where its signals call for {expected}")
    return Broadcast(round, attempt, body.index(requested), sync, digest, public)


class _Reader:
    """Reads a body front to back; nothing is allocated for what is not there."""

    def __init__(self, body: memoryview, uplink_bits: int, downlink_bits: int, known: Known | None) -> None:
        self._body = body
        self._most_classes = _MOST_CLASSES if known is None else known.rules.federation.classes
        self._known = known
        self._at = 0
        self.uplink_bits = uplink_bits
        self.downlink_bits = downlink_bits

    def head(self, layout: struct.Struct) -> tuple[int, ...]:
        return layout.unpack(self._take(layout.size))

    def bytes(self, count: int) -> bytes:
        return self._take(count).tobytes()

    def integers(self, count: int) -> npt.NDArray[np.int64]:
        # A copy, because arithmetic on numbers that are not aligned in memory is slow.
        return np.frombuffer(self.bytes(8 * count), "<i8").astype(np.int64, copy=False)

    def index(self, count: int) -> Index:
        index = self.integers(count)
        if count and (index[0] < 0 or np.any(index[1:] <= index[:-1])):
            raise MessageError("the message's sample indices are not in ascending order from 0")
        return index

    def labels(self, shape: Sequence[int], bits: int) -> Labels:
        """Labels of a shape: teachers, classes, samples."""
        teachers, classes, samples = shape
        return Labels(self._samples(samples), self.values(samples, teachers, classes, bits))

    def _samples(self, count: int) -> Index:
        """An index; the request itself, if it is that, as answers usually have it."""
        known = self._known
        if known is not None and bytes(self._body[self._at : self._at + 8 * count]) == known.request_bytes:
            self._at += 8 * count
            return known.request
        return self.index(count)

    def values(self, count: int, teachers: int, classes: int, bits: int) -> Values:
        shape = (count, teachers, classes) if teachers else (count, classes)
        if bits >= RAW_BITS:
            flat = np.frombuffer(self.bytes(4 * math.prod(shape)), "<f4")
            return flat.astype(np.float32, copy=False).reshape(shape)
        if bits == 1:
            best = self.integers(math.prod(shape[:-1]))
            if classes > self._most_classes:
                raise MessageError(
                    f"the message has labels of {classes} classes; at most {self._most_classes}", "wrong shape"
                )
            if np.any((best < 0) | (best >= classes)):
                raise MessageError("the message has a label of a class that there is not", "unnormalised")
            value = np.zeros((len(best), classes), np.float32)
            value[np.arange(len(best)), best] = 1
            return value.reshape(shape)
        return from_levels(unpack(self._take(-(-bits * math.prod(shape) // 8)), shape, bits), bits)

    def metrics(self) -> dict[str, float]:
        try:
            # Whole numbers are read as floats: one of 400 digits is then infinite, and turned down.
            metrics = json.loads(self.bytes(len(self._body) - self._at), parse_int=float)
        except (ValueError, RecursionError) as error:
            raise MessageError(f"the report is not JSON: {error}") from None
        if not isinstance(metrics, dict) or not all(_is_number(value) for value in metrics.values()):
            raise MessageError("the report is not a table of finite numbers")
        return {name: float(value) for name, value in metrics.items()}

    def end(self) -> None:
        if self._at != len(self._body):
            raise MessageError(f"the message has {len(self._body) - self._at} bytes after its end")

    def _take(self, count: int) -> memoryview:
        if count > len(self._body) - self._at:
            left = len(self._body) - self._at
            raise MessageError(f"the message is cut short: {count} bytes are announced and {left} are left")
        self._at += count
        return self._body[self._at - count : self._at]


_READERS: dict[int, Callable[[int, int, _Reader], Message]] = {
    KINDS[Broadcast]: _decode_broadcast,
    KINDS[Uplink]: _decode_uplink,
    KINDS[Report]: _decode_report,
    KINDS[CatchUp]: _decode_catch_up,
    KINDS[Resync]: _decode_resync,
    KINDS[Parameters]: _decode_parameters,
    KINDS[Lesson]: _decode_lesson,
    KINDS[Accepted]: _decode_accepted,
}


def _is_number(value: object) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _i8(values: npt.NDArray[np.int64]) -> bytes:
    return values.astype("<i8", copy=False).tobytes()


def _f4(values: Values) -> bytes:
    return values.astype("<f4", copy=False).tobytes()
