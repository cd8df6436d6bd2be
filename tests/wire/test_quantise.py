from __future__ import annotations

from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from scarlet.arrays import Values
from scarlet.distributions import SUM_TOLERANCE, check_distributions
from scarlet.errors import ConfigError, MessageError
from scarlet.wire.quantise import RAW_BITS, Levels, check_bits, from_levels, levels, pack, quantise, unpack

PROFILE = settings(deadline=None, max_examples=200)
BITS = range(1, RAW_BITS)

seeds = st.integers(0, 2**32 - 1)
bit_counts = st.integers(1, RAW_BITS - 1)
each_bits = pytest.mark.parametrize("bits", BITS)


def some_rows(seed: int, count: int, classes: int) -> Values:
    """Distributions of every kind, in float32: sharp, flat, with zeros, with ties, some off a sum of 1."""
    rng = np.random.default_rng(seed)
    flat = 10.0 ** rng.uniform(-2, 3, (count, 1))
    rows = rng.gamma(flat, size=(count, classes)) + 1e-30
    kind = rng.integers(4, size=(count, 1))
    rows = np.where((kind == 1) & (rng.random(rows.shape) < 0.5), 0, rows)
    rows = np.where(kind == 2, rng.integers(0, 4, rows.shape), rows)  # few different values: ties
    rows[rows.sum(axis=1) == 0] = 1
    rows /= rows.sum(axis=1, keepdims=True)
    off = rng.choice([0, 0.9 * SUM_TOLERANCE, -0.9 * SUM_TOLERANCE], (count, 1))
    result: Values = (rows * (1 + off)).astype(np.float32)
    return result


def some_levels(seed: int, count: int, classes: int, bits: int) -> Levels:
    """Rows of levels, sharp and flat, that sum to 2^b - 1."""
    rng = np.random.default_rng(seed)
    rows = rng.gamma(10.0 ** rng.uniform(-2, 3, (count, 1)), size=(count, classes)) + 1e-30
    return rng.multinomial(2**bits - 1, rows / rows.sum(axis=1, keepdims=True))


@st.composite
def soft_labels(draw: st.DrawFn, most_classes: int = 1000) -> Values:
    return some_rows(draw(seeds), draw(st.integers(0, 5)), draw(st.integers(2, most_classes)))


def normalised(values: Values) -> npt.NDArray[np.float64]:
    rows = values.astype(np.float64)
    result: npt.NDArray[np.float64] = rows / rows.sum(axis=-1, keepdims=True)
    return result


def literal(values: Values, bits: int) -> Levels:
    """The algorithm as it is told: a row at a time, a unit at a time."""
    units = 2**bits - 1
    result = []
    for row in normalised(values):
        exact = [float(p) * units for p in row]
        row_levels = [round(x) for x in exact]
        deficit = units - sum(row_levels)
        step = 1 if deficit > 0 else -1
        residual = [step * (x - level) for x, level in zip(exact, row_levels, strict=True)]
        for i in sorted(range(len(row)), key=lambda i: (-residual[i], i))[: abs(deficit)]:
            row_levels[i] += step
        result.append(row_levels)
    return np.array(result, np.int64).reshape(values.shape)


def f32(*row: float) -> Values:
    return np.array(row, np.float32)


@PROFILE
@given(soft_labels(), bit_counts)
def test_the_levels_are_those_of_the_algorithm_as_it_is_told(values: Values, bits: int) -> None:
    result = levels(values, bits)
    assert result.dtype == np.int64
    assert np.array_equal(result, literal(values, bits))


@pytest.mark.parametrize(("bits", "classes"), list(product([1, 2, 3], [2, 3, 4, 5])))
def test_no_distribution_on_the_grid_is_nearer_in_L1(bits: int, classes: int) -> None:
    units = 2**bits - 1
    free = np.array(list(product(range(units + 1), repeat=classes - 1)))
    grid = np.column_stack([free, units - free.sum(axis=1)])
    grid = grid[grid[:, -1] >= 0]
    # 24ths tie with the grid, and with each other, far more often than what is drawn.
    ties = np.array([row for row in product(range(0, 25, 1 if classes < 4 else 3), repeat=classes) if sum(row) == 24])
    values = np.concatenate([some_rows(bits, 300, classes), (ties / 24).astype(np.float32)])
    p = normalised(values)
    least = np.abs(grid[None] / units - p[:, None]).sum(axis=2).min(axis=1)
    ours = np.abs(levels(values, bits) / units - p).sum(axis=1)
    assert len(ties) >= 9
    assert (ours <= least + 1e-12).all()


