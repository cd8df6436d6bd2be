"""Masks and numbers in few bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scarlet.arrays import Mask
from scarlet.errors import MessageError
from scarlet.wire.entropy import decode_mask, encode_mask, read_varint, varint
from tests.wire.changed import mutated, told

PROFILE = settings(deadline=None, max_examples=200)
seeds = st.integers(0, 2**32 - 1)
MASKS = [  # samples, of which one in so many
    (1, 1, "0100"),
    (5, 1, "0500"),
    (5, 7, "0103cccccc"),
    (16, 3, "06056df1dfcd1f"),
    (1000, 10, "63 bytes, a1342eae3c826d3ecf72bb476e906113"),
    (1000, 2, "132 bytes, 7bbd3e2a5655b6619aea6b0d86264429"),
]


def every(count: int, step: int) -> Mask:
    """A mask of which one in so many is true, and the first."""
    return np.asarray(np.arange(count) % step == 0)


@pytest.mark.parametrize(("count", "step", "data"), MASKS)
def test_the_bytes_of_a_mask_are_frozen(count: int, step: int, data: str) -> None:
    assert told(encode_mask(every(count, step))) == data


masks = st.tuples(seeds, st.integers(0, 300), st.floats(0, 1)).map(
    lambda drawn: np.random.default_rng(drawn[0]).random(drawn[1]) < drawn[2]
)


@PROFILE
@given(masks, st.binary(max_size=5), st.binary(max_size=5))
def test_a_decoded_mask_is_the_one_that_was_encoded_and_ends_where_it_ended(
    mask: Mask, before: bytes, after: bytes
) -> None:
    data = encode_mask(mask)
    found, at = decode_mask(before + data + after, len(before), len(mask))
    assert np.array_equal(found, mask)
    assert at == len(before) + len(data)


@PROFILE
@given(masks.filter(lambda mask: len(mask) > 0))
def test_a_mask_costs_about_its_entropy(mask: Mask) -> None:
    share = np.array([mask.mean(), 1 - mask.mean()])
    bits = -len(mask) * float((share * np.log2(share, where=share > 0, out=np.zeros(2))).sum())
    assert len(encode_mask(mask)) <= bits / 8 * 1.01 + 9


@PROFILE
@given(masks, seeds)
def test_a_changed_mask_is_as_true_as_it_announces_or_refused(mask: Mask, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(20):
        data = mutated(encode_mask(mask), rng)
        try:
            found, at = decode_mask(data, 0, len(mask))
        except MessageError:
            continue
        assert len(found) == len(mask)
        assert at <= len(data)
        if len(mask):
            assert found.sum() == read_varint(data, 0)[0]


@PROFILE
@given(st.integers(0, 2**63 - 1), st.binary(max_size=3))
def test_a_number_is_read_as_it_was_written(number: int, after: bytes) -> None:
    data = varint(number)
    assert len(data) == max(1, -(-number.bit_length() // 7))
    assert read_varint(data + after, 0) == (number, len(data))
    for length in range(len(data)):
        with pytest.raises(MessageError, match="does not end"):
            read_varint(data[:length], 0)


def test_a_number_of_more_than_63_bits_is_refused() -> None:
    with pytest.raises(MessageError, match="does not end"):
        read_varint(b"\xff" * 20, 0)
