"""Messages to bytes and back, in the paper's own accounting.

The `reference` codec's payload is what the paper counts: float32 soft-labels, int64 indices, int64 signals. All else
(the frame, the counts, the digest) is its frame.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Protocol

import numpy as np
import numpy.typing as npt

from scarlet.core.types import (
    DIGEST_BYTES,
    Broadcast,
    CatchUp,
    Index,
    Labels,
    Message,
    Report,
    Resync,
    Signal,
    Sync,
    Uplink,
    Values,
)
from scarlet.errors import MessageError, unknown
from scarlet.wire import frame

_BROADCAST, _UPLINK, _REPORT, _CATCH_UP, _RESYNC = 1, 2, 3, 4, 5
_NO_SYNC, _NO_SIGNALS, _SIGNALS = 0, 1, 2

# state, round of the sync, classes, samples, fresh labels, dropped samples, requested samples; then the two digests
_BROADCAST_HEAD = struct.Struct("<BIIIIII")
_UPLINK_HEAD = struct.Struct("<III")  # client, classes, samples
_REPORT_HEAD = struct.Struct("<I")  # client
_CATCH_UP_HEAD = struct.Struct("<IBII")  # client, reset, classes, samples
_RESYNC_HEAD = struct.Struct("<I")  # client
_HEAD_SIZES = {
    Broadcast: _BROADCAST_HEAD.size + 2 * DIGEST_BYTES,
    CatchUp: _CATCH_UP_HEAD.size,
    Uplink: _UPLINK_HEAD.size,
    Resync: _RESYNC_HEAD.size,
    Report: _REPORT_HEAD.size,
}


class Codec(Protocol):
    """Turns messages into bytes and back."""

    def encode(self, message: Message) -> bytes: ...

    def decode(self, data: bytes) -> Message:
        """The message in `data`, or a MessageError that says what is wrong with it."""
        ...

    def size(self, message: Message) -> int:
        """The number of bytes of the encoded message, frame included."""
        ...

    def payload(self, message: Message) -> int:
        """The part of `size` that carries the method's own content."""
        ...


class Reference:
    """The paper's accounting, byte for byte."""

    def encode(self, message: Message) -> bytes:
        match message:
            case Broadcast():
                kind, body = _BROADCAST, _encode_broadcast(message)
            case Uplink():
                labels = message.labels
                head = _UPLINK_HEAD.pack(message.client, labels.value.shape[1], len(labels.index))
                kind, body = _UPLINK, head + _i8(labels.index) + _f4(labels.value)
            case CatchUp():
                labels = message.labels
                head = _CATCH_UP_HEAD.pack(message.client, message.reset, labels.value.shape[1], len(labels.index))
                kind, body = _CATCH_UP, head + _i8(labels.index) + _f4(labels.value)
            case Resync():
                kind, body = _RESYNC, _RESYNC_HEAD.pack(message.client)
            case Report():
                head = _REPORT_HEAD.pack(message.client)
                kind, body = _REPORT, head + json.dumps(dict(message.metrics)).encode()
        return frame.wrap(kind, message.round, message.attempt, body)

    def decode(self, data: bytes) -> Message:
        outer = frame.unwrap(data)
        body = _Reader(outer.body)
        match outer.kind:
            case 1:
                message: Message = _decode_broadcast(outer.round, outer.attempt, body)
            case 2:
                client, classes, samples = body.head(_UPLINK_HEAD)
                labels = Labels(body.index(samples), body.values(samples, classes))
                message = Uplink(outer.round, outer.attempt, client, labels)
            case 3:
                (client,) = body.head(_REPORT_HEAD)
                message = Report(outer.round, outer.attempt, client, body.metrics())
            case 4:
                client, reset, classes, samples = body.head(_CATCH_UP_HEAD)
                if reset not in (0, 1):
                    raise MessageError(f"the catch-up's reset is {reset}, not 0 or 1")
                labels = Labels(body.index(samples), body.values(samples, classes))
                message = CatchUp(outer.round, outer.attempt, client, bool(reset), labels)
            case 5:
                (client,) = body.head(_RESYNC_HEAD)
                message = Resync(outer.round, outer.attempt, client)
            case kind:
                raise MessageError(f"the message is of kind {kind}, which nobody sends")
        body.end()
        return message

    def size(self, message: Message) -> int:
        return frame.SIZE + _HEAD_SIZES[type(message)] + self.payload(message)

    def payload(self, message: Message) -> int:
        match message:
            case Broadcast():
                return 8 * len(message.request) + (0 if message.sync is None else _sync_payload(message.sync))
            case Uplink() | CatchUp():
                return 8 * len(message.labels.index) + 4 * message.labels.value.size
            case Resync():
                return 0
            case Report():
                return len(json.dumps(dict(message.metrics)).encode())


