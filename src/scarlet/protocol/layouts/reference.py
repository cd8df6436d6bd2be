"""The messages of every method in the paper's own accounting.

The payload of the `reference` codec is what the paper counts: float32 soft-labels, int64 indices, int64 signals. All
else (the frame, the counts, the digests) is counted as frame.
"""

from __future__ import annotations

import json
import math
import struct

import numpy as np

from scarlet.arrays import DIGEST_BYTES, Labels
from scarlet.errors import MessageError
from scarlet.protocol.codec import Codec, Context, Layout, shape_from, shape_of
from scarlet.protocol.messages import Broadcast, CatchUp, Report, Resync, Signal, Sync
from scarlet.wire.body import Body, i8
from scarlet.wire.values import plain, read_plain

CLIENT = struct.Struct("<I")
_NO_SYNC, _NO_SIGNALS, _SIGNALS = 0, 1, 2
# A label's shape in a head is teachers (0: it is one distribution) and classes.
# state, round of the sync, shape, samples, fresh labels, dropped samples, requested samples; then the two digests
_BROADCAST_HEAD = struct.Struct("<BIHIIIII")
_CATCH_UP_HEAD = struct.Struct("<IBHII")  # client, reset, shape, samples


def write_labels(labels: Labels, bits: int) -> bytes:
    """The samples, and the label of each."""
    return i8(labels.index) + plain(labels.value, bits)


def read_labels(body: Body, codec: Codec, context: Context, shape: tuple[int, ...], bits: int) -> Labels:
    """The reverse of `write_labels`."""
    index = body.index_like(context.request, context.request_bytes, shape[0])
    return Labels(index, read_plain(body, shape, bits, codec.classes))


def _write_broadcast(message: Broadcast, codec: Codec, context: Context) -> bytes:
    sync = message.sync
    if sync is None:
        head = _BROADCAST_HEAD.pack(_NO_SYNC, 0, 0, 0, 0, 0, 0, len(message.request))
        return head + message.digest + message.agreement + i8(message.request)
    dropped = sync.dropped[:0] if sync.signal is None else sync.dropped  # without a cache, no entry to delete
    head = _BROADCAST_HEAD.pack(
        _NO_SIGNALS if sync.signal is None else _SIGNALS,
        sync.round,
        *shape_of(sync.fresh),
        len(sync.index),
        len(sync.fresh),
        len(dropped),
        len(message.request),
    )
    parts = [
        head,
        message.digest,
        message.agreement,
        i8(sync.index),
        b"" if sync.signal is None else i8(sync.signal),
        plain(sync.fresh, codec.downlink_bits),
        i8(dropped),
        i8(message.request),
    ]
    return b"".join(parts)


def _read_broadcast(body: Body, codec: Codec, context: Context) -> Broadcast:
    state, sync_round, teachers, classes, samples, fresh, dropped, requested = body.head(_BROADCAST_HEAD)
    digest, agreement = body.raw(DIGEST_BYTES), body.raw(DIGEST_BYTES)
    if state == _NO_SYNC:
        if any((sync_round, teachers, classes, samples, fresh, dropped)):
            raise MessageError("the broadcast counts labels of a round that it says nothing of")
        return Broadcast(body.round, body.attempt, body.index(requested), None, digest, agreement)
    if state not in (_NO_SIGNALS, _SIGNALS):
        raise MessageError(f"the broadcast's state is {state}, not 0, 1 or 2")
    index = body.index(samples)
    signal = body.integers(samples) if state == _SIGNALS else None
    if signal is not None and not np.isin(signal, tuple(Signal)).all():
        raise MessageError("the broadcast has a cache signal that there is not")
    value = read_plain(body, shape_from(fresh, teachers, classes), codec.downlink_bits, codec.classes)
    sync = Sync(sync_round, index, signal, value, body.index(dropped))
    expected = samples - np.count_nonzero(sync.held)
    if fresh != expected:
        raise MessageError(f"the broadcast has {fresh} fresh labels where its signals call for {expected}")
    return Broadcast(body.round, body.attempt, body.index(requested), sync, digest, agreement)


def _write_catch_up(message: CatchUp, codec: Codec, context: Context) -> bytes:
    labels = message.labels
    head = _CATCH_UP_HEAD.pack(message.client, message.reset, *shape_of(labels.value), len(labels.index))
    return head + write_labels(labels, codec.downlink_bits)


def _read_catch_up(body: Body, codec: Codec, context: Context) -> CatchUp:
    client, reset, teachers, classes, samples = body.head(_CATCH_UP_HEAD)
    if reset not in (0, 1):
        raise MessageError(f"the catch-up's reset is {reset}, not 0 or 1")
    labels = read_labels(body, codec, context, shape_from(samples, teachers, classes), codec.downlink_bits)
    return CatchUp(body.round, body.attempt, client, bool(reset), labels)


def _write_report(message: Report, codec: Codec, context: Context) -> bytes:
    return CLIENT.pack(message.client) + json.dumps(dict(message.metrics)).encode()


def _read_report(body: Body, codec: Codec, context: Context) -> Report:
    (client,) = body.head(CLIENT)
    try:
        # Whole numbers are read as floats: one of 400 digits is then infinite, and rejected.
        metrics = json.loads(bytes(body.rest()), parse_int=float)
    except (ValueError, RecursionError) as error:
        raise MessageError(f"the report is not JSON: {error}") from None
    if not isinstance(metrics, dict) or not all(_is_number(value) for value in metrics.values()):
        raise MessageError("the report is not a table of finite numbers")
    return Report(body.round, body.attempt, client, {name: float(value) for name, value in metrics.items()})


def _is_number(value: object) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _write_resync(message: Resync, codec: Codec, context: Context) -> bytes:
    return CLIENT.pack(message.client)


def _read_resync(body: Body, codec: Codec, context: Context) -> Resync:
    (client,) = body.head(CLIENT)
    return Resync(body.round, body.attempt, client)


BROADCAST = Layout(
    message=Broadcast,
    kind=1,
    column="downlink",
    fixed=_BROADCAST_HEAD.size + 2 * DIGEST_BYTES,
    write=_write_broadcast,
    read=_read_broadcast,
)
REPORT = Layout(message=Report, kind=3, column="report", fixed=CLIENT.size, write=_write_report, read=_read_report)
CATCH_UP = Layout(
    message=CatchUp, kind=4, column="catch_up", fixed=_CATCH_UP_HEAD.size, write=_write_catch_up, read=_read_catch_up
)
RESYNC = Layout(message=Resync, kind=5, column="uplink", fixed=CLIENT.size, write=_write_resync, read=_read_resync)
