"""The paper's accounting, byte for byte."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from scarlet.arrays import Labels
from scarlet.protocol.messages import Broadcast, Message, Sync
from scarlet.protocol.uplink.labels import Answer
from scarlet.wire import frame
from tests.protocol.messages import (
    DIGEST,
    PUBLIC,
    SMALL,
    any_floats,
    as_decoded,
    bits,
    content,
    counted,
    distributions,
    encoded,
    i64,
    messages,
    normalised,
    payload,
    reference,
)

PROFILE = settings(deadline=None, max_examples=200)


def paid(message: Message, uplink_bits: int = 32, downlink_bits: int = 32) -> int:
    """What the method itself pays for a message."""
    codec = reference(type(message), uplink_bits, downlink_bits)
    return codec.payload(message, codec.encode(message))


@PROFILE
@given(messages(any_floats))
def test_a_decoded_message_is_the_one_that_was_encoded(message: Message) -> None:
    codec = reference(type(message))
    assert content(codec.decode(codec.encode(message))) == content(message)


@PROFILE
@given(messages(distributions), bits, bits)
def test_a_message_of_few_bits_is_decoded_as_it_is_said_to_be_and_from_then_on_without_change(
    message: Message, up: int, down: int
) -> None:
    codec = reference(type(message), up, down)
    once = as_decoded(message, codec)
    assert content(codec.decode(codec.encode(message))) == content(once)
    assert content(codec.decode(codec.encode(once))) == content(once)


@PROFILE
@given(counted(distributions), bits, bits)
def test_every_message_pays_for_what_the_paper_counts(message: Message, up: int, down: int) -> None:
    assert paid(message, up, down) == payload(message, up, down)


def test_an_answered_sample_costs_16_bytes_at_one_bit_and_8_plus_4N_as_float32() -> None:
    answer = Answer(9, 0, 0, Labels(np.arange(250), normalised(np.ones((250, 10)))))
    assert paid(answer, uplink_bits=1) == 250 * 16
    assert paid(answer, downlink_bits=1) == 250 * (8 + 40)
    assert paid(answer, uplink_bits=4, downlink_bits=1) == 250 * (8 + 5)


def test_C_teachers_cost_4CN_a_sample() -> None:
    sync = Sync(8, np.arange(250), None, normalised(np.ones((250, 3, 10))), i64())
    assert paid(Broadcast(9, 0, i64(), sync, DIGEST, PUBLIC)) == 250 * (8 + 3 * 40)


def test_the_payload_of_one_round_is_the_papers() -> None:
    index, N = np.arange(1000), 10
    signal = np.where(index < 300, 1, 0)
    broadcast = Broadcast(
        9, 0, index[:250], Sync(8, index, signal, np.zeros((300, N), np.float32), i64()), DIGEST, PUBLIC
    )
    assert paid(broadcast) == 300 * 40 + 1000 * 8 + 1000 * 8 + 250 * 8
    assert paid(Answer(9, 0, 0, Labels(index[:250], np.zeros((250, N), np.float32)))) == 250 * (40 + 8)


# In each: the frame; the head; then what the message carries, one array a line.
GOLDEN = {
    "first": (
        "5343524c 04 01 0000 01000000 3b000000 e93f43d7 "
        "00 00000000 0000 00000000 00000000 00000000 00000000 02000000 "
        "0000000000000000 a0a1a2a3a4a5a6a7 "
        "0000000000000000 0200000000000000"
    ),
    "no signals": (
        "5343524c 04 01 0000 02000000 53000000 1f828e8a "
        "01 01000000 0000 02000000 02000000 02000000 00000000 01000000 "
        "0001020304050607 a0a1a2a3a4a5a6a7 "
        "0000000000000000 0200000000000000 "
        "0000803e 0000403f 0000803f 00000000 "
        "0300000000000000"
    ),
    "signals": (
        "5343524c 04 01 0100 09000000 8b000000 cadd5348 "
        "02 08000000 0000 02000000 03000000 02000000 02000000 02000000 "
        "0001020304050607 a0a1a2a3a4a5a6a7 "
        "0100000000000000 0400000000000000 0600000000000000 "
        "0000000000000000 0100000000000000 0200000000000000 "
        "0000803e 0000403f 0000003f 0000003f "
        "0300000000000000 0500000000000000 "
        "0400000000000000 0700000000000000"
    ),
    "unchanged": (
        "5343524c 04 01 0100 09000000 73000000 754ca764 "
        "02 08000000 0200 02000000 03000000 01000000 00000000 01000000 "
        "0001020304050607 a0a1a2a3a4a5a6a7 "
        "0100000000000000 0400000000000000 0600000000000000 "
        "0300000000000000 0100000000000000 0300000000000000 "
        "0000803e 0000403f 0000803f 00000000 "
        "0400000000000000"
    ),
    "answer": (
        "5343524c 04 02 0100 09000000 2f000000 43d96726 "
        "03000000 00 0000 02000000 02000000 "
        "0400000000000000 0700000000000000 "
        "0000803e 0000403f 0000803f 00000000"
    ),
    "delta": (
        "5343524c 04 02 0100 09000000 3b000000 4ab5b0f2 "
        "03000000 01 0000 02000000 01000000 "
        "0700000000000000 "
        "0000803f 00000000 "
        "0001020304050607 02000000 "
        "0400000000000000 0500000000000000"
    ),
    "catch-up": (
        "5343524c 04 04 0100 09000000 2f000000 cf84f142 "
        "03000000 00 0000 02000000 02000000 "
        "0100000000000000 0600000000000000 "
        "0000803e 0000403f 0000803f 00000000"
    ),
    "reset": "5343524c 04 04 0000 02000000 0f000000 7ea35ce0 03000000 01 0000 02000000 00000000",
    "lesson": (
        "5343524c 04 07 0100 09000000 30000000 f81ee4fe "
        "03000000 0000 0000 02000000 02000000 "
        "0400000000000000 0700000000000000 "
        "0000803e 0000403f 0000803f 00000000"
    ),
    "accepted": "5343524c 04 08 0100 09000000 0c000000 8ab7ff49 03000000 0001020304050607",
    "parameters": (
        "5343524c 04 06 0100 09000000 18000000 e2a5ab02 03000000 f4010000 03000000 0000803e 000080bf 00000040"
    ),
    "resync": "5343524c 04 05 0100 09000000 04000000 547557b3 03000000",
    "report": "5343524c 04 03 0100 09000000 11000000 bc450ac7 03000000 7b226c6f7373223a20302e357d",
}
GOLDEN["delta, whole"] = GOLDEN["answer"]  # without a base it is the same answer
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


@pytest.mark.parametrize("name", SMALL)
def test_the_bytes_of_a_message_are_frozen(name: str) -> None:
    message = SMALL[name]
    assert encoded(message).hex() == GOLDEN[name].replace(" ", "")
    assert content(reference(type(message)).decode(bytes.fromhex(GOLDEN[name]))) == content(message)


@pytest.mark.parametrize(("name", "bits"), FEW_BITS)
def test_the_bytes_of_labels_of_few_bits_are_frozen(name: str, bits: int) -> None:
    """They stand where the float32 labels stand; of all else only the frame's length and checksum differ."""
    message = SMALL[name]
    codec = reference(type(message), bits, bits)
    wide = next(
        line
        for line in ("0000803e 0000403f 0000803f 00000000", "0000803e 0000403f 0000003f 0000003f", "0000803f 00000000")
        if line in GOLDEN[name]
    )
    head, _, tail = GOLDEN[name].partition(wide)
    expected = bytes.fromhex(head)[frame.SIZE :] + bytes.fromhex(FEW_BITS[name, bits]) + bytes.fromhex(tail)
    data = codec.encode(message)
    assert data[frame.SIZE :].hex() == expected.hex()
    assert content(codec.decode(data)) == content(as_decoded(message, codec))
