from __future__ import annotations

import math
import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scarlet.protocol.federation import Federation
from scarlet.protocol.schedule import Known, Rules
from scarlet.protocol.types import (
    DIGEST_BYTES,
    NOTHING,
    Accepted,
    Broadcast,
    CatchUp,
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
from scarlet.wire.codec import Codec
from scarlet.wire.codecs import codec
from scarlet.wire.reference import Reference

from scarlet.errors import ConfigError, MessageError
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.wire import frame

PROFILE = settings(deadline=None, max_examples=200)
CODEC = Reference()
KINDS = {Broadcast: 1, Uplink: 2, Report: 3, CatchUp: 4, Resync: 5, Parameters: 6, Lesson: 7, Accepted: 8}

rounds = st.integers(0, 2**32 - 1)
attempts = st.integers(0, 2**16 - 1)
clients = st.integers(0, 2**32 - 1)
digests = st.binary(min_size=DIGEST_BYTES, max_size=DIGEST_BYTES)
names = digests.filter(lambda name: name != NOTHING)
indices = st.sets(st.integers(0, 50) | st.integers(0, 2**63 - 1), max_size=8).map(
    lambda chosen: np.array(sorted(chosen), np.int64)
)
shapes = st.tuples(st.integers(1, 5)) | st.tuples(st.integers(1, 3), st.integers(1, 5))  # of a label: N, or C and N
bits = st.sampled_from([1, 2, 3, 8, 23, 24, 31, 32]) | st.integers(2, 23)
codecs = st.builds(Reference, bits, bits)
Filled = Callable[[tuple[int, ...]], st.SearchStrategy[Values]]


def any_floats(shape: tuple[int, ...]) -> st.SearchStrategy[Values]:
    return hnp.arrays(np.float32, shape, elements=st.floats(width=32))  # float32 carries any: NaN too


def distributions(shape: tuple[int, ...]) -> st.SearchStrategy[Values]:
    """Rows of any sharpness, from a tie of all classes to certainty."""
    weights = hnp.arrays(np.float64, shape, elements=st.sampled_from([0.0, 1.0]) | st.floats(0.001, 1))
    return weights.map(normalised)


def normalised(weights: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Values:
    weights[..., -1] += weights.sum(axis=-1) == 0
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True), np.float32)


@st.composite
def syncs(draw: st.DrawFn, filled: Filled) -> Sync:
    index = draw(indices)
    signal = draw(st.none() | hnp.arrays(np.int64, len(index), elements=st.sampled_from([int(s) for s in Signal])))
    fresh = len(index)
    if signal is not None:
        fresh -= sum(each in (Signal.CACHED, Signal.UNCHANGED) for each in signal.tolist())
    dropped = draw(indices) if signal is not None else index[:0]  # without a cache they are not named
    return Sync(draw(rounds), index, signal, draw(filled((fresh, *draw(shapes)))), dropped)


@st.composite
def labels(draw: st.DrawFn, filled: Filled) -> Labels:
    index = draw(indices)
    return Labels(index, draw(filled((len(index), *draw(shapes)))))


metrics = st.dictionaries(st.text(max_size=10), st.floats(allow_nan=False, allow_infinity=False), max_size=5)
reports = st.builds(Report, rounds, attempts, clients, metrics)
resyncs = st.builds(Resync, rounds, attempts, clients)
accepted = st.builds(Accepted, rounds, attempts, clients, digests)
floats = st.integers(0, 6).flatmap(lambda count: any_floats((count,)))
parameters = st.builds(Parameters, rounds, attempts, clients, st.integers(0, 2**32 - 1), floats)


def broadcasts(filled: Filled) -> st.SearchStrategy[Broadcast]:
    return st.builds(Broadcast, rounds, attempts, indices, st.none() | syncs(filled), digests, digests)


def catch_ups(filled: Filled) -> st.SearchStrategy[CatchUp]:
    return st.builds(CatchUp, rounds, attempts, clients, st.booleans(), labels(filled))


def lessons(filled: Filled) -> st.SearchStrategy[Lesson]:
    return st.builds(Lesson, rounds, attempts, clients, labels(filled))


