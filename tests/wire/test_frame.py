from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scarlet.errors import MessageError
from scarlet.wire import frame

PROFILE = settings(deadline=None, max_examples=200)
frames = st.builds(
    frame.wrap, st.integers(0, 255), st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1), st.binary(max_size=60)
)


@PROFILE
@given(st.integers(0, 255), st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1), st.binary(max_size=60))
def test_a_frame_that_is_unwrapped_is_the_one_that_was_wrapped(
    kind: int, round: int, attempt: int, body: bytes
) -> None:
    data = frame.wrap(kind, round, attempt, body)
    outer = frame.unwrap(data)
    assert replace(outer, body=memoryview(b"")) == frame.Frame(kind, round, attempt, memoryview(b""))
    assert bytes(outer.body) == body
    assert len(data) == frame.SIZE + len(body)
    assert frame.unwrap(outer) is outer


@PROFILE
@given(st.lists(frames, max_size=4))
def test_messages_sent_one_after_the_other_are_told_apart(several: list[bytes]) -> None:
    assert frame.split(b"".join(several)) == several


@PROFILE
@given(st.lists(st.binary(max_size=50) | frames, max_size=4))
def test_to_tell_any_bytes_apart_loses_none_and_never_fails(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    parts = frame.split(data)
    assert b"".join(parts) == data
    assert all(parts)


@PROFILE
@given(frames, st.integers(0, 2**20))
def test_every_single_bit_flip_and_every_truncation_is_refused(data: bytes, at: int) -> None:
    flipped = bytearray(data)
    flipped[at // 8 % len(data)] ^= 1 << at % 8
    for bad in (bytes(flipped), data[: at % len(data)], data + b"\0"):
        with pytest.raises(MessageError):
            frame.unwrap(bad)


@pytest.mark.parametrize("version", [1, 2, 3, 5])
def test_a_message_of_another_version_is_refused_by_number(version: int) -> None:
    data = frame.wrap(2, 9, 1, b"body")
    with pytest.raises(MessageError, match=f"version {version}; this side speaks version 4"):
        frame.unwrap(data[:4] + bytes([version]) + data[5:])


def test_a_message_that_begins_otherwise_is_refused() -> None:
    with pytest.raises(MessageError, match="begins with b'HTTP'"):
        frame.unwrap(b"HTTP" + frame.wrap(2, 9, 1, b"body")[4:])


def test_the_bytes_of_a_frame_are_frozen() -> None:
    expected = b"SCRL" + struct.pack("<BBHIII", 4, 5, 1, 9, 4, 0xB3577554) + bytes([3, 0, 0, 0])
    assert frame.wrap(5, 9, 1, bytes([3, 0, 0, 0])) == expected