CODECS = {"reference": Reference}


def codec(name: str) -> Codec:
    """The codec of that name."""
    if name not in CODECS:
        raise unknown("codec", name, CODECS)
    return CODECS[name]()


def _sync_payload(sync: Sync) -> int:
    signals = 0 if sync.signal is None else len(sync.signal)
    return 8 * (len(sync.index) + signals + len(sync.dropped)) + 4 * sync.fresh.size


def _encode_broadcast(message: Broadcast) -> bytes:
    sync = message.sync
    if sync is None:
        head = _BROADCAST_HEAD.pack(_NO_SYNC, 0, 0, 0, 0, 0, len(message.request))
        return head + message.digest + message.public + _i8(message.request)
    head = _BROADCAST_HEAD.pack(
        _NO_SIGNALS if sync.signal is None else _SIGNALS,
        sync.round,
        sync.fresh.shape[1],
        len(sync.index),
        len(sync.fresh),
        len(sync.dropped),
        len(message.request),
    )
    signal = b"" if sync.signal is None else _i8(sync.signal)
    parts = [
        head,
        message.digest,
        message.public,
        _i8(sync.index),
        signal,
        _f4(sync.fresh),
        _i8(sync.dropped),
        _i8(message.request),
    ]
    return b"".join(parts)


def _decode_broadcast(round: int, attempt: int, body: _Reader) -> Broadcast:
    state, sync_round, classes, samples, fresh, dropped, requested = body.head(_BROADCAST_HEAD)
    digest, public = body.bytes(DIGEST_BYTES), body.bytes(DIGEST_BYTES)
    if state == _NO_SYNC:
        if any((sync_round, classes, samples, fresh, dropped)):
            raise MessageError("the broadcast counts labels of a round that it says nothing of")
        return Broadcast(round, attempt, body.index(requested), None, digest, public)
    if state not in (_NO_SIGNALS, _SIGNALS):
        raise MessageError(f"the broadcast's state is {state}, not 0, 1 or 2")
    index = body.index(samples)
    signal = body.integers(samples) if state == _SIGNALS else None
    if signal is not None and not np.isin(signal, tuple(Signal)).all():
        raise MessageError("the broadcast has a cache signal that is none of the three")
    expected = samples if signal is None else np.count_nonzero(signal != Signal.CACHED)
    if fresh != expected:
        raise MessageError(f"the broadcast has {fresh} fresh labels where its signals call for {expected}")
    sync = Sync(sync_round, index, signal, body.values(fresh, classes), body.index(dropped))
    return Broadcast(round, attempt, body.index(requested), sync, digest, public)


class _Reader:
    """Reads a body front to back; nothing is allocated for what is not there."""

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._at = 0

    def head(self, layout: struct.Struct) -> tuple[int, ...]:
        return layout.unpack(self._take(layout.size))

    def bytes(self, count: int) -> bytes:
        return self._take(count).tobytes()

    def integers(self, count: int) -> npt.NDArray[np.int64]:
        return np.frombuffer(self._take(8 * count), "<i8").astype(np.int64, copy=False)

    def index(self, count: int) -> Index:
        index = self.integers(count)
        if count and (index[0] < 0 or np.any(index[1:] <= index[:-1])):
            raise MessageError("the message's sample indices are not in ascending order from 0")
        return index

    def values(self, count: int, classes: int) -> Values:
        flat = np.frombuffer(self._take(4 * count * classes), "<f4")
        return flat.astype(np.float32, copy=False).reshape(count, classes)

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


def _is_number(value: object) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _i8(values: npt.NDArray[np.int64]) -> bytes:
    return values.astype("<i8", copy=False).tobytes()


def _f4(values: Values) -> bytes:
    return values.astype("<f4", copy=False).tobytes()
