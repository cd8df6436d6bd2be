"""The levels of soft-labels as bits: packed one after the other, and read with every check."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scarlet.arrays import Values
from scarlet.errors import MessageError
from scarlet.wire.quantise import RAW_BITS, Levels, levels, pack, unpack

PROFILE = settings(deadline=None, max_examples=200)
seeds = st.integers(0, 2**32 - 1)
bit_counts = st.integers(1, RAW_BITS - 1)
each_bits = pytest.mark.parametrize("bits", range(1, RAW_BITS))


def some_levels(seed: int, count: int, classes: int, bits: int) -> Levels:
    """Rows of levels, sharp and flat, that sum to 2^b - 1."""
    rng = np.random.default_rng(seed)
    rows = rng.gamma(10.0 ** rng.uniform(-2, 3, (count, 1)), size=(count, classes)) + 1e-30
    return rng.multinomial(2**bits - 1, rows / rows.sum(axis=1, keepdims=True))


def f32(*row: float) -> Values:
    return np.array(row, np.float32)


def i64(*row: int) -> Levels:
    return np.array(row, np.int64)


GOLDEN = [
    (1, f32(0.2, 0.3, 0.5), i64(0, 0, 1), "20"),
    (2, f32(0.5, 0.3, 0.2), i64(1, 1, 1), "54"),
    (3, f32(0.1, 0.2, 0.7), i64(1, 1, 5), "2680"),
    (8, f32(0.1, 0.2, 0.7), i64(26, 51, 178), "1a33b2"),
    (12, f32(1, 0, 0), i64(4095, 0, 0), "fff0000000"),
    (23, f32(0.5, 0.25, 0.25), i64(4194303, 2097152, 2097152), "7ffffe8000010000 00"),
]


@pytest.mark.parametrize(("bits", "row", "expected", "data"), GOLDEN)
def test_the_levels_and_bytes_of_a_row_are_frozen(bits: int, row: Values, expected: Levels, data: str) -> None:
    assert np.array_equal(levels(row, bits), expected)
    assert pack(expected, bits) == bytes.fromhex(data)
    assert np.array_equal(unpack(bytes.fromhex(data), (3,), bits), expected)


@PROFILE
@given(seeds, st.integers(0, 7), st.integers(2, 50), bit_counts)
def test_unpacked_levels_are_those_that_were_packed(seed: int, count: int, classes: int, bits: int) -> None:
    rows = some_levels(seed, count, classes, bits)
    data = pack(rows, bits)
    assert len(data) == (count * classes * bits + 7) // 8
    stream = "".join(f"{level:0{bits}b}" for level in rows.reshape(-1))
    assert "".join(f"{byte:08b}" for byte in data) == stream + "0" * (-len(stream) % 8)
    for received in (data, memoryview(b"before" + data + b"after")[6:-5]):
        result = unpack(received, rows.shape, bits)
        assert result.dtype == np.int64
        assert np.array_equal(result, rows)


@each_bits
def test_data_of_another_length_is_refused(bits: int) -> None:
    data = pack(some_levels(0, 3, 5, bits), bits)
    for other in [data[:length] for length in range(len(data))] + [data + b"\0", data + data]:
        with pytest.raises(MessageError, match=f"{len(other)} bytes of levels where 3 x 5 take {len(data)}"):
            unpack(other, (3, 5), bits)
    with pytest.raises(MessageError, match="bytes of levels"):
        unpack(b"\0", (0, 5), bits)


@each_bits
def test_every_bit_of_the_padding_must_be_0(bits: int) -> None:
    data = pack(some_levels(0, 3, 5, bits), bits)
    for bit in range(8 * len(data) - 15 * bits):
        with pytest.raises(MessageError, match="do not end in zeros"):
            unpack(data[:-1] + bytes([data[-1] | 1 << bit]), (3, 5), bits)


@each_bits
def test_every_single_bit_flip_is_refused(bits: int) -> None:
    data = pack(some_levels(0, 3, 5, bits), bits)
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(MessageError):
            unpack(bytes(flipped), (3, 5), bits)


@PROFILE
@given(st.binary(max_size=100), st.integers(0, 20), st.integers(0, 20), bit_counts)
def test_any_bytes_are_levels_that_pack_to_them_or_are_refused(
    data: bytes, count: int, classes: int, bits: int
) -> None:
    shape = count, classes
    needed = (count * classes * bits + 7) // 8
    for received in (data, data[:needed], data[:needed].ljust(needed, b"\0")):
        try:
            result = unpack(received, shape, bits)
        except MessageError:
            continue
        assert result.shape == shape
        assert (result.sum(axis=1) == 2**bits - 1).all()
        assert pack(result, bits) == received


@pytest.mark.parametrize(
    "shape", [(2**32 - 1, 2), (2**32 - 1, 0), (2**32 - 1, 2**32 - 1, 0), (0, 2**32 - 1, 2**32 - 1)]
)
def test_a_shape_that_the_data_does_not_fill_is_refused_before_it_takes_memory(shape: tuple[int, ...]) -> None:
    with pytest.raises(MessageError):
        unpack(b"", shape, 8)
