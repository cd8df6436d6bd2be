"""A damaged message of the reference codec is refused, or is another message; it is never a large allocation."""

from __future__ import annotations

import math
import struct
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scarlet.arrays import Index, Labels
from scarlet.errors import MessageError
from scarlet.protocol.messages import Message, Report
from scarlet.protocol.uplink.delta import NOTHING
from scarlet.protocol.uplink.labels import Answer
from scarlet.wire import frame
from tests.protocol.messages import (
    AGREEMENT,
    ANSWER,
    CATCH_UP,
    DELTA,
    DIGEST,
    FIRST,
    LESSON,
    METHODS,
    REPORT,
    RESET,
    SIGNALS,
    SMALL,
    decode_or_refuse,
    encoded,
    f32,
    i64,
    payload,
    reference,
)

each_small = pytest.mark.parametrize("message", SMALL.values(), ids=SMALL)
each_bits = pytest.mark.parametrize("bits", [32, 1, 4])


def refused(message: Message, data: bytes, match: str | None = None) -> None:
    with pytest.raises(MessageError, match=match):
        reference(type(message)).decode(data)


def body_of(message: Message, bits: int = 32) -> bytes:
    return encoded(message, bits)[frame.SIZE :]


def sized(message: Message, bits: int) -> int:
    """The bytes that a message of these contents has."""
    layout = reference(type(message)).layouts[type(message)]
    return frame.SIZE + layout.fixed + payload(message, bits, bits)


def framed(message: Message, body: bytes) -> bytes:
    """Any body under the frame of a message, with a checksum that is right."""
    kind = reference(type(message)).layouts[type(message)].kind
    return frame.wrap(kind, message.round, message.attempt, body)


