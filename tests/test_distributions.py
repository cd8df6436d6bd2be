from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scarlet.arrays import Values
from scarlet.distributions import SUM_TOLERANCE, check_distributions, entropy
from scarlet.errors import MessageError

PROFILE = settings(deadline=None, max_examples=500)
# The middle ones bring a sum to just inside and just outside what is tolerated.
ODD = [0.0, -0.0, 1e-45, -1e-45, 1e-9, -1e-3, 0.1, 0.5, 1.0, 2.0, 1e20, 3e38, -3e38, np.inf, -np.inf, np.nan]
SHIFTS = [share * sign * SUM_TOLERANCE for share in (0.5, 0.89, 0.91, 0.99, 1.01, 2) for sign in (1, -1)]


def literal(value: Values) -> str | None:
    """The reason to refuse labels, row by row."""
    if not np.isfinite(value).all():
        return "not finite"
    if (value < 0).any():
        return "negative"
    rows = value.reshape(-1, value.shape[-1]).astype(np.float64)
    return "unnormalised" if any(abs(row.sum() - 1) > SUM_TOLERANCE for row in rows) else None


def found(value: Values) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_distributions(value, "somebody")
    except MessageError as error:
        return error.reason
    return None


@PROFILE
@given(
    st.sampled_from([(1, 2), (3, 10), (40, 10), (2, 3, 4), (300, 1000)]),
    st.integers(0, 2**32 - 1),
    st.lists(st.tuples(st.integers(0, 2**30), st.sampled_from(ODD) | st.none(), st.sampled_from(SHIFTS)), max_size=3),
)
def test_what_is_refused_and_why_is_as_in_the_definition(
    shape: tuple[int, ...], seed: int, changes: list[tuple[int, float | None, float]]
) -> None:
    value = np.random.default_rng(seed).dirichlet([0.1] * shape[-1], shape[:-1]).astype(np.float32)
    for at, entry, shift in changes:
        place = at % value.size
        value.flat[place] = value.flat[place] + shift if entry is None else entry
    assert found(value) == literal(value)


@pytest.mark.parametrize("shift", SHIFTS)
def test_one_row_of_many_is_enough(shift: float) -> None:
    value = np.full((1000, 10), 0.1, np.float32)
    value[777, 3] += shift
    assert (found(value) == "unnormalised") == (abs(shift) > SUM_TOLERANCE) == (literal(value) == "unnormalised")


def test_many_rows_that_are_all_a_little_off_are_accepted() -> None:
    assert found(np.full((1000, 10), 0.1 * (1 + 0.9 * SUM_TOLERANCE), np.float32)) is None


@pytest.mark.parametrize("shape", [(0, 10), (0, 3, 10)])
def test_no_labels_are_accepted(shape: tuple[int, ...]) -> None:
    assert found(np.empty(shape, np.float32)) is None


def test_entropy_is_0_of_a_point_mass_and_ln_N_of_a_uniform_label() -> None:
    value = np.array([[1, 0, 0, 0], [0.25] * 4, [0.5, 0.5, 0, 0]], np.float32)
    np.testing.assert_allclose(entropy(value), [0, math.log(4), math.log(2)])
