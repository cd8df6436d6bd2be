from __future__ import annotations

import math
import struct
import tracemalloc
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

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
from scarlet.errors import ConfigError, MessageError
from scarlet.wire import frame
from scarlet.wire.codec import Reference, codec

PROFILE = settings(deadline=None, max_examples=200)
CODEC = Reference()
KINDS = {Broadcast: 1, Uplink: 2, Report: 3, CatchUp: 4, Resync: 5}

rounds = st.integers(0, 2**32 - 1)
attempts = st.integers(0, 2**16 - 1)
clients = st.integers(0, 2**32 - 1)
digests = st.binary(min_size=DIGEST_BYTES, max_size=DIGEST_BYTES)
indices = st.sets(st.integers(0, 50) | st.integers(0, 2**63 - 1), max_size=8).map(
    lambda chosen: np.array(sorted(chosen), np.int64)
)


def values(rows: int, classes: int) -> st.SearchStrategy[Values]:
    return hnp.arrays(np.float32, (rows, classes), elements=st.floats(width=32))  # the codec carries any float: NaN too


@st.composite
def syncs(draw: st.DrawFn) -> Sync:
    index, classes = draw(indices), draw(st.integers(1, 5))
    signal = draw(st.none() | hnp.arrays(np.int64, len(index), elements=st.sampled_from([int(s) for s in Signal])))
    fresh = len(index) if signal is None else int((signal != Signal.CACHED).sum())
    return Sync(draw(rounds), index, signal, draw(values(fresh, classes)), draw(indices))


broadcasts = st.builds(Broadcast, rounds, attempts, indices, st.none() | syncs(), digests, digests)
labels = st.tuples(indices, st.integers(1, 5)).flatmap(
    lambda case: st.builds(Labels, st.just(case[0]), values(len(case[0]), case[1]))
)
uplinks = st.builds(Uplink, rounds, attempts, clients, labels)
metrics = st.dictionaries(st.text(max_size=10), st.floats(allow_nan=False, allow_infinity=False), max_size=5)
reports = st.builds(Report, rounds, attempts, clients, metrics)
catch_ups = st.builds(CatchUp, rounds, attempts, clients, st.booleans(), labels)
resyncs = st.builds(Resync, rounds, attempts, clients)
messages = broadcasts | catch_ups | uplinks | resyncs | reports


def i64(*numbers: int) -> Index:
    return np.array(numbers, np.int64)


def f32(*rows: list[float]) -> Values:
    return np.array(rows, np.float32).reshape(len(rows), -1)


DIGEST = bytes(range(DIGEST_BYTES))
PUBLIC = bytes(range(0xA0, 0xA0 + DIGEST_BYTES))
FIRST = Broadcast(1, 0, i64(0, 2), None, bytes(DIGEST_BYTES), PUBLIC)
NO_SIGNALS = Broadcast(2, 0, i64(3), Sync(1, i64(0, 2), None, f32([0.25, 0.75], [1, 0]), i64()), DIGEST, PUBLIC)
SIGNALS = Broadcast(
    9, 1, i64(4, 7), Sync(8, i64(1, 4, 6), i64(0, 1, 2), f32([0.25, 0.75], [0.5, 0.5]), i64(3, 5)), DIGEST, PUBLIC
)
UPLINK = Uplink(9, 1, 3, Labels(i64(4, 7), f32([0.25, 0.75], [1, 0])))
CATCH_UP = CatchUp(9, 1, 3, False, Labels(i64(1, 6), f32([0.25, 0.75], [1, 0])))
RESET = CatchUp(2, 0, 3, True, Labels(i64(), np.empty((0, 2), np.float32)))
RESYNC = Resync(9, 1, 3)
REPORT = Report(9, 1, 3, {"loss": 0.5})
SMALL: dict[str, Message] = {
    "first": FIRST,
    "no signals": NO_SIGNALS,
    "signals": SIGNALS,
    "catch-up": CATCH_UP,
    "reset": RESET,
    "uplink": UPLINK,
    "resync": RESYNC,
    "report": REPORT,
}
each_small = pytest.mark.parametrize("message", SMALL.values(), ids=SMALL)


def content(value: object) -> object:
    """A message as nested tuples, its arrays as shape, type and bytes, so that NaN and -0.0 count as they are."""
    if isinstance(value, np.ndarray):
        return value.shape, str(value.dtype), value.tobytes()
    if is_dataclass(value):
        return type(value), tuple(content(getattr(value, field.name)) for field in fields(value))
    return value