def uplinks(filled: Filled) -> st.SearchStrategy[Uplink]:
    whole = st.builds(Uplink, rounds, attempts, clients, labels(filled))
    return whole | st.builds(Uplink, rounds, attempts, clients, labels(filled), indices, names)


def messages(filled: Filled) -> st.SearchStrategy[Message]:
    with_labels = broadcasts(filled) | catch_ups(filled) | lessons(filled) | uplinks(filled)
    return with_labels | accepted | parameters | resyncs | reports


def paid(codec: Codec, message: Message) -> int:
    """What the method itself pays for a message."""
    return codec.payload(message, codec.encode(message))


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
UNCHANGED = Broadcast(
    9,
    1,
    i64(4),
    Sync(8, i64(1, 4, 6), i64(3, 1, 3), np.array([[[0.25, 0.75], [1, 0]]], np.float32), i64()),
    DIGEST,
    PUBLIC,
)
UPLINK = Uplink(9, 1, 3, Labels(i64(4, 7), f32([0.25, 0.75], [1, 0])))
DELTA = Uplink(9, 1, 3, Labels(i64(7), f32([1, 0])), i64(4, 5), DIGEST)
CATCH_UP = CatchUp(9, 1, 3, False, Labels(i64(1, 6), f32([0.25, 0.75], [1, 0])))
RESET = CatchUp(2, 0, 3, True, Labels(i64(), np.empty((0, 2), np.float32)))
LESSON = Lesson(9, 1, 3, Labels(i64(4, 7), f32([0.25, 0.75], [1, 0])))
ACCEPTED = Accepted(9, 1, 3, DIGEST)
PARAMETERS = Parameters(9, 1, 3, 500, np.array([0.25, -1, 2], np.float32))
RESYNC = Resync(9, 1, 3)
REPORT = Report(9, 1, 3, {"loss": 0.5})
SMALL: dict[str, Message] = {
    "first": FIRST,
    "no signals": NO_SIGNALS,
    "signals": SIGNALS,
    "unchanged": UNCHANGED,
    "catch-up": CATCH_UP,
    "reset": RESET,
    "lesson": LESSON,
    "accepted": ACCEPTED,
    "uplink": UPLINK,
    "delta": DELTA,
    "parameters": PARAMETERS,
    "resync": RESYNC,
    "report": REPORT,
}
each_small = pytest.mark.parametrize("message", SMALL.values(), ids=SMALL)


ONE_BIT = Reference(1, 1)
EVERY_FORM = (CODEC, ONE_BIT, Reference(4, 4))


def content(value: object) -> object:
    """A message as nested tuples, its arrays as shape, type and bytes, so that NaN and -0.0 count as they are."""
    if isinstance(value, np.ndarray):
        return value.shape, str(value.dtype), value.tobytes()
    if is_dataclass(value):
        return type(value), tuple(content(getattr(value, field.name)) for field in fields(value))
    return value


def heard(message: Message, codec: Reference) -> Message:
    """The message with its labels as the other side is said to hear them."""
    match message:
        case Uplink():
            value = codec.heard_by_server(message.labels.value)
            return replace(message, labels=replace(message.labels, value=value))
        case CatchUp() | Lesson():
            value = codec.heard_by_clients(message.labels.value)
            return replace(message, labels=replace(message.labels, value=value))
        case Broadcast() if message.sync is not None:
            return replace(message, sync=replace(message.sync, fresh=codec.heard_by_clients(message.sync.fresh)))
    return message


@PROFILE
@given(messages(any_floats))
def test_a_decoded_message_is_the_one_that_was_encoded(message: Message) -> None:
    assert content(CODEC.decode(CODEC.encode(message))) == content(message)


@PROFILE
@given(messages(distributions), codecs)
def test_a_message_of_few_bits_is_decoded_as_it_is_said_to_be_heard(message: Message, codec: Reference) -> None:
    assert content(codec.decode(codec.encode(message))) == content(heard(message, codec))


@PROFILE
@given(messages(distributions), codecs)
def test_what_was_heard_once_is_heard_without_change(message: Message, codec: Reference) -> None:
    once = heard(message, codec)
    assert content(codec.decode(codec.encode(once))) == content(once)


@PROFILE
@given(messages(distributions), codecs)
def test_the_size_of_a_message_is_known_without_encoding_it(message: Message, codec: Reference) -> None:
    assert codec.size(message) == len(codec.encode(message))


