from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scarlet.arrays import Labels
from scarlet.errors import ConfigError
from scarlet.methods.parts.mean import Rows, Sharpen, era, mean, power

PROFILE = settings(deadline=None, max_examples=200)

betas = st.floats(0.05, 50)
not_positive = pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, -math.inf])


@st.composite
def distributions(draw: st.DrawFn, least: float = 0.0) -> Rows:
    """One row of 2 to 12 classes, from a point mass to uniform, with entries down to 1e-300 and exact zeros."""
    exponents = draw(st.lists(st.floats(-300, 0) | st.floats(-3, 0) | st.just(-math.inf), min_size=2, max_size=12))
    row = np.array([10.0**exponent for exponent in exponents]).clip(min=least)
    row[draw(st.integers(0, len(row) - 1))] = 1.0
    return np.array([row / row.sum()])


@st.composite
def answers(draw: st.DrawFn) -> tuple[list[int], list[Labels]]:
    """A request, and what some clients answer: each its own part of the samples, perhaps none of them."""
    request = sorted(draw(st.sets(st.integers(0, 50), max_size=6)))
    classes = draw(st.integers(2, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    clients = []
    for _ in range(draw(st.integers(0, 6))):
        index = sorted(draw(st.sets(st.sampled_from(request)))) if request else []
        value = rng.dirichlet([0.2] * classes, len(index)).astype(np.float32)
        clients.append(Labels(np.array(index, np.int64), value))
    return request, clients


def aggregated(request: list[int], classes: int, clients: list[Labels]) -> Labels:
    aggregation = mean()(np.array(request, np.int64), classes)
    for labels in clients:
        aggregation.add(0, labels)
    return aggregation.finish()


def rest_uniform(top: float, classes: int) -> Rows:
    return np.array([[top] + [(1 - top) / (classes - 1)] * (classes - 1)])


@PROFILE
@given(distributions(), betas)
def test_enhanced_era_gives_a_distribution_and_an_exact_zero_stays_zero(row: Rows, beta: float) -> None:
    sharp = power(beta)(row)
    assert np.isfinite(sharp).all()
    assert (sharp >= 0).all()
    np.testing.assert_allclose(sharp.sum(axis=1), 1, rtol=1e-12)
    assert (sharp[row == 0] == 0).all()


@PROFILE
@given(distributions(least=1e-280), betas, st.floats(1e-3, 1e3))
def test_enhanced_era_does_not_depend_on_the_scale_of_its_input(row: Rows, beta: float, scale: float) -> None:
    np.testing.assert_allclose(power(beta)(scale * row), power(beta)(row), rtol=1e-9, atol=1e-300)


@PROFILE
@given(distributions())
def test_enhanced_era_is_the_identity_at_beta_1(row: Rows) -> None:
    np.testing.assert_allclose(power(1.0)(row), row, rtol=1e-12)


@PROFILE
@given(distributions(), betas, betas)
def test_the_output_of_a_larger_beta_majorises_that_of_a_smaller(row: Rows, a: float, b: float) -> None:
    smaller, larger = (np.cumsum(np.sort(power(beta)(row)[0])[::-1]) for beta in sorted((a, b)))
    assert (larger >= smaller - 1e-12).all()


def test_a_larger_beta_majorises_strictly_where_the_input_is_neither_uniform_nor_one_hot() -> None:
    tops = [float(power(beta)(rest_uniform(0.3, 10)).max()) for beta in (0.5, 1.0, 1.5, 3.0, 10.0)]
    assert tops == sorted(set(tops))


@PROFILE
@given(distributions(least=1e-6), st.floats(0.05, 8))
def test_enhanced_era_is_the_formula_of_the_paper(row: Rows, beta: float) -> None:
    powers = [z**beta for z in row[0].tolist()]
    np.testing.assert_allclose(power(beta)(row)[0], [z / sum(powers) for z in powers], rtol=1e-10)


@PROFILE
@given(distributions(), st.floats(0.02, 5))
def test_era_is_the_formula_of_ds_fl(row: Rows, temperature: float) -> None:
    scores = [math.exp(z / temperature) for z in row[0].tolist()]
    np.testing.assert_allclose(era(temperature)(row)[0], [z / sum(scores) for z in scores], rtol=1e-10)


@pytest.mark.parametrize(
    ("temperature", "classes", "top", "expected"),
    [
        (0.1, 10, 0.3, 0.506),
        (0.1, 10, 0.5, 0.904),
        (0.1, 10, 1.0, 0.9996),
        (1.0, 10, 1.0, 0.232),
        (0.1, 100, 0.3, 0.159),
        (0.1, 1000, 0.5, 0.129),
    ],
)
def test_era_has_its_known_values(temperature: float, classes: int, top: float, expected: float) -> None:
    digits = len(str(expected)) - 2
    assert round(float(era(temperature)(rest_uniform(top, classes)).max()), digits) == expected


@pytest.mark.parametrize("beta", [2.0, 50.0, 1000.0])
def test_tiny_probabilities_under_a_large_beta_are_never_nan(beta: float) -> None:
    row = np.array([[1e-300, 2e-300, 0.0, 2e-300]])
    np.testing.assert_allclose(power(beta)(row), np.array([[0.5**beta, 1, 0, 1]]) / (2 + 0.5**beta), rtol=1e-9)


@PROFILE
@given(answers())
def test_the_mean_is_a_loop_over_samples_and_those_who_answered_them(case: tuple[list[int], list[Labels]]) -> None:
    request, clients = case
    classes = clients[0].value.shape[1] if clients else 3
    expected: dict[int, Rows] = {}
    for sample in request:
        rows = [c.value[list(c.index).index(sample)].astype(np.float64) for c in clients if sample in c.index]
        if rows:
            total = sum(rows[1:], rows[0])
            expected[sample] = total / total.sum()
    labels = aggregated(request, classes, clients)
    assert labels.index.tolist() == list(expected)  # ascending, without the samples that nobody answered
    assert labels.value.dtype == np.float32
    assert labels.value.shape == (len(expected), classes)
    for row, sample in zip(labels.value, expected, strict=True):
        np.testing.assert_allclose(row, expected[sample], rtol=1e-6, atol=1e-11)


@PROFILE
@given(answers().flatmap(lambda case: st.tuples(st.just(case), st.permutations(case[1]))))
def test_the_bits_of_the_mean_do_not_depend_on_the_order_of_arrival(
    case: tuple[tuple[list[int], list[Labels]], list[Labels]],
) -> None:
    (request, clients), permuted = case
    classes = clients[0].value.shape[1] if clients else 3
    first, second = aggregated(request, classes, clients), aggregated(request, classes, permuted)
    assert first.index.tolist() == second.index.tolist()
    assert first.value.tobytes() == second.value.tobytes()


def test_the_bits_of_the_mean_do_not_depend_on_the_order_where_a_sum_of_float64_would() -> None:
    # Added one by one to 1/2 + 2^-25 the last two vanish; together they survive, and tip the rounding to a float32.
    column = [2.0**-1, 2.0**-25, 2.0**-54, 2.0**-54]
    rest = [2.0**-1 - 2.0**-25, 1.0, 1.0, 1.0]
    clients = [Labels(np.array([7]), np.array([row], np.float32)) for row in zip(column, rest, strict=True)]
    assert len({aggregated([7], 2, list(order)).value.tobytes() for order in permutations(clients)}) == 1


# Of a step of 2^-40: halves, which are rounded to an even number, odd quarters, and much less; and whole ones.
fine = st.builds(lambda numerator, power: numerator * 2.0**-power, st.integers(0, 99), st.sampled_from([41, 42, 40]))
fine |= st.builds(lambda numerator, power: numerator * 2.0**-power, st.integers(0, 7), st.integers(3, 140))


@PROFILE
@given(st.lists(st.tuples(fine, fine), min_size=1, max_size=9), st.sets(st.integers(0, 8)))
def test_the_mean_is_the_quotient_of_whole_numbers_of_a_step(column: list[tuple[float, float]], part: set[int]) -> None:
    aggregation = mean()(np.array([3, 5]), 3)
    total = np.zeros((2, 3))
    for client, pair in enumerate(column):
        value = np.array([[*pair, 1.0], [1.0, *pair]], np.float32)[: 1 if client in part else 2]
        aggregation.add(client, Labels(np.array([3, 5])[: len(value)], value))
        total[: len(value)] += [[round(float(entry) * 2**40) for entry in row] for row in value]
    total = total[total.any(axis=1)]
    expected = (total / total.sum(axis=1, keepdims=True)).astype(np.float32)
    assert aggregation.finish().value.tobytes() == expected.tobytes()


@pytest.mark.parametrize("then", [None, power(1.5), era(0.1)])
def test_an_empty_request_gives_an_empty_aggregate(then: Sharpen | None) -> None:
    aggregation = mean(then=then)(np.empty(0, np.int64), 7)
    aggregation.add(0, Labels(np.empty(0, np.int64), np.empty((0, 7), np.float32)))
    labels = aggregation.finish()
    assert labels.index.shape == (0,)
    assert labels.value.shape == (0, 7)
    assert labels.value.dtype == np.float32


def test_the_mean_is_sharpened_after_it_is_taken_and_not_before() -> None:
    aggregation = mean(then=power(2.0))(np.array([4]), 2)
    for value in ([1.0, 0.0], [0.5, 0.5]):
        aggregation.add(0, Labels(np.array([4]), np.array([value], np.float32)))
    np.testing.assert_allclose(aggregation.finish().value, [[0.9, 0.1]], rtol=1e-6)  # of (3/4, 1/4); before: (3/4, 1/4)


@not_positive
def test_a_beta_that_is_not_positive_is_a_config_error_that_names_it(value: float) -> None:
    with pytest.raises(ConfigError, match=rf"^beta must be more than 0, got {value}; use 1 to leave the mean"):
        power(value)


@not_positive
def test_a_temperature_that_is_not_positive_is_a_config_error_that_names_it(value: float) -> None:
    with pytest.raises(ConfigError, match=rf"^temperature must be more than 0, got {value}; 0.1 is usual"):
        era(value)