@each_small
def test_every_truncation_bit_flip_and_byte_after_the_end_is_refused(message: Message) -> None:
    codec, data = reference(type(message)), encoded(message)
    flips = [bytearray(data) for _ in range(8 * len(data))]
    for bit, flipped in enumerate(flips):
        flipped[bit // 8] ^= 1 << bit % 8
    for bad in (
        *(data[:length] for length in range(len(data))),
        *(data + bytes([byte]) for byte in range(256)),
        *map(bytes, flips),
    ):
        with pytest.raises(MessageError):
            codec.decode(bad)


@each_small
def test_a_body_cut_short_or_extended_under_a_right_checksum_is_refused(message: Message) -> None:
    body = body_of(message)
    for length in range(len(body)):
        refused(message, framed(message, body[:length]))
    refused(message, framed(message, body + b"\1"))


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    for kind in (Answer, *METHODS):
        for bits in (32, 1, 4):
            codec = reference(kind, bits, bits)
            with pytest.raises(MessageError):
                codec.decode(data)
            for number in range(10):
                decode_or_refuse(codec, frame.wrap(number, 1, 0, data))


@each_bits
def test_a_damaged_body_is_a_message_or_a_message_error_and_never_a_large_allocation(bits: int) -> None:
    rng = np.random.default_rng(0)
    kept = refused = 0
    small = [message for name, message in SMALL.items() if name != "delta, whole"]
    tracemalloc.start()
    try:
        for _ in range(2_500):
            message = small[rng.integers(len(small))]
            codec = reference(type(message), bits, bits)
            kind = codec.layouts[type(message)].kind if rng.random() < 0.9 else int(rng.integers(256))
            data = frame.wrap(kind, 9, 1, damaged(rng, body_of(message, bits)))
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            decoded = decode_or_refuse(codec, data)
            # A label of one bit has as many classes as its message says, which are never more than there are.
            labels = len(data) // 8 if bits == 1 else 0
            assert tracemalloc.get_traced_memory()[1] - before < 100_000 + 4 * 2**16 * labels
            kept, refused = kept + (decoded is not None), refused + (decoded is None)
            if decoded is not None and not isinstance(decoded, Report):
                assert len(data) == sized(decoded, bits)
    finally:
        tracemalloc.stop()
    assert kept > 250  # as a changed float, client or digest
    assert refused > 700


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


@pytest.mark.parametrize("bits", [1, 2, 7, 23])
@pytest.mark.parametrize("row", [[math.nan] * 3, [0.0, 0.0, 0.0], [2.0, -1.0, 0.0], [math.inf, 0.0, 0.0]])
def test_a_row_that_is_no_distribution_is_refused_at_its_receiver_and_never_taken_for_one(
    bits: int, row: list[float]
) -> None:
    bad = Labels(i64(4, 7), f32([0.0, 1.0, 0.0], row))
    assert SIGNALS.sync is not None
    for message in (
        replace(ANSWER, labels=bad),
        replace(DELTA, labels=bad, same=i64(5)),
        replace(CATCH_UP, labels=bad),
        replace(LESSON, labels=bad),
        replace(SIGNALS, sync=replace(SIGNALS.sync, fresh=bad.value)),
    ):
        codec = reference(type(message), bits, bits)
        with pytest.raises(MessageError) as caught:
            codec.decode(codec.encode(message))
        assert caught.value.reason == "unnormalised"


@pytest.mark.parametrize("most", [2**16, 3])
def test_a_label_of_one_bit_that_announces_too_many_classes_is_refused_before_it_is_made(most: int) -> None:
    body = bytearray(body_of(ANSWER, 1))
    codec = reference(Answer, 1, 1, replace(AGREEMENT, classes=most))
    tracemalloc.start()
    try:
        for classes in (most + 1, 2**31, 2**32 - 1):
            body[7:11] = struct.pack("<I", classes)
            with pytest.raises(MessageError, match=f"{classes} classes; at most {most}"):
                codec.decode(framed(ANSWER, bytes(body)))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("best", [-1, 2, 2**62])
def test_a_label_of_one_bit_that_names_no_class_is_refused(best: int) -> None:
    body = body_of(ANSWER, 1)
    with pytest.raises(MessageError, match="a class that there is not"):
        reference(Answer, 1, 1).decode(framed(ANSWER, body[:-8] + struct.pack("<q", best)))


@each_bits
@pytest.mark.parametrize("teachers", [0, 1, 2**16 - 1])
@pytest.mark.parametrize("classes", [0, 1, 2**16, 2**32 - 1])
def test_no_labels_of_any_shape_are_decoded_and_measured_or_refused(bits: int, teachers: int, classes: int) -> None:
    for message, head in ((RESET, b"\1"), (ANSWER, b"\0"), (LESSON, b"\0\0")):
        codec = reference(type(message), bits, bits)
        data = framed(message, struct.pack("<I", 3) + head + struct.pack("<HII", teachers, classes, 0))
        decoded = decode_or_refuse(codec, data)
        assert decoded is None or len(data) == sized(decoded, bits)


@pytest.mark.parametrize("index", [i64(2, 1), i64(1, 1), i64(-1, 0)], ids=["descending", "repeated", "negative"])
def test_samples_that_do_not_ascend_from_0_are_refused_wherever_they_stand(index: Index) -> None:
    sync = SIGNALS.sync
    assert sync is not None
    two = replace(sync, signal=i64(1, 2), index=i64(0, 1))
    for message in (
        replace(ANSWER, labels=replace(ANSWER.labels, index=index)),
        replace(DELTA, same=index),
        replace(LESSON, labels=replace(LESSON.labels, index=index)),
        replace(CATCH_UP, labels=replace(CATCH_UP.labels, index=index)),
        replace(SIGNALS, request=index),
        replace(SIGNALS, sync=replace(two, index=index)),
        replace(SIGNALS, sync=replace(sync, dropped=index)),
    ):
        refused(message, encoded(message), "not in ascending order from 0")


@pytest.mark.parametrize("signal", [-1, 4, 2**40])
def test_a_signal_that_is_none_of_the_four_is_refused(signal: int) -> None:
    assert SIGNALS.sync is not None
    message = replace(SIGNALS, sync=replace(SIGNALS.sync, signal=i64(0, 1, signal)))
    refused(message, encoded(message), "a cache signal that there is not")


@pytest.mark.parametrize("at", [1, 5, 7, 11, 15, 19], ids=["round", "C", "N", "samples", "fresh", "dropped"])
def test_a_broadcast_that_counts_labels_of_a_round_that_it_says_nothing_of_is_refused(at: int) -> None:
    body = body_of(FIRST)
    bad = framed(FIRST, body[:at] + b"\1" + body[at + 1 :])
    refused(FIRST, bad, "counts labels of a round that it says nothing of")


@pytest.mark.parametrize("state", [3, 255])
def test_a_broadcast_of_a_state_that_there_is_not_is_refused(state: int) -> None:
    refused(SIGNALS, framed(SIGNALS, bytes([state]) + body_of(SIGNALS)[1:]), f"state is {state}, not 0, 1 or 2")


@pytest.mark.parametrize(("signal", "calls_for"), [((0, 0, 1), 1), ((1, 1, 2), 3), ((3, 0, 1), 1)])
def test_more_or_fewer_fresh_labels_than_the_signals_call_for_are_refused(
    signal: tuple[int, ...], calls_for: int
) -> None:
    assert SIGNALS.sync is not None
    message = replace(SIGNALS, sync=replace(SIGNALS.sync, signal=i64(*signal)))
    refused(message, encoded(message), f"2 fresh labels where its signals call for {calls_for}")


@pytest.mark.parametrize("reset", [2, 255])
def test_a_reset_that_is_neither_yes_nor_no_is_refused(reset: int) -> None:
    body = body_of(RESET)
    refused(RESET, framed(RESET, body[:4] + bytes([reset]) + body[5:]), f"reset is {reset}, not 0 or 1")


@pytest.mark.parametrize("flag", [2, 255])
def test_an_answer_that_is_neither_delta_coded_nor_not_is_refused(flag: int) -> None:
    body = body_of(DELTA)
    refused(DELTA, framed(DELTA, body[:4] + bytes([flag]) + body[5:]), "delta coded against nothing")
    body = body_of(ANSWER)
    refused(ANSWER, framed(ANSWER, body[:4] + bytes([flag]) + body[5:]), f"a flag of {flag}, at most 1")


def test_an_answer_that_is_delta_coded_against_nothing_is_refused() -> None:
    refused(DELTA, framed(DELTA, body_of(DELTA).replace(DIGEST, NOTHING)), "delta coded against nothing")


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
        pytest.param('{"\udcff": 1}', id="broken UTF-8"),
    ],
)
def test_a_report_that_is_not_a_table_of_finite_numbers_is_refused(text: str) -> None:
    body = struct.pack("<I", 3) + text.encode(errors="surrogateescape")
    refused(REPORT, framed(REPORT, body), r"^the report is not")


def test_a_report_keeps_every_bit_of_a_number() -> None:
    metrics = {"a": math.pi, "b": 5e-324, "c": -0.0, "ü": 1.7976931348623157e308}
    decoded = reference(Report).decode(encoded(Report(1, 0, 0, metrics)))
    assert isinstance(decoded, Report)
    assert {name: value.hex() for name, value in decoded.metrics.items()} == {
        name: value.hex() for name, value in metrics.items()
    }
