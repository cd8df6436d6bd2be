"""Who is worth listening to on a sample: both selectors of Selective-FD against their literal definitions."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scarlet.arrays import Labels
from scarlet.errors import ConfigError
from scarlet.methods.parts.kulsif import in_distribution
from scarlet.methods.parts.mean import mean
from scarlet.methods.parts.selector import InDistribution, unambiguous
from scarlet.rng import stream

PROFILE = settings(deadline=None, max_examples=100)
Rows = npt.NDArray[np.float64]
SELECTOR = InDistribution(threshold=0.0625, kernel_width=5.0)


def distance_to_certainty(row: list[float]) -> float:
    """The least L1 distance from any one-hot label."""
    return min(math.fsum(abs(value - (best == entry)) for entry, value in enumerate(row)) for best in range(len(row)))


def rows(seed: int, count: int, classes: int) -> Rows:
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.dirichlet([sharp] * classes, count) for sharp in (0.1, 1.0, 20.0)])


@PROFILE
@given(st.integers(0, 2**32 - 1), st.integers(2, 12), st.floats(0.01, 1.99))
def test_a_mean_is_kept_if_its_l1_distance_from_the_nearest_one_hot_label_is_less_than_tau(
    seed: int, classes: int, tau: float
) -> None:
    keep = unambiguous(tau)
    assert keep is not None
    several = rows(seed, 8, classes)
    distances = np.array([distance_to_certainty(row) for row in several.tolist()])
    clear = np.abs(distances - tau) > 1e-9
    assert keep(several)[clear].tolist() == (distances < tau)[clear].tolist()


@pytest.mark.parametrize(("tau", "kept"), [(0.5, False), (math.nextafter(0.5, 1), True)])
def test_a_distance_of_exactly_tau_is_not_less_than_tau(tau: float, kept: bool) -> None:
    keep = unambiguous(tau)
    assert keep is not None
    assert keep(np.array([[0.125, 0.75, 0.125]])).tolist() == [kept]


def test_a_tie_is_as_far_from_certainty_as_from_any_of_its_classes() -> None:
    """Four of a quarter are a distance of 3/4 + 3 x 1/4 away, not of 4 x 3/4."""
    keep = unambiguous(1.6)
    assert keep is not None
    assert keep(np.array([[0.25, 0.25, 0.25, 0.25]])).tolist() == [True]


def test_tau_2_keeps_everything_even_where_all_of_many_classes_are_alike() -> None:
    assert unambiguous(2) is None
    request = np.arange(3)
    uniform = Labels(request, np.full((3, 1000), 1 / 1000, np.float32))
    for tau, kept in ((2.0, [0, 1, 2]), (1.99, [])):
        aggregation = mean(keep=unambiguous(tau))(request, 1000)
        aggregation.add(0, uniform)
        assert aggregation.finish().index.tolist() == kept


def test_the_server_judges_the_mean_and_not_the_answers() -> None:
    """Two clients that are certain of different classes leave a sample that is not; two that agree do not."""
    request = np.array([3, 8])
    aggregation = mean(keep=unambiguous(0.9))(request, 2)
    aggregation.add(0, Labels(request, np.array([[1, 0], [1, 0]], np.float32)))
    aggregation.add(1, Labels(request, np.array([[0, 1], [1, 0]], np.float32)))
    found = aggregation.finish()
    assert found.index.tolist() == [8]
    assert found.value.tolist() == [[1, 0]]


@pytest.mark.parametrize("tau", [0.0, -0.5, 2.5, math.nan, math.inf])
def test_a_threshold_of_the_server_out_of_range_is_a_config_error_of_one_line(tau: float) -> None:
    with pytest.raises(
        ConfigError, match=rf"^tau_server must be more than 0 and at most 2, got {tau}; 2 switches [^\n]+$"
    ):
        unambiguous(tau)


@pytest.mark.parametrize("tau", [-0.1, 1.0, 2.0, math.nan, -math.inf])
def test_a_threshold_of_the_client_out_of_range_is_a_config_error_of_one_line(tau: float) -> None:
    rule = r"tau_client must be at least 0 and less than 1"
    with pytest.raises(ConfigError, match=rf"^{rule}, got {tau}; the paper uses [^\n]+$"):
        InDistribution(tau, 5.0)


@pytest.mark.parametrize("width", [0.0, -1.0, math.nan, math.inf])
def test_a_kernel_without_a_width_is_a_config_error_of_one_line(width: float) -> None:
    with pytest.raises(ConfigError, match=rf"^kernel_width must be more than 0, got {width}; the paper uses [^\n]+$"):
        InDistribution(0.1, width)


def test_the_limits_of_the_thresholds_are_allowed() -> None:
    assert unambiguous(math.nextafter(0, 1)) is not None
    assert InDistribution(0.0, math.nextafter(0, 1)).threshold == 0


def test_what_a_client_keeps_is_the_mask_of_its_density_ratio() -> None:
    rng = np.random.default_rng(0)
    private = rng.normal(0, 0.3, (200, 1, 2, 2)).astype(np.float32)
    public = rng.uniform(-1, 1, (500, 1, 2, 2)).astype(np.float32)
    masks = []
    for tau, width in ((0.0625, 5.0), (0.5, 5.0), (0.0625, 1.0)):
        kept = InDistribution(tau, width).prepare(private, public, stream(1, "test"))
        assert list(kept) == ["accepted"]
        masks.append(kept["accepted"].tolist())
        assert masks[-1] == in_distribution(private, public, stream(1, "test"), threshold=tau, width=width).tolist()
    assert len({str(mask) for mask in masks}) == 3
    assert 0 < sum(masks[0]) < len(public)


@PROFILE
@given(st.lists(st.booleans(), min_size=12, max_size=12), st.sets(st.integers(0, 11)))
def test_a_client_answers_the_requested_samples_that_it_accepts_and_no_others(
    mask: list[bool], asked: set[int]
) -> None:
    index = np.array(sorted(asked), np.int64)
    labels = Labels(index, np.random.default_rng(0).dirichlet([1.0] * 3, len(index)).astype(np.float32))
    answer = SELECTOR(labels, {"accepted": np.array(mask)})
    expected = [(i, row.tolist()) for i, row in zip(sorted(asked), labels.value, strict=True) if mask[i]]
    assert list(zip(answer.index.tolist(), answer.value.tolist(), strict=True)) == expected


def test_a_mask_that_was_stored_as_bytes_selects_the_same() -> None:
    labels = Labels(np.array([0, 2, 3]), np.eye(3, dtype=np.float32))
    mask = np.array([True, True, False, True])
    for kept in (mask, mask.astype(np.uint8)):
        assert SELECTOR(labels, {"accepted": kept}).index.tolist() == [0, 3]
