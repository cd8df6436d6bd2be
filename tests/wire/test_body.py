"""A body is read as it was written, front to back, and nothing is made of what is not there."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scarlet.arrays import Index, Values
from scarlet.errors import MessageError
from scarlet.wire.body import Body, among, f4, i8, places
from scarlet.wire.values import coded, plain, plain_size, read_coded, read_plain

PROFILE = settings(deadline=None, max_examples=200)
indices = st.sets(st.integers(0, 200), max_size=12).map(lambda chosen: np.array(sorted(chosen), np.int64))
some_of = indices.flatmap(
    lambda of: st.tuples(st.just(of), st.lists(st.booleans(), min_size=len(of), max_size=len(of)))
)
shapes = st.tuples(st.integers(0, 6), st.integers(2, 12)) | st.tuples(
    st.integers(0, 4), st.integers(1, 3), st.integers(2, 6)
)


def body(data: bytes) -> Body:
    return Body(memoryview(data), 3, 1)


def rows(shape: tuple[int, ...], seed: int) -> Values:
    return np.random.default_rng(seed).dirichlet([0.3] * shape[-1], shape[:-1]).astype(np.float32)


@PROFILE
@given(some_of, st.binary(max_size=5))
def test_some_of_many_samples_are_read_as_they_were_written(case: tuple[Index, list[bool]], after: bytes) -> None:
    of, chosen = case
    some = of[np.array(chosen, np.bool_)]
    for write, read in ((among, Body.among), (places, Body.places)):
        data = write(some, of)
        reading = body(data + after)
        assert read(reading, of).tolist() == some.tolist()
        assert bytes(reading.rest()) == after
        reading.end()
    assert among(of, of) == b"\0"


@PROFILE
@given(indices, indices)
def test_samples_that_are_the_expected_ones_are_those_and_others_are_read(expected: Index, sent: Index) -> None:
    reading = body(i8(sent) + b"rest")
    found = reading.index_like(expected, i8(expected), len(sent))
    assert found.tolist() == sent.tolist()
    assert (found is expected) == (sent.tolist() == expected.tolist())
    assert bytes(reading.rest()) == b"rest"


@PROFILE
@given(st.binary(max_size=40), st.integers(0, 2**40))
def test_more_than_there_is_is_refused_before_it_takes_memory(data: bytes, more: int) -> None:
    for read in (Body.take, Body.raw, Body.integers, Body.index):
        with pytest.raises(MessageError, match="cut short"):
            read(body(data), len(data) + 1 + more)


@pytest.mark.parametrize("bad", [[2, 1], [1, 1], [-1, 0]])
def test_samples_that_do_not_ascend_from_0_are_refused(bad: list[int]) -> None:
    data = i8(np.array(bad, np.int64))
    with pytest.raises(MessageError, match="not in ascending order from 0"):
        body(data).index(len(bad))


def test_a_place_beyond_the_samples_or_more_places_than_samples_are_refused() -> None:
    of = np.arange(3)
    with pytest.raises(MessageError, match="a sample that there is not"):
        body(bytes([1, 3])).places(of)
    with pytest.raises(MessageError, match="more samples than there are"):
        body(bytes([4, 0, 0, 0, 0])).places(of)


@pytest.mark.parametrize("flag", [2, 255])
def test_a_flag_that_there_is_not_is_refused(flag: int) -> None:
    with pytest.raises(MessageError, match=f"a flag of {flag}, at most 1"):
        body(bytes([flag])).flag(1)


def test_what_is_left_after_the_end_is_refused() -> None:
    reading = body(struct.pack("<IB", 7, 1) + b"xy")
    assert reading.head(struct.Struct("<IB")) == (7, 1)
    with pytest.raises(MessageError, match="2 bytes after its end"):
        reading.end()


def test_numbers_are_little_endian_whatever_the_machine() -> None:
    assert i8(np.array([1, -2], np.int64)).hex() == "0100000000000000feffffffffffffff"
    assert i8(np.array([1], ">i8")) == i8(np.array([1], np.int64))
    assert f4(np.array([0.25], np.float32)).hex() == "0000803e"
    assert f4(np.array([0.25], ">f4")) == f4(np.array([0.25], np.float32))


@PROFILE
@given(shapes, st.integers(0, 2**32), st.integers(1, 32))
def test_labels_are_read_alike_from_their_plain_and_their_coded_form(
    shape: tuple[int, ...], seed: int, bits: int
) -> None:
    value = rows(shape, seed)
    data, short = plain(value, bits), coded(value, bits)
    assert len(data) == plain_size(shape, bits)
    reading = body(data + b"after")
    found = read_plain(reading, shape, bits, 1000)
    assert bytes(reading.rest()) == b"after"
    assert found.tobytes() == read_coded(body(short), shape, bits).tobytes()
    assert plain(found, bits) == data


def test_coded_labels_that_are_read_twice_cannot_be_written_to() -> None:
    """They are decoded once for all clients of a process."""
    data = coded(rows((3, 4), 0), 8)
    first, second = (read_coded(body(data), (3, 4), 8) for _ in range(2))
    assert np.shares_memory(first, second)
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 0