@PROFILE
@given(messages)
def test_a_decoded_message_is_the_one_that_was_encoded(message: Message) -> None:
    assert content(CODEC.decode(CODEC.encode(message))) == content(message)


@PROFILE
@given(messages)
def test_the_size_of_a_message_is_known_without_encoding_it(message: Message) -> None:
    assert CODEC.size(message) == len(CODEC.encode(message))


@PROFILE
@given(uplinks)
def test_an_uplink_pays_4N_plus_8_for_each_answered_sample(uplink: Uplink) -> None:
    answered, N = uplink.labels.value.shape
    assert CODEC.payload(uplink) == answered * (4 * N + 8)


@PROFILE
@given(catch_ups)
def test_a_catch_up_pays_4N_plus_8_for_each_entry(catch_up: CatchUp) -> None:
    caught_up, N = catch_up.labels.value.shape
    assert CODEC.payload(catch_up) == caught_up * (4 * N + 8)


@PROFILE
@given(resyncs)
def test_a_resync_is_all_frame(resync: Resync) -> None:
    assert CODEC.payload(resync) == 0


@PROFILE
@given(broadcasts)
def test_a_downlink_pays_for_fresh_labels_indices_signals_and_request(broadcast: Broadcast) -> None:
    expected = len(broadcast.request) * 8
    if broadcast.sync is not None:
        fresh, N = broadcast.sync.fresh.shape
        expected += fresh * 4 * N + len(broadcast.sync.index) * 8 + len(broadcast.sync.dropped) * 8
        if broadcast.sync.signal is not None:
            expected += len(broadcast.sync.index) * 8
    assert CODEC.payload(broadcast) == expected


def test_the_payload_of_one_round_is_the_papers() -> None:
    index, N = np.arange(1000), 10
    signal = np.where(index < 300, 1, 0)
    broadcast = Broadcast(
        9, 0, index[:250], Sync(8, index, signal, np.zeros((300, N), np.float32), i64()), DIGEST, PUBLIC
    )
    assert CODEC.payload(broadcast) == 300 * 40 + 1000 * 8 + 1000 * 8 + 250 * 8
    assert CODEC.payload(Uplink(9, 0, 0, Labels(index[:250], np.zeros((250, N), np.float32)))) == 250 * (40 + 8)


# In each: the frame; the head; then what the message carries, one array a line.
GOLDEN = {
    "first": (
        "5343524c 01 01 0000 01000000 39000000 9d238891 "
        "00 00000000 00000000 00000000 00000000 00000000 02000000 "
        "0000000000000000 a0a1a2a3a4a5a6a7 "
        "0000000000000000 0200000000000000"
    ),
    "no signals": (
        "5343524c 01 01 0000 02000000 51000000 74209d70 "
        "01 01000000 02000000 02000000 02000000 00000000 01000000 "
        "0001020304050607 a0a1a2a3a4a5a6a7 "
        "0000000000000000 0200000000000000 "
        "0000803e 0000403f 0000803f 00000000 "
        "0300000000000000"
    ),
    "signals": (
        "5343524c 01 01 0100 09000000 89000000 ee5b93ba "
        "02 08000000 02000000 03000000 02000000 02000000 02000000 "
        "0001020304050607 a0a1a2a3a4a5a6a7 "
        "0100000000000000 0400000000000000 0600000000000000 "
        "0000000000000000 0100000000000000 0200000000000000 "
        "0000803e 0000403f 0000003f 0000003f "
        "0300000000000000 0500000000000000 "
        "0400000000000000 0700000000000000"
    ),
    "uplink": (
        "5343524c 01 02 0100 09000000 2c000000 49d097ae "
        "03000000 02000000 02000000 "
        "0400000000000000 0700000000000000 "
        "0000803e 0000403f 0000803f 00000000"
    ),
    "catch-up": (
        "5343524c 01 04 0100 09000000 2d000000 c0ef0fde "
        "03000000 00 02000000 02000000 "
        "0100000000000000 0600000000000000 "
        "0000803e 0000403f 0000803f 00000000"
    ),
    "reset": "5343524c 01 04 0000 02000000 0d000000 b2644f79 03000000 01 02000000 00000000",
    "resync": "5343524c 01 05 0100 09000000 04000000 42a80ec9 03000000",
    "report": ("5343524c 01 03 0100 09000000 11000000 49fe63f3 03000000 7b226c6f7373223a20302e357d"),
}


