from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scarlet.arrays import Labels
from scarlet.errors import ConfigError
from scarlet.methods.parts.mean import mean
from scarlet.methods.parts.robust import Average, average
from scarlet.methods.parts.selector import unambiguous
from scarlet.methods.parts.sharpening import LEAST_BETA, MOST_BETA, Adaptive, Power, Rows, era
from scarlet.protocol.aggregation import Aggregate, Sharpened

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
def opinions(draw: st.DrawFn) -> Rows:
    """Answers [K, n, N] of 1 to 6 clients to 1 to 5 samples, from one-hot to nearly uniform, some of them alike."""
    clients, samples, classes = draw(st.integers(1, 6)), draw(st.integers(1, 5)), draw(st.integers(2, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    spread = draw(st.sampled_from([0.01, 0.2, 1.0, 30.0]))
    value = rng.gamma(spread, size=(clients, samples, classes)) + 1e-9
    alike = draw(st.sampled_from([0.0, 0.5, 0.95]))
    value = (1 - alike) * value + alike * value[:1]
    return np.asarray((value / value.sum(axis=-1, keepdims=True)).astype(np.float32).astype(np.float64))


def chosen(answers: Rows, aggregate: Aggregate) -> Sharpened:
    """What an aggregation makes of answers [K, n, N] to all samples."""
    index = np.arange(answers.shape[1])
    aggregation = aggregate(index, answers.shape[2])
    for client, value in enumerate(answers):
        aggregation.add(client, Labels(index, value.astype(np.float32)))
    labels = aggregation.finish()
    assert isinstance(labels, Sharpened)
    return labels


def beta_of(answers: Rows, rho: float = 0.5) -> float:
    return chosen(answers, mean(then=Adaptive(rho))).beta


def entropy(row: list[float]) -> float:
    return -math.fsum(z * math.log(z) for z in row if z > 0)


def literally(answers: Rows, rho: float) -> float:
    """The rule in plain loops: bisect beta until the mean entropy is H(m) - rho J."""
    clients, samples = len(answers), range(answers.shape[1])
    means = [[math.fsum(column) / clients for column in zip(*answers[:, i].tolist(), strict=True)] for i in samples]
    spread = [
        entropy(m) - math.fsum(entropy(row) for row in answers[:, i].tolist()) / clients for i, m in enumerate(means)
    ]
    target = math.fsum(entropy(m) - rho * j for m, j in zip(means, spread, strict=True))

    def left(beta: float) -> float:
        total = 0.0
        for row in means:
            top = max(row)
            powers = [(z / top) ** beta for z in row]
            total += entropy([z / sum(powers) for z in powers])
        return total - target

    low, high = LEAST_BETA, MOST_BETA
    if left(high) >= 0:
        return high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if left(middle) > 0 else (low, middle)
    return low


def rest_uniform(top: float, classes: int) -> Rows:
    return np.array([[top] + [(1 - top) / (classes - 1)] * (classes - 1)])


@PROFILE
@given(distributions(), betas)
def test_enhanced_era_gives_a_distribution_and_an_exact_zero_stays_zero(row: Rows, beta: float) -> None:
    sharp = Power(beta)(row)
    assert np.isfinite(sharp).all()
    assert (sharp >= 0).all()
    np.testing.assert_allclose(sharp.sum(axis=1), 1, rtol=1e-12)
    assert (sharp[row == 0] == 0).all()


@PROFILE
@given(distributions(least=1e-280), betas, st.floats(1e-3, 1e3))
def test_enhanced_era_does_not_depend_on_the_scale_of_its_input(row: Rows, beta: float, scale: float) -> None:
    np.testing.assert_allclose(Power(beta)(scale * row), Power(beta)(row), rtol=1e-9, atol=1e-300)


@PROFILE
@given(distributions())
def test_enhanced_era_is_the_identity_at_beta_1(row: Rows) -> None:
    np.testing.assert_allclose(Power(1.0)(row), row, rtol=1e-12)


@PROFILE
@given(distributions(), betas, betas)
def test_the_output_of_a_larger_beta_majorises_that_of_a_smaller(row: Rows, a: float, b: float) -> None:
    smaller, larger = (np.cumsum(np.sort(Power(beta)(row)[0])[::-1]) for beta in sorted((a, b)))
    assert (larger >= smaller - 1e-12).all()


def test_a_larger_beta_majorises_strictly_where_the_input_is_neither_uniform_nor_one_hot() -> None:
    tops = [float(Power(beta)(rest_uniform(0.3, 10)).max()) for beta in (0.5, 1.0, 1.5, 3.0, 10.0)]
    assert tops == sorted(set(tops))


@PROFILE
@given(distributions(least=1e-6), st.floats(0.05, 8))
def test_enhanced_era_is_the_formula_of_the_paper(row: Rows, beta: float) -> None:
    powers = [z**beta for z in row[0].tolist()]
    np.testing.assert_allclose(Power(beta)(row)[0], [z / sum(powers) for z in powers], rtol=1e-10)


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
    np.testing.assert_allclose(Power(beta)(row), np.array([[0.5**beta, 1, 0, 1]]) / (2 + 0.5**beta), rtol=1e-9)


@not_positive
def test_a_beta_that_is_not_positive_is_a_config_error_that_names_it(value: float) -> None:
    with pytest.raises(ConfigError, match=rf"^beta must be more than 0, got {value}; use 1 to leave the mean"):
        Power(value)


@not_positive
def test_a_temperature_that_is_not_positive_is_a_config_error_that_names_it(value: float) -> None:
    with pytest.raises(ConfigError, match=rf"^temperature must be more than 0, got {value}; 0.1 is usual"):
        era(value)


@PROFILE
@given(opinions(), st.sampled_from([0.25, 0.5, 1.0]))
def test_the_chosen_beta_leaves_the_entropy_less_a_share_of_the_disagreement(answers: Rows, rho: float) -> None:
    found, expected = chosen(answers, mean(then=Adaptive(rho))), literally(answers, rho)
    assert LEAST_BETA <= found.beta <= MOST_BETA
    average = np.mean(answers, axis=0)
    mean_entropy = [
        np.mean([entropy(row) for row in Power(beta)(average / average.sum(axis=1, keepdims=True)).tolist()])
        for beta in (found.beta, expected)
    ]
    # Near uniform or certain labels many betas have nearly the same entropy, and any of them will do.
    assert mean_entropy[0] == pytest.approx(mean_entropy[1], abs=2e-5)
    np.testing.assert_allclose(found.value, Power(found.beta)(average), rtol=1e-4, atol=1e-6)


def test_the_chosen_beta_has_a_known_value() -> None:
    answers = np.array([[[0.9, 0.05, 0.05]], [[0.5, 0.4, 0.1]]])  # their mean: 0.7, 0.225, 0.075
    assert beta_of(answers) == pytest.approx(literally(answers, 0.5), abs=1e-4)
    assert beta_of(answers) == pytest.approx(1.1143, abs=5e-5)


@PROFILE
@given(opinions(), st.integers(1, 5))
def test_beta_is_1_where_all_clients_answer_alike(answers: Rows, clients: int) -> None:
    assert beta_of(np.repeat(answers[:1], clients, axis=0)) == 1


def test_beta_is_1_where_all_clients_answer_uniformly_or_certainly() -> None:
    for row in ([0.25] * 4, [0.25 + 1e-6, 0.25, 0.25, 0.25 - 1e-6], [0.0, 1.0, 0.0, 0.0]):
        assert beta_of(np.array([[row]] * 7)) == 1


@PROFILE
@given(opinions(), st.randoms(use_true_random=False))
def test_beta_does_not_depend_on_the_order_of_answers_samples_or_classes(answers: Rows, random: object) -> None:
    rng = np.random.default_rng(random.randrange(2**32))  # type: ignore[attr-defined]
    before, moved = beta_of(answers), beta_of(rng.permutation(answers))
    assert moved == before  # to the bit: answers arrive in any order
    for axis in (1, 2):
        found = chosen(rng.permutation(answers, axis=axis), mean(then=Adaptive(0.5)))
        # To rounding; where no beta changes the labels much, rounding may change beta much.
        average = np.mean(answers, axis=0)
        one, other = (np.sort(Power(beta)(average), axis=None) for beta in (before, found.beta))
        np.testing.assert_allclose(one, other, atol=1e-3)


@PROFILE
@given(opinions())
def test_a_larger_share_of_the_disagreement_never_gives_a_smaller_beta(answers: Rows) -> None:
    betas = [beta_of(answers, rho) for rho in (0.0, 0.1, 0.5, 1.0)]
    assert betas == sorted(betas)
    assert betas[0] == 1


def test_clients_that_are_certain_of_different_classes_give_the_largest_beta_and_finite_labels() -> None:
    answers = np.array([[np.eye(3)[i]] * 2 for i in (0, 0, 1)])
    labels = chosen(answers, mean(then=Adaptive(1.0)))
    assert labels.beta == MOST_BETA  # no power of 2/3, 1/3 has an entropy of 0
    np.testing.assert_allclose(labels.value[0], [256 / 257, 1 / 257, 0], rtol=1e-6)


def test_the_sum_of_an_answer_need_not_be_1_exactly() -> None:
    answers = np.array([[[0.7, 0.2, 0.1]], [[0.6, 0.3, 0.1]]])
    assert beta_of(answers * 1.0009) == pytest.approx(beta_of(answers), abs=1e-3)


@pytest.mark.parametrize("kind", ["mean", "median", "trimmed"])
def test_beta_is_chosen_for_the_robust_averages_too(kind: Average) -> None:
    rng = np.random.default_rng(3)
    answers = rng.dirichlet([0.4] * 5, (9, 40))
    aggregate = average(kind, 0.2, then=Adaptive(0.5))
    labels = chosen(answers, aggregate)
    assert 1 < labels.beta < MOST_BETA
    assert chosen(answers[rng.permutation(9)], aggregate).beta == pytest.approx(labels.beta, abs=1e-9)
    np.testing.assert_allclose(labels.value.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("kind", ["median", "trimmed"])
def test_a_false_answer_makes_the_others_no_less_agreed_in_a_robust_average(kind: Average) -> None:
    rng = np.random.default_rng(3)
    alike = np.repeat(rng.dirichlet([0.4] * 5, (1, 40)), 9, axis=0)
    for false in (np.eye(5)[rng.integers(5, size=40)], np.full((40, 5), 0.2)):
        answers = np.concatenate([alike, [false]])
        assert chosen(answers, average(kind, 0.2, then=Adaptive(0.5))).beta == 1
        assert beta_of(answers) > 1.01


def test_beta_is_of_the_samples_that_are_kept_and_of_those_who_answered_them() -> None:
    index = np.array([2, 3, 7])
    aggregation = mean(then=Adaptive(0.5), keep=unambiguous(1.0))(index, 3)
    sure, other, vague = [0.9, 0.05, 0.05], [0.7, 0.2, 0.1], [0.34, 0.33, 0.33]
    aggregation.add(0, Labels(index, np.array([sure, vague, sure], np.float32)))
    aggregation.add(1, Labels(index[:2], np.array([other, vague], np.float32)))
    labels = aggregation.finish()
    assert isinstance(labels, Sharpened)
    assert labels.index.tolist() == [2, 7]
    means = np.array([np.mean([sure, other], axis=0), sure])
    target = np.mean([(entropy(list(means[0])) + np.mean([entropy(sure), entropy(other)])) / 2, entropy(sure)])
    assert np.mean([entropy(row) for row in labels.value.tolist()]) == pytest.approx(target, abs=1e-4)


def test_a_round_that_asks_for_nothing_has_no_beta() -> None:
    for then in (Adaptive(0.5), Power(1.5)):
        labels = mean(then=then)(np.empty(0, np.int64), 4).finish()
        assert not isinstance(labels, Sharpened)


@pytest.mark.parametrize("rho", [-0.1, 1.1, math.nan])
def test_a_rho_that_is_no_share_is_a_config_error_that_names_it(rho: float) -> None:
    with pytest.raises(ConfigError, match=rf"^rho must be from 0 to 1, got {rho}; it is a share"):
        Adaptive(rho)