@PROFILE
@given(soft_labels(), bit_counts)
def test_levels_are_not_negative_and_sum_to_all_units(values: Values, bits: int) -> None:
    result = levels(values, bits)
    assert (result >= 0).all()
    assert (result.sum(axis=-1) == 2**bits - 1).all()


@PROFILE
@given(soft_labels(), bit_counts)
def test_every_entry_is_less_than_one_level_from_its_own(values: Values, bits: int) -> None:
    units = 2**bits - 1
    p = normalised(values)
    assert (np.abs(levels(values, bits) - p * units) < 1).all()
    assert (np.abs(quantise(values, bits) - p) <= 1 / units + 2**-25).all()  # and half a step of float32


@PROFILE
@given(soft_labels(), bit_counts)
def test_an_entry_of_0_stays_0(values: Values, bits: int) -> None:
    assert not levels(values, bits)[values == 0].any()


@PROFILE
@given(soft_labels(), bit_counts)
def test_a_larger_entry_never_gets_fewer_levels(values: Values, bits: int) -> None:
    order = np.argsort(values, axis=-1)
    ascending, result = (np.take_along_axis(rows, order, axis=-1) for rows in (values, levels(values, bits)))
    fewer = np.diff(result, axis=-1) < 0
    assert not (fewer & (np.diff(ascending, axis=-1) > 0)).any()


@PROFILE
@given(soft_labels())
def test_one_bit_is_the_one_hot_of_the_first_argmax(values: Values) -> None:
    one_hot = np.eye(values.shape[1], dtype=np.int64)[values.argmax(axis=1)]
    assert np.array_equal(levels(values, 1), one_hot)
    assert np.array_equal(quantise(values, 1), one_hot)


@pytest.mark.parametrize("classes", [2, 3, 10, 1000])
def test_one_bit_of_equal_halves_is_the_first_of_them(classes: int) -> None:
    halves = np.zeros((2_000, classes), np.float32)
    halves[:, -2:] = np.linspace(0.4996, 0.5004, len(halves))[:, None]
    assert (levels(halves, 1).argmax(axis=1) == classes - 2).all()


def test_among_equals_the_lowest_index_moves() -> None:
    assert levels(f32(0.25, 0.25, 0.25, 0.25), 1).tolist() == [1, 0, 0, 0]  # each is rounded to 0, one unit is missing
    assert levels(f32(0.25, 0.25, 0.25, 0.25), 2).tolist() == [0, 1, 1, 1]  # each is rounded to 1, one unit too many
    assert levels(f32(0.125, 0.375, 0.125, 0.375), 2).tolist() == [1, 1, 0, 1]


@PROFILE
@given(soft_labels(most_classes=30), bit_counts, seeds)
def test_classes_in_another_order_have_their_levels_in_that_order(values: Values, bits: int, seed: int) -> None:
    scaled = normalised(values) * (2**bits - 1)
    residual = np.sort(scaled - np.rint(scaled), axis=-1)
    assume((np.diff(residual, axis=-1) > 1e-6).all() and (np.abs(residual) < 0.5 - 1e-6).all())
    order = np.random.default_rng(seed).permutation(values.shape[1])
    assert np.array_equal(levels(values[:, order], bits), levels(values, bits)[:, order])


@each_bits
def test_what_was_quantised_once_is_quantised_to_itself(bits: int) -> None:
    for seed, (count, classes) in enumerate([(2_000, 2), (2_000, 3), (500, 10), (100, 200), (50, 1000)]):
        expected = some_levels(seed, count, classes, bits)
        values = from_levels(expected, bits)
        assert np.array_equal(levels(values, bits), expected)
        assert quantise(values, bits).tobytes() == values.tobytes()


@PROFILE
@given(soft_labels(), bit_counts)
def test_to_quantise_twice_is_to_quantise_once(values: Values, bits: int) -> None:
    once = quantise(values, bits)
    assert quantise(once, bits).tobytes() == once.tobytes()


@pytest.mark.parametrize("classes", [2, 3, 5, 10, 50, 1000])
@pytest.mark.parametrize("sign", [1, -1])
def test_at_23_bits_the_worst_rows_come_back_from_float32_within_a_quarter_of_a_level(sign: int, classes: int) -> None:
    """The first class is rounded one way as far as can be, and all others the other way."""
    bits, units = 23, 2**23 - 1
    most, least = [], []
    for k in range(5, 22):
        near = 3 * 2**k + np.arange(-20, 21)  # no level is farther from a float32 than 3/4 of a power of two
        rounding = sign * (from_levels(near, bits).astype(np.float64) * units - near)
        most.append(int(near[rounding.argmax()]))
        least.append(int(near[rounding.argmin()]))
    rows = np.zeros((len(most), classes), np.int64)
    for row, first in zip(rows, most, strict=True):
        row[0] = first
        for i in range(1, classes - 1):
            row[i] = max((level for level in least if level <= units - row.sum()), default=0)
        row[-1] = units - row.sum()
    values = from_levels(rows, bits)
    assert np.array_equal(levels(values, bits), rows)
    worst = np.abs(normalised(values) * units - rows).max()
    assert (0.15 if classes >= 10 else 0.05) < worst < 0.25