@pytest.mark.parametrize("bits", [1, 2, 7, 23])
@pytest.mark.parametrize("row", [[math.nan] * 3, [0.0, 0.0, 0.0], [2.0, -1.0, 0.0], [math.inf, 0.0, 0.0]])
def test_a_row_that_is_no_distribution_is_refused_at_its_receiver_and_never_taken_for_one(
    bits: int, row: list[float]
) -> None:
    codec = Reference(bits, bits)
    bad = Labels(i64(4, 7), f32([0.0, 1.0, 0.0], row))
    assert SIGNALS.sync is not None
    for message in (
        replace(UPLINK, labels=bad),
        replace(CATCH_UP, labels=bad),
        replace(LESSON, labels=bad),
        replace(SIGNALS, sync=replace(SIGNALS.sync, fresh=bad.value)),
    ):
        with pytest.raises(MessageError) as refused:
            codec.decode(codec.encode(message))
        assert refused.value.reason == "unnormalised"


def bytes_of_labels(value: Values, bits: int) -> int:
    """From 24 bits on four bytes an entry; at one bit an int64 a label; else so many bits an entry, in whole bytes."""
    if bits >= 24:
        return 4 * value.size
    if bits == 1:
        return 8 * int(np.prod(value.shape[:-1]))
    return math.ceil(bits * value.size / 8)


@PROFILE
@given(uplinks(distributions), bits)
def test_an_uplink_pays_for_indices_and_labels_and_under_delta_for_a_name_a_count_and_the_samples_not_sent(
    uplink: Uplink, bits: int
) -> None:
    expected = 8 * len(uplink.labels.index) + bytes_of_labels(uplink.labels.value, bits)
    if uplink.base != NOTHING:
        expected += 8 + 4 + 8 * len(uplink.same)
    assert paid(Reference(bits, 32), uplink) == expected


@PROFILE
@given(catch_ups(distributions) | lessons(distributions), bits)
def test_what_one_client_is_sent_pays_for_indices_and_labels(message: CatchUp | Lesson, bits: int) -> None:
    expected = 8 * len(message.labels.index) + bytes_of_labels(message.labels.value, bits)
    assert paid(Reference(32, bits), message) == expected


def test_an_answered_sample_costs_16_bytes_at_one_bit_and_8_plus_4N_as_float32() -> None:
    labels = Labels(np.arange(250), normalised(np.ones((250, 10))))
    assert paid(Reference(1, 32), Uplink(9, 0, 0, labels)) == 250 * 16
    assert paid(Reference(32, 1), Uplink(9, 0, 0, labels)) == 250 * (8 + 40)
    assert paid(Reference(4, 1), Uplink(9, 0, 0, labels)) == 250 * (8 + 5)


def test_C_teachers_cost_4CN_a_sample() -> None:
    value = normalised(np.ones((250, 3, 10)))
    sync = Sync(8, np.arange(250), None, value, i64())
    assert paid(CODEC, Broadcast(9, 0, i64(), sync, DIGEST, PUBLIC)) == 250 * (8 + 3 * 40)


@PROFILE
@given(parameters)
def test_a_model_pays_4_bytes_a_number_whatever_the_bits_of_labels(message: Parameters) -> None:
    assert paid(CODEC, message) == paid(Reference(1, 1), message) == 4 * len(message.value)


@PROFILE
@given(accepted)
def test_the_name_of_an_accepted_answer_pays_8_bytes(message: Accepted) -> None:
    assert paid(CODEC, message) == 8


@PROFILE
@given(resyncs)
def test_a_resync_is_all_frame(resync: Resync) -> None:
    assert paid(CODEC, resync) == 0


@PROFILE
@given(broadcasts(distributions), bits)
def test_a_downlink_pays_for_fresh_labels_indices_signals_and_request(broadcast: Broadcast, bits: int) -> None:
    expected = len(broadcast.request) * 8
    if broadcast.sync is not None:
        expected += bytes_of_labels(broadcast.sync.fresh, bits)
        expected += len(broadcast.sync.index) * 8 + len(broadcast.sync.dropped) * 8
        if broadcast.sync.signal is not None:
            expected += len(broadcast.sync.index) * 8
    assert paid(Reference(32, bits), broadcast) == expected