@pytest.mark.parametrize("name", SMALL)
def test_the_bytes_of_a_message_are_frozen(name: str) -> None:
    assert CODEC.encode(SMALL[name]).hex() == GOLDEN[name].replace(" ", "")
    assert content(CODEC.decode(bytes.fromhex(GOLDEN[name]))) == content(SMALL[name])


@each_small
def test_every_truncation_of_a_message_is_refused(message: Message) -> None:
    data = CODEC.encode(message)
    for length in range(len(data)):
        with pytest.raises(MessageError):
            CODEC.decode(data[:length])


@each_small
def test_every_byte_after_the_end_of_a_message_is_refused(message: Message) -> None:
    data = CODEC.encode(message)
    for byte in range(256):
        with pytest.raises(MessageError):
            CODEC.decode(data + bytes([byte]))


@each_small
def test_every_single_bit_flip_is_refused(message: Message) -> None:
    data = CODEC.encode(message)
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(MessageError):
            CODEC.decode(bytes(flipped))


@each_small
def test_a_body_cut_short_or_extended_under_a_right_checksum_is_refused(message: Message) -> None:
    body = body_of(message)
    for length in range(len(body)):
        with pytest.raises(MessageError):
            CODEC.decode(framed(message, body[:length]))
    with pytest.raises(MessageError):
        CODEC.decode(framed(message, body + b"\1"))


@PROFILE
@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(MessageError):
        CODEC.decode(data)
    for kind in range(7):
        decode_or_refuse(frame.wrap(kind, 1, 0, data))


def test_a_damaged_body_is_a_message_or_a_message_error_and_never_a_large_allocation() -> None:
    rng = np.random.default_rng(0)
    kept = refused = 0
    tracemalloc.start()
    try:
        for _ in range(6_000):
            message = list(SMALL.values())[rng.integers(len(SMALL))]
            kind = KINDS[type(message)] if rng.random() < 0.9 else int(rng.integers(256))
            data = frame.wrap(kind, 9, 1, damaged(rng, body_of(message)))
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            decoded = decode_or_refuse(data)
            assert tracemalloc.get_traced_memory()[1] - before < 100_000
            kept, refused = kept + (decoded is not None), refused + (decoded is None)
            if decoded is not None and not isinstance(decoded, Report):
                assert CODEC.size(decoded) == len(data)
    finally:
        tracemalloc.stop()
    assert kept > 600  # as a changed float, client or digest
    assert refused > 1_500


def body_of(message: Message) -> bytes:
    return CODEC.encode(message)[frame.SIZE :]


def framed(message: Message, body: bytes) -> bytes:
    """Any body under the frame of a message, with a checksum that is right."""
    return frame.wrap(KINDS[type(message)], message.round, message.attempt, body)


def decode_or_refuse(data: bytes) -> Message | None:
    try:
        return CODEC.decode(data)
    except MessageError:
        return None


def damaged(rng: np.random.Generator, body: bytes) -> bytes:
    """The body with a changed byte, an extreme number in place of four bytes, a piece cut out or a piece put in."""
    at = int(rng.integers(len(body)))
    match int(rng.integers(4)):
        case 0:
            return body[:at] + bytes([int(rng.integers(256))]) + body[at + 1 :]
        case 1:
            extreme = int(rng.choice([0, 1, 2, 3, 2**16, 2**29, 2**31 - 1, 2**31, 2**32 - 1]))
            return body[:at] + struct.pack("<I", extreme) + body[at + 4 :]
        case 2:
            return body[:at] + body[at + int(rng.integers(1, 20)) :]
        case _:
            return body[:at] + rng.bytes(int(rng.integers(1, 20))) + body[at:]


@pytest.mark.parametrize("index", [i64(2, 1), i64(1, 1), i64(-1, 0)], ids=["descending", "repeated", "negative"])
def test_samples_that_do_not_ascend_from_0_are_refused_wherever_they_stand(index: Index) -> None:
    sync = SIGNALS.sync
    assert sync is not None
    two = replace(sync, signal=i64(1, 2), index=i64(0, 1))
    for message in (
        replace(UPLINK, labels=replace(UPLINK.labels, index=index)),
        replace(CATCH_UP, labels=replace(CATCH_UP.labels, index=index)),
        replace(SIGNALS, request=index),
        replace(SIGNALS, sync=replace(two, index=index)),
        replace(SIGNALS, sync=replace(sync, dropped=index)),
    ):
        with pytest.raises(MessageError, match="not in ascending order from 0"):
            CODEC.decode(CODEC.encode(message))


