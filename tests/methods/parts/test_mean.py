from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scarlet.arrays import Labels
from scarlet.methods.parts.mean import mean
from scarlet.methods.parts.sharpening import Power, Rows, Sharpen, era

PROFILE = settings(deadline=None, max_examples=200)


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


@pytest.mark.parametrize("then", [None, Power(1.5), era(0.1)])
def test_an_empty_request_gives_an_empty_aggregate(then: Sharpen | None) -> None:
    aggregation = mean(then=then)(np.empty(0, np.int64), 7)
    aggregation.add(0, Labels(np.empty(0, np.int64), np.empty((0, 7), np.float32)))
    labels = aggregation.finish()
    assert labels.index.shape == (0,)
    assert labels.value.shape == (0, 7)
    assert labels.value.dtype == np.float32


def test_the_mean_is_sharpened_after_it_is_taken_and_not_before() -> None:
    aggregation = mean(then=Power(2.0))(np.array([4]), 2)
    for value in ([1.0, 0.0], [0.5, 0.5]):
        aggregation.add(0, Labels(np.array([4]), np.array([value], np.float32)))
    np.testing.assert_allclose(aggregation.finish().value, [[0.9, 0.1]], rtol=1e-6)  # of (3/4, 1/4); before: (3/4, 1/4)