def test_the_payload_of_one_round_is_the_papers() -> None:
    index, N = np.arange(1000), 10
    signal = np.where(index < 300, 1, 0)
    broadcast = Broadcast(
        9, 0, index[:250], Sync(8, index, signal, np.zeros((300, N), np.float32), i64()), DIGEST, PUBLIC
    )
    assert paid(CODEC, broadcast) == 300 * 40 + 1000 * 8 + 1000 * 8 + 250 * 8
    assert paid(CODEC, Uplink(9, 0, 0, Labels(index[:250], np.zeros((250, N), np.float32)))) == 250 * (40 + 8)


# In each: the frame; the head; then what the message carries, one array a line.
GOLDEN = {
    "first": (
        "5343524c 03 01 0000 01000000 3b000000 b22d7dbc "
        "00 00000000 0000 00000000 00000000 00000000 00000000 02000000 "
        "0000000000000000 a0a1a2a3a4a5a6a7 "
        "0000000000000000 0200000000000000"
    ),
    "no signals": (
        "5343524c 03 01 0000 02000000 53000000 1a80d162 "
        "01 01000000 0000 02000000 02000000 02000000 00000000 01000000 "
        "0001020304050607 a0a1a2a3a4a5a6a7 "
        "0000000000000000 0200000000000000 "
        "0000803e 0000403f 0000803f 00000000 "
        "0300000000000000"
    ),
    "signals": (
        "5343524c 03 01 0100 09000000 8b000000 6531c933 "
        "02 08000000 0000 02000000 03000000 02000000 02000000 02000000 "
        "0001020304050607 a0a1a2a3a4a5a6a7 "
        "0100000000000000 0400000000000000 0600000000000000 "
        "0000000000000000 0100000000000000 0200000000000000 "
        "0000803e 0000403f 0000003f 0000003f "
        "0300000000000000 0500000000000000 "
        "0400000000000000 0700000000000000"
    ),
    "unchanged": (
        "5343524c 03 01 0100 09000000 73000000 b565aeff "
        "02 08000000 0200 02000000 03000000 01000000 00000000 01000000 "
        "0001020304050607 a0a1a2a3a4a5a6a7 "
        "0100000000000000 0400000000000000 0600000000000000 "
        "0300000000000000 0100000000000000 0300000000000000 "
        "0000803e 0000403f 0000803f 00000000 "
        "0400000000000000"
    ),
    "uplink": (
        "5343524c 03 02 0100 09000000 2f000000 d5c6f2e3 "
        "03000000 00 0000 02000000 02000000 "
        "0400000000000000 0700000000000000 "
        "0000803e 0000403f 0000803f 00000000"
    ),
    "delta": (
        "5343524c 03 02 0100 09000000 3b000000 11a78e99 "
        "03000000 01 0000 02000000 01000000 "
        "0700000000000000 "
        "0000803f 00000000 "
        "0001020304050607 02000000 "
        "0400000000000000 0500000000000000"
    ),
    "catch-up": (
        "5343524c 03 04 0100 09000000 2f000000 599b6487 "
        "03000000 00 0000 02000000 02000000 "
        "0100000000000000 0600000000000000 "
        "0000803e 0000403f 0000803f 00000000"
    ),
    "reset": "5343524c 03 04 0000 02000000 0f000000 f8e58932 03000000 01 0000 02000000 00000000",
    "lesson": (
        "5343524c 03 07 0100 09000000 30000000 96bd4de7 "
        "03000000 0000 0000 02000000 02000000 "
        "0400000000000000 0700000000000000 "
        "0000803e 0000403f 0000803f 00000000"
    ),
    "accepted": "5343524c 03 08 0100 09000000 0c000000 fd80e778 03000000 0001020304050607",
    "parameters": (
        "5343524c 03 06 0100 09000000 18000000 8b861b5e 03000000 f4010000 03000000 0000803e 000080bf 00000040"
    ),
    "resync": "5343524c 03 05 0100 09000000 04000000 218dae4e 03000000",
    "report": "5343524c 03 03 0100 09000000 11000000 014c6c35 03000000 7b226c6f7373223a20302e357d",
}
# The labels alone: at one bit the best class, else levels of 0 to 2^b - 1 packed one after the other.
FEW_BITS = {
    ("unchanged", 1): "0100000000000000 0000000000000000",
    ("catch-up", 1): "0100000000000000 0000000000000000",
    ("delta", 1): "0000000000000000",
    ("unchanged", 4): "4b f0",
    ("signals", 4): "4b 78",
    ("catch-up", 4): "4b f0",
    ("delta", 4): "f0",
}


