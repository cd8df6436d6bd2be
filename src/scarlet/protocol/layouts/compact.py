"""The messages of every method, saying only what the other side cannot derive.

Samples follow from the seed and the stamps (`protocol/stamps.py`); soft-labels are quantised and entropy coded
(`wire/entropy.py`). What the paper does not count is small here, so nothing is left out: the payload is all but the
frame and the two digests.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import numpy as np

from scarlet.arrays import DIGEST_BYTES, Labels
from scarlet.errors import MessageError
from scarlet.protocol.codec import Codec, Context, Layout
from scarlet.protocol.messages import LAST_ROUND, Broadcast, CatchUp, Exceptional, History, Signal, Stamps, Sync
from scarlet.protocol.stamps import StampReplay, no_stamps
from scarlet.wire.body import Body, places
from scarlet.wire.entropy import encode_mask, varint
from scarlet.wire.values import coded, read_coded

_SYNC, _UNCHANGED = 1, 2  # flags of a broadcast
_CHECKSUM = struct.Struct("<I")  # of the stamps


def _write_broadcast(message: Broadcast, codec: Codec, context: Context) -> bytes:
    sync, head = message.sync, message.digest + message.agreement
    if sync is None:
        return head + b"\0"
    asked = sync.index if sync.signal is None else sync.index[sync.signal != Signal.CACHED]
    request = np.sort(np.concatenate([asked, sync.dropped]))
    flags, unchanged = _SYNC, b""
    if sync.signal is not None and (same := sync.signal == Signal.UNCHANGED).any():
        flags |= _UNCHANGED
        unchanged = encode_mask(same[sync.signal != Signal.CACHED])
    head += bytes([flags]) + _CHECKSUM.pack(message.stamps) + varint(sync.attempt) + places(sync.dropped, request)
    return head + unchanged + coded(sync.fresh, codec.downlink_bits)


def _read_broadcast(body: Body, codec: Codec, context: Context) -> Broadcast:
    digest, agreement = body.raw(DIGEST_BYTES), body.raw(DIGEST_BYTES)
    draws, round = codec.draws, body.round
    if round > LAST_ROUND:
        raise MessageError(f"the broadcast is of round {round}, after the last that there can be")
    flags, nothing = body.flag(_SYNC | _UNCHANGED), no_stamps(codec.public_size)
    if not flags & _SYNC:
        if flags:
            raise MessageError("the broadcast counts labels of a round that it says nothing of")
        body.end()
        return Broadcast(round, body.attempt, draws.request(nothing, round, body.attempt), None, digest, agreement)
    (expected,) = _CHECKSUM.unpack(body.take(_CHECKSUM.size))
    attempt = body.number()
    before = context.before(draws, round - 1, expected) if draws.policy.caches else nothing
    stamps = before.copy()
    dropped = body.places(draws.request(before, round - 1, attempt))
    sync = draws.play(stamps, round - 1, attempt, dropped)
    signal = sync.signal
    if flags & _UNCHANGED:
        if signal is None:
            raise MessageError("the broadcast has labels as they were where nobody keeps any")
        asked = np.flatnonzero(signal != Signal.CACHED)
        signal = signal.copy()
        signal[asked[body.mask(len(asked))]] = Signal.UNCHANGED
    sync = Sync(round - 1, sync.index, signal, sync.fresh, dropped, attempt)
    fresh = read_coded(body, (int(np.count_nonzero(~sync.held)), *codec.label), codec.downlink_bits)
    context.after = StampReplay(stamps, before, round - 1)
    request = draws.request(stamps, round, body.attempt)
    return Broadcast(round, body.attempt, request, replace(sync, fresh=fresh), digest, agreement, expected)


def _asks_and_teaches_nothing(message: Broadcast) -> bool:
    return not len(message.request) and (message.sync is None or not len(message.sync.index))


def _write_catch_up(message: CatchUp, codec: Codec, context: Context) -> bytes:
    mask = np.zeros(codec.public_size, np.bool_)
    mask[message.labels.index] = True
    head = bytes([message.reset]) + varint(message.client) + encode_mask(mask)
    return head + coded(message.labels.value, codec.downlink_bits)


def _read_catch_up(body: Body, codec: Codec, context: Context) -> CatchUp:
    reset, client = body.flag(1), body.number()
    index = np.flatnonzero(body.mask(codec.public_size))
    value = read_coded(body, (len(index), *codec.label), codec.downlink_bits)
    return CatchUp(body.round, body.attempt, client, bool(reset), Labels(index, value))


def _write_history(message: History, codec: Codec, context: Context) -> bytes:
    head = bytes([message.stamps is not None]) + varint(message.client) + varint(message.after)
    if message.stamps is not None:
        content = zlib.compress(message.stamps.astype("<i4").tobytes(), 9)
        return head + varint(len(content)) + content
    parts, samples = [head, varint(len(message.exceptions))], np.arange(codec.public_size)
    for each in message.exceptions:
        parts += [varint(each.round), varint(each.attempt), places(each.dropped, samples)]
    return b"".join(parts)


def _read_history(body: Body, codec: Codec, context: Context) -> History:
    whole, client, after = body.flag(1), body.number(), body.number()
    if whole:
        stamps = _inflated(body.raw(body.number()), codec.public_size)
        return History(body.round, body.attempt, client, after, (), stamps)
    samples = np.arange(codec.public_size)
    exceptions = [Exceptional(body.number(), body.number(), body.places(samples)) for _ in range(body.number())]
    return History(body.round, body.attempt, client, after, tuple(exceptions), None)


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


BROADCAST = Layout(
    message=Broadcast,
    kind=1,
    column="downlink",
    fixed=2 * DIGEST_BYTES,
    write=_write_broadcast,
    read=_read_broadcast,
    is_empty=_asks_and_teaches_nothing,
)
CATCH_UP = Layout(message=CatchUp, kind=4, column="catch_up", fixed=0, write=_write_catch_up, read=_read_catch_up)
HISTORY = Layout(message=History, kind=9, column="catch_up", fixed=0, write=_write_history, read=_read_history)