@each_bits
def test_every_two_class_row_is_quantised_to_itself(bits: int) -> None:
    units = 2**bits - 1
    first = np.arange(0, units + 1, max(1, units // 50_000))
    rows = np.stack([first, units - first], axis=1)
    assert np.array_equal(levels(from_levels(rows, bits), bits), rows)


@PROFILE
@given(seeds, st.integers(2, 1000), bit_counts)
def test_quantised_labels_are_distributions(seed: int, classes: int, bits: int) -> None:
    values = from_levels(some_levels(seed, 5, classes, bits), bits)
    assert values.dtype == np.float32
    check_distributions(values, "client 0")
    assert (np.abs(values.sum(axis=1, dtype=np.float64) - 1) <= 2**-24 + 1e-12).all()
    assert (np.abs(values.sum(axis=1) - 1) < 1e-5).all()


@pytest.mark.parametrize("shape", [(2,), (0, 10), (5, 3), (0, 3, 7), (4, 0, 7), (2, 3, 7), (2, 1, 3, 5)])
def test_any_leading_shape_is_as_good_as_rows(shape: tuple[int, ...]) -> None:
    count = int(np.prod(shape[:-1]))
    values = some_rows(0, count, shape[-1])
    before = values.copy()
    for bits in BITS:
        rows = levels(values, bits)
        shaped = levels(values.reshape(shape), bits)
        assert shaped.shape == shape
        assert np.array_equal(shaped, rows.reshape(shape))
        assert from_levels(shaped, bits).shape == shape
        assert pack(shaped, bits) == pack(rows, bits)
        assert np.array_equal(unpack(pack(rows, bits), shape, bits), shaped)
    assert np.array_equal(values, before)


def test_the_levels_do_not_depend_on_the_layout_in_memory() -> None:
    # One after the other, the crumbs vanish in the sum; among themselves they add up, and 3/2 becomes a little less.
    crumbs = np.full((20, 1000), 1e-17, np.float32)
    crumbs[:, :2] = 0.5
    for values, bits in product([crumbs, some_rows(0, 20, 7)], BITS):
        expected = levels(values, bits)
        every_other = np.repeat(values, 2, axis=1)[:, ::2]
        for other in (np.asfortranarray(values), every_other, np.ascontiguousarray(values[::-1])[::-1]):
            assert np.array_equal(levels(other, bits), expected)
        assert pack(np.asfortranarray(expected), bits) == pack(expected, bits)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "row",
    [
        (np.nan, 0.5, 0.5),
        (np.nan, np.nan, np.nan),
        (np.inf, 0.0, 0.0),
        (np.inf, -np.inf, 1.0),
        (0.0, 0.0, 0.0),
        (1.5, -0.5, 0.0),
        (0.5, 0.5, 0.1),
        (3e38, 3e38, 3e38),
    ],
)
@each_bits
def test_a_row_that_is_no_distribution_is_refused_by_its_receiver_and_harms_no_other(
    bits: int, row: tuple[float, ...]
) -> None:
    values = np.stack([f32(0.5, 0.25, 0.25), f32(*row), f32(0, 0, 1)])
    result = levels(values, bits)
    assert result[1].tolist() == [0, 0, 0]
    assert np.array_equal(result[[0, 2]], levels(values[[0, 2]], bits))
    with pytest.raises(MessageError, match="do not sum to"):
        unpack(pack(result, bits), result.shape, bits)
    with pytest.raises(MessageError, match="does not sum to 1"):
        check_distributions(quantise(values, bits), "client 0")


@pytest.mark.parametrize("bits", range(24, 33))
def test_from_24_bits_on_a_label_is_sent_as_it_is(bits: int) -> None:
    values = some_rows(0, 20, 10)
    assert quantise(values, bits).tobytes() == values.tobytes()


@pytest.mark.parametrize("bits", [-1, 0, 33])
def test_bits_out_of_range_are_a_config_error(bits: int) -> None:
    with pytest.raises(ConfigError, match=f"^up_bits must be from 1 to 32, got {bits}; 32 sends float32 as it is$"):
        check_bits("up_bits", bits)


@pytest.mark.parametrize("bits", [1, 8, 23, 24, 32])
def test_bits_from_1_to_32_are_accepted(bits: int) -> None:
    check_bits("up_bits", bits)