@pytest.mark.parametrize(("name", "bits"), FEW_BITS)
def test_the_bytes_of_labels_of_few_bits_are_frozen(name: str, bits: int) -> None:
    """They stand where the float32 labels stand; of all else only the frame's length and checksum differ."""
    codec, message = Reference(bits, bits), SMALL[name]
    wide = next(
        line
        for line in ("0000803e 0000403f 0000803f 00000000", "0000803e 0000403f 0000003f 0000003f", "0000803f 00000000")
        if line in GOLDEN[name]
    )
    head, _, tail = GOLDEN[name].partition(wide)
    expected = bytes.fromhex(head)[frame.SIZE :] + bytes.fromhex(FEW_BITS[name, bits]) + bytes.fromhex(tail)
    assert body_of(message, codec).hex() == expected.hex()
    assert content(codec.decode(framed(message, expected))) == content(heard(message, codec))


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
    for form in EVERY_FORM:
        for kind in range(10):
            decode_or_refuse(form, frame.wrap(kind, 1, 0, data))


@pytest.mark.parametrize("codec", EVERY_FORM, ids=["float32", "1 bit", "4 bits"])
def test_a_damaged_body_is_a_message_or_a_message_error_and_never_a_large_allocation(codec: Reference) -> None:
    rng = np.random.default_rng(0)
    kept = refused = 0
    tracemalloc.start()
    try:
        for _ in range(2_500):
            message = list(SMALL.values())[rng.integers(len(SMALL))]
            kind = KINDS[type(message)] if rng.random() < 0.9 else int(rng.integers(256))
            data = frame.wrap(kind, 9, 1, damaged(rng, body_of(message, codec)))
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            decoded = decode_or_refuse(codec, data)
            # A label of one bit has as many classes as its message says, which are never more than 65,536.
            labels = len(data) // 8 if codec is ONE_BIT else 0
            assert tracemalloc.get_traced_memory()[1] - before < 100_000 + 4 * 2**16 * labels
            kept, refused = kept + (decoded is not None), refused + (decoded is None)
            if decoded is not None and not isinstance(decoded, Report):
                assert codec.size(decoded) == len(data)
    finally:
        tracemalloc.stop()
    assert kept > 250  # as a changed float, client or digest
    assert refused > 700


@pytest.mark.parametrize("most", [2**16, 3])
def test_a_label_of_one_bit_that_announces_too_many_classes_is_refused_before_it_is_made(most: int) -> None:
    body = bytearray(body_of(UPLINK, ONE_BIT))
    federation = Federation(clients=2, public_size=24, public_per_round=8, classes=most, seed=0)
    known = None if most == 2**16 else Known(Rules(scarlet(ScarletConfig()), federation))
    tracemalloc.start()
    try:
        for classes in (most + 1, 2**31, 2**32 - 1):
            body[7:11] = struct.pack("<I", classes)
            with pytest.raises(MessageError, match=f"{classes} classes; at most {most}"):
                ONE_BIT.decode(framed(UPLINK, bytes(body)), known)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("best", [-1, 2, 2**62])
def test_a_label_of_one_bit_that_names_no_class_is_refused(best: int) -> None:
    body = body_of(UPLINK, ONE_BIT)
    with pytest.raises(MessageError, match="a class that there is not"):
        ONE_BIT.decode(framed(UPLINK, body[:-8] + struct.pack("<q", best)))


@pytest.mark.parametrize("codec", EVERY_FORM, ids=["float32", "1 bit", "4 bits"])
@pytest.mark.parametrize("teachers", [0, 1, 2**16 - 1])
@pytest.mark.parametrize("classes", [0, 1, 2**16, 2**32 - 1])
def test_no_labels_of_any_shape_are_decoded_and_measured_or_refused(
    codec: Reference, teachers: int, classes: int
) -> None:
    for message, head in ((RESET, b"\1"), (UPLINK, b"\0"), (LESSON, b"")):
        data = framed(message, struct.pack("<I", 3) + head + struct.pack("<HII", teachers, classes, 0))
        decoded = decode_or_refuse(codec, data)
        assert decoded is None or codec.size(decoded) == len(data)