@pytest.mark.parametrize("signal", [-1, 3, 2**40])
def test_a_signal_that_is_none_of_the_three_is_refused(signal: int) -> None:
    assert SIGNALS.sync is not None
    message = replace(SIGNALS, sync=replace(SIGNALS.sync, signal=i64(0, 1, signal)))
    with pytest.raises(MessageError, match="none of the three"):
        CODEC.decode(CODEC.encode(message))


@pytest.mark.parametrize(("signal", "calls_for"), [((0, 0, 1), 1), ((1, 1, 2), 3)])
def test_more_or_fewer_fresh_labels_than_the_signals_call_for_are_refused(
    signal: tuple[int, ...], calls_for: int
) -> None:
    assert SIGNALS.sync is not None
    message = replace(SIGNALS, sync=replace(SIGNALS.sync, signal=i64(*signal)))
    with pytest.raises(MessageError, match=f"2 fresh labels where its signals call for {calls_for}"):
        CODEC.decode(CODEC.encode(message))


@pytest.mark.parametrize("reset", [2, 255])
def test_a_reset_that_is_neither_yes_nor_no_is_refused(reset: int) -> None:
    body = body_of(RESET)
    with pytest.raises(MessageError, match=f"reset is {reset}, not 0 or 1"):
        CODEC.decode(framed(RESET, body[:4] + bytes([reset]) + body[5:]))


@PROFILE
@given(st.lists(messages, max_size=4))
def test_messages_sent_one_after_the_other_are_told_apart(several: list[Message]) -> None:
    parts = [CODEC.encode(message) for message in several]
    assert frame.split(b"".join(parts)) == parts


@PROFILE
@given(st.lists(st.binary(max_size=50) | messages.map(CODEC.encode), max_size=4))
def test_to_tell_any_bytes_apart_loses_none_and_never_fails(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    parts = frame.split(data)
    assert b"".join(parts) == data
    assert all(parts)


def test_a_message_of_another_version_is_refused_by_number() -> None:
    data = CODEC.encode(UPLINK)
    with pytest.raises(MessageError, match="version 2; this side speaks version 1"):
        CODEC.decode(data[:4] + b"\2" + data[5:])


@pytest.mark.parametrize("kind", [0, 6, 255])
def test_a_kind_that_nobody_sends_is_refused(kind: int) -> None:
    with pytest.raises(MessageError, match=f"kind {kind}, which nobody sends"):
        CODEC.decode(frame.wrap(kind, 1, 0, body_of(UPLINK)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "1",
        '{"loss": "low"}',
        '{"loss": true}',
        '{"loss": null}',
        '{"loss": [1]}',
        '{"loss": NaN}',
        '{"loss": -Infinity}',
        '{"loss": 1e999}',
        pytest.param('{"loss": 1' + 5_000 * "0" + "}", id="5,000 digits"),
        pytest.param('{"loss": 1' + 400 * "0" + "}", id="400 digits"),
        pytest.param(100_000 * "[", id="nested"),
    ],
)
def test_a_report_that_is_not_a_table_of_finite_numbers_is_refused(text: str) -> None:
    with pytest.raises(MessageError, match=r"^the report is not"):
        CODEC.decode(framed(REPORT, struct.pack("<I", 3) + text.encode()))


def test_a_report_in_broken_utf8_is_refused() -> None:
    with pytest.raises(MessageError, match=r"^the report is not"):
        CODEC.decode(framed(REPORT, struct.pack("<I", 3) + b'{"\xff": 1}'))


def test_a_report_keeps_every_bit_of_a_number() -> None:
    metrics = {"a": math.pi, "b": 5e-324, "c": -0.0, "ü": 1.7976931348623157e308}
    decoded = CODEC.decode(CODEC.encode(Report(1, 0, 0, metrics)))
    assert isinstance(decoded, Report)
    assert {name: value.hex() for name, value in decoded.metrics.items()} == {
        name: value.hex() for name, value in metrics.items()
    }


def test_an_unknown_codec_is_a_config_error_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"unknown codec 'referense': did you mean 'reference'\?"):
        codec("referense")