def body_of(message: Message, codec: Reference = CODEC) -> bytes:
    return codec.encode(message)[frame.SIZE :]


def framed(message: Message, body: bytes) -> bytes:
    """Any body under the frame of a message, with a checksum that is right."""
    return frame.wrap(KINDS[type(message)], message.round, message.attempt, body)


def decode_or_refuse(codec: Reference, data: bytes) -> Message | None:
    try:
        return codec.decode(data)
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
        replace(DELTA, same=index),
        replace(LESSON, labels=replace(LESSON.labels, index=index)),
        replace(CATCH_UP, labels=replace(CATCH_UP.labels, index=index)),
        replace(SIGNALS, request=index),
        replace(SIGNALS, sync=replace(two, index=index)),
        replace(SIGNALS, sync=replace(sync, dropped=index)),
    ):
        with pytest.raises(MessageError, match="not in ascending order from 0"):
            CODEC.decode(CODEC.encode(message))


@pytest.mark.parametrize("signal", [-1, 4, 2**40])
def test_a_signal_that_is_none_of_the_four_is_refused(signal: int) -> None:
    assert SIGNALS.sync is not None
    message = replace(SIGNALS, sync=replace(SIGNALS.sync, signal=i64(0, 1, signal)))
    with pytest.raises(MessageError, match="a cache signal that there is not"):
        CODEC.decode(CODEC.encode(message))


@pytest.mark.parametrize("at", [1, 5, 7, 11, 15, 19], ids=["round", "C", "N", "samples", "fresh", "dropped"])
def test_a_broadcast_that_counts_labels_of_a_round_that_it_says_nothing_of_is_refused(at: int) -> None:
    body = body_of(FIRST)
    with pytest.raises(MessageError, match="counts labels of a round that it says nothing of"):
        CODEC.decode(framed(FIRST, body[:at] + b"\1" + body[at + 1 :]))


@pytest.mark.parametrize(("signal", "calls_for"), [((0, 0, 1), 1), ((1, 1, 2), 3), ((3, 0, 1), 1)])
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


@pytest.mark.parametrize("delta", [2, 255])
def test_an_answer_that_is_neither_delta_coded_nor_not_is_refused(delta: int) -> None:
    body = body_of(DELTA)
    with pytest.raises(MessageError, match="delta coded against nothing"):
        CODEC.decode(framed(DELTA, body[:4] + bytes([delta]) + body[5:]))


def test_an_answer_that_is_delta_coded_against_nothing_is_refused() -> None:
    body = body_of(DELTA)
    with pytest.raises(MessageError, match="delta coded against nothing"):
        CODEC.decode(framed(DELTA, body.replace(DIGEST, NOTHING)))


@PROFILE
@given(st.lists(messages(any_floats), max_size=4))
def test_messages_sent_one_after_the_other_are_told_apart(several: list[Message]) -> None:
    parts = [CODEC.encode(message) for message in several]
    assert frame.split(b"".join(parts)) == parts


@PROFILE
@given(st.lists(st.binary(max_size=50) | messages(any_floats).map(CODEC.encode), max_size=4))
def test_to_tell_any_bytes_apart_loses_none_and_never_fails(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    parts = frame.split(data)
    assert b"".join(parts) == data
    assert all(parts)


def test_a_message_of_another_version_is_refused_by_number() -> None:
    data = CODEC.encode(UPLINK)
    with pytest.raises(MessageError, match="version 1; this side speaks version 3"):
        CODEC.decode(data[:4] + b"\1" + data[5:])


@pytest.mark.parametrize("kind", [0, 9, 255])
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


@pytest.mark.parametrize("bits", [0, -1, 33])
@pytest.mark.parametrize("name", ["uplink_bits", "downlink_bits"])
def test_bits_that_there_are_not_are_a_config_error_that_names_them(name: str, bits: int) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} must be from 1 to 32, got {bits}; 32 sends float32 as it is$"):
        Reference(**{name: bits})
