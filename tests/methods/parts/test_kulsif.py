"""The density ratio against its formulas and its objective, and the selector that is built on it."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_digits

from scarlet.errors import ConfigError
from scarlet.methods.parts import kulsif as module
from scarlet.methods.parts.kulsif import Ratio, in_distribution, kernel, kulsif, pixels
from scarlet.rng import stream

Matrix = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]


def literal_kernel(a: Matrix, b: Matrix, width: float) -> Matrix:
    """Pair by pair and coordinate by coordinate."""
    rows = []
    for p in a.tolist():
        distances = [sum((s - t) ** 2 for s, t in zip(p, q, strict=True)) for q in b.tolist()]
        rows.append([math.exp(-each / (2 * width**2)) for each in distances])
    return np.array(rows)


def literal_ratio(y: Matrix, x: Matrix, points: Matrix, width: float, ridge: float) -> Matrix:
    """alpha from its linear equations, then w point by point."""
    n, m = len(x), len(y)
    right = [-sum(row) / (n * m * ridge) for row in literal_kernel(x, y, width).tolist()]
    alpha = np.linalg.solve(literal_kernel(x, x, width) / n + ridge * np.eye(n), np.array(right)).tolist()
    found = []
    for u in points:
        to_x = literal_kernel(u[np.newaxis], x, width)[0].tolist()
        to_y = literal_kernel(u[np.newaxis], y, width)[0].tolist()
        found.append(sum(a * k for a, k in zip(alpha, to_x, strict=True)) + sum(to_y) / (m * ridge))
    return np.array(found)


def objective(w: Ratio, y: Matrix, x: Matrix, ridge: float) -> float:
    """(1/2n) sum w(x_i)^2 - (1/m) sum w(y_j) + (lambda/2) |w|^2, where |w|^2 = c' K c."""
    norm = w.weights @ literal_kernel(w.centres, w.centres, w.width) @ w.weights
    return float((w(x) ** 2).mean() / 2 - w(y).mean() + ridge / 2 * norm)


def around(rng: np.random.Generator, count: int, level: float) -> Bytes:
    """Grey 32 x 32 images: noise around a level."""
    return np.clip(rng.normal(level, 30, (count, 1, 32, 32)), 0, 255).astype(np.uint8)


@settings(deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 6),
    m=st.integers(1, 6),
    dimensions=st.integers(1, 4),
    width=st.floats(0.3, 3),
    ridge=st.floats(0.01, 30),
)
def test_the_ratio_is_the_literal_one(seed: int, n: int, m: int, dimensions: int, width: float, ridge: float) -> None:
    rng = np.random.default_rng(seed)
    x, y, points = (rng.normal(size=(count, dimensions)) for count in (n, m, 5))
    found = kulsif(y, x, width, ridge)(points)
    assert np.allclose(found, literal_ratio(y, x, points, width, ridge), rtol=1e-7, atol=1e-9)


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), scale=st.sampled_from([1e-3, 1e-1, 10.0]), ridge=st.sampled_from([0.03, 0.5, 4.0]))
def test_no_other_sum_of_kernels_has_a_lower_objective(seed: int, scale: float, ridge: float) -> None:
    rng = np.random.default_rng(seed)
    x, y, elsewhere = (rng.normal(size=(count, 2)) for count in (6, 5, 3))
    found = kulsif(y, x, 0.8, ridge)
    # Kernels around points that are no sample are tried too: none of them may help.
    wider = replace(
        found, centres=np.concatenate((found.centres, elsewhere)), weights=np.concatenate((found.weights, np.zeros(3)))
    )
    moved = replace(wider, weights=wider.weights + rng.normal(scale=scale, size=14))
    assert objective(moved, y, x, ridge) > objective(found, y, x, ridge)


def test_the_ratio_of_two_gaussians_is_nearer_to_the_truth_than_any_constant() -> None:
    rng = np.random.default_rng(5)
    y, x = rng.normal(0.5, 0.6, (300, 1)), rng.normal(0, 1, (300, 1))
    points = np.linspace(-2, 2, 81)[:, np.newaxis]
    truth = (np.exp(-((points - 0.5) ** 2) / (2 * 0.36)) / 0.6 / np.exp(-(points**2) / 2))[:, 0]
    found = kulsif(y, x, 0.5, 300**-0.9)(points)
    assert ((found - truth) ** 2).mean() < 0.1 * truth.var()


def test_a_large_ridge_leaves_the_mean_kernel_around_the_numerator() -> None:
    rng = np.random.default_rng(0)
    x, y, points = (rng.normal(size=(count, 2)) for count in (7, 5, 9))
    found = 1e6 * kulsif(y, x, 1.0, 1e6)(points)
    assert np.allclose(found, literal_kernel(points, y, 1.0).mean(axis=1), rtol=1e-4)


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), dimensions=st.integers(1, 50), shift=st.sampled_from([0.0, 1e3]))
def test_a_kernel_is_symmetric_with_ones_on_the_diagonal_and_never_above(
    seed: int, dimensions: int, shift: float
) -> None:
    rng = np.random.default_rng(seed)
    # Points far from the origin: what is left of |a|^2 + |b|^2 - 2ab is then mostly rounding.
    a, b = (shift + rng.normal(size=(count, dimensions)) for count in (6, 4))
    assert np.allclose(kernel(a, b, 1.5), kernel(b, a, 1.5).T, rtol=1e-6, atol=1e-12)
    among = kernel(a, a, 1.5)
    assert np.allclose(np.diag(among), 1, atol=1e-6) and among.max() <= 1


def test_opposite_images_still_have_an_order() -> None:
    black, white = np.full((1, 3072), -1.0), np.full((1, 3072), 1.0)
    assert 0 < kernel(black, white, 5.0)[0, 0] < kernel(black, 0.99 * white, 5.0)[0, 0]


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 700])
def test_points_in_parts_have_the_ratio_that_each_has_alone(count: int) -> None:
    rng = np.random.default_rng(1)
    ratio = kulsif(rng.normal(size=(5, 3)), rng.normal(size=(6, 3)), 1.0, 0.2)
    points = rng.normal(size=(count, 3))
    alone = np.array([ratio(point[np.newaxis])[0] for point in points])
    assert ratio(points).shape == (count,) and np.allclose(ratio(points), alone, rtol=1e-9, atol=1e-12)


def test_bytes_are_scaled_to_the_range_of_the_auxiliary_points() -> None:
    image = np.zeros((2, 1, 32, 32), np.uint8)
    image[1] = 255
    found = pixels(image)
    assert found.shape == (2, 1024) and (found[0] == -1).all() and (found[1] == 1).all()


def test_floats_are_taken_as_they_are() -> None:
    images = np.random.default_rng(0).normal(size=(2, 3, 32, 32)).astype(np.float32)
    assert np.array_equal(pixels(images), images.reshape(2, -1).astype(np.float64))


@pytest.mark.parametrize("shape", [(5,), (7, 5), (2, 3, 4, 5)])
def test_inputs_that_are_not_images_are_points_as_they_are(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    floats, tokens = rng.normal(size=(6, *shape)).astype(np.float32), rng.integers(0, 1000, (6, *shape))
    for inputs in (floats, tokens):
        assert np.array_equal(pixels(inputs), inputs.reshape(6, -1).astype(np.float64))
    inputs = rng.integers(0, 256, (6, *shape), np.uint8)
    np.testing.assert_allclose(pixels(inputs), inputs.reshape(6, -1) / 127.5 - 1)


def test_rows_like_the_private_ones_are_accepted_and_rows_far_from_them_are_not() -> None:
    rng = np.random.default_rng(0)
    private, near, far = (rng.normal(level, 0.1, (200, 6)).astype(np.float32) for level in (0, 0, 3))
    accepted = in_distribution(private, np.concatenate([near, far]), rng)
    assert accepted[:200].mean() > 0.9 and accepted[200:].mean() < 0.1


@pytest.mark.parametrize("side", [28, 64])
def test_another_size_is_resized_as_pillow_resizes(side: int) -> None:
    image = np.random.default_rng(0).integers(0, 256, (side, side), dtype=np.uint8)
    expected = np.asarray(Image.fromarray(image).resize((32, 32), Image.Resampling.BILINEAR), np.float64)
    found = (pixels(image[np.newaxis, np.newaxis]).reshape(32, 32) + 1) * 127.5
    assert np.abs(found - expected).max() < 1.01  # Pillow rounds to bytes, once for each axis


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), count=st.integers(20, 60), fitted=st.floats(0.05, 0.9), tau=st.floats(0, 1))
def test_of_what_is_held_out_all_but_tau_passes(seed: int, count: int, fitted: float, tau: float) -> None:
    rng = np.random.default_rng(seed)
    private = rng.integers(0, 256, (count, 1, 32, 32), dtype=np.uint8)
    passed = in_distribution(private, private, rng, threshold=tau, used_share=1, fitted_share=fitted)
    # Images of noise lie far apart, so what was fitted is much nearer to itself than to all others, and passes.
    in_fit = max(1, int(fitted * count))
    held_out = count - in_fit
    assert abs((passed.sum() - in_fit) / held_out - (1 - tau)) <= 1 / held_out + 1e-12


def test_threshold_0_accepts_all_that_was_held_out_and_threshold_1_the_best_of_it() -> None:
    private = np.random.default_rng(0).integers(0, 256, (40, 1, 32, 32), dtype=np.uint8)
    counts = [
        in_distribution(private, private, np.random.default_rng(7), threshold=tau, used_share=1, fitted_share=0.5).sum()
        for tau in (0.0, 1.0)
    ]
    assert counts == [40, 21]


@pytest.mark.parametrize(
    ("count", "everything"), [(0, True), (1, True), (2, True), (3, True), (4, False), (5, False), (9, False)]
)
def test_a_client_that_can_hold_no_image_out_accepts_everything(count: int, everything: bool) -> None:
    rng = np.random.default_rng(2)
    private = around(rng, count, 60)
    public = np.concatenate((around(rng, 5, 60), around(rng, 5, 250)))
    passed = in_distribution(private, public, rng)
    assert passed.dtype == np.bool_ and passed.shape == (10,)
    assert passed.all() == everything


def test_an_empty_public_set_gives_an_empty_mask() -> None:
    rng = np.random.default_rng(0)
    assert in_distribution(around(rng, 8, 60), around(rng, 0, 60), rng).shape == (0,)


def test_a_client_of_two_digits_accepts_those_more_often_than_others_and_noise_never() -> None:
    images, labels = load_digits(return_X_y=True)
    images = np.clip(images.reshape(-1, 1, 8, 8) * 16, 0, 255).astype(np.uint8)
    own = np.flatnonzero(labels < 2)
    noise = np.random.default_rng(0).integers(0, 256, (200, 1, 32, 32), dtype=np.uint8)
    private, same, other = images[own[:200]], images[own[200:]], images[labels >= 2]
    rng = stream(0, "client", client=0, purpose="prepare")
    passed = in_distribution(private, np.concatenate((same, other)), rng)
    assert passed[: len(same)].mean() > 0.75 > 0.25 > passed[len(same) :].mean()
    assert not in_distribution(private, noise, rng).any()


def test_on_pixels_neither_the_ridge_nor_the_auxiliary_points_change_the_mask() -> None:
    rng = np.random.default_rng(0)
    private, public = around(rng, 60, 120), around(rng, 400, 118)
    usual = in_distribution(private, public, np.random.default_rng(1))
    assert 0 < usual.sum() < 400
    assert np.array_equal(usual, in_distribution(private, public, np.random.default_rng(1), ridge_exponent=-0.5))
    assert np.array_equal(usual, in_distribution(private, public, np.random.default_rng(1), auxiliary=1))


def test_the_mask_follows_from_the_stream_and_each_sample_is_judged_alone() -> None:
    rng = np.random.default_rng(0)
    private, public = around(rng, 60, 120), np.concatenate((around(rng, 300, 120), around(rng, 300, 118)))

    def mask(client: int, public: Bytes) -> npt.NDArray[np.bool_]:
        return in_distribution(private, public, stream(0, "client", client=client, purpose="prepare"), threshold=0.25)

    assert np.array_equal(mask(0, public), mask(0, public))
    assert not np.array_equal(mask(0, public), mask(1, public))
    order = rng.permutation(600)
    assert np.array_equal(mask(0, public)[order], mask(0, public[order]))


def test_bytes_and_the_floats_they_stand_for_give_one_mask() -> None:
    rng = np.random.default_rng(0)
    private, public = around(rng, 40, 120), around(rng, 100, 120)
    as_floats = [(images / 127.5 - 1).astype(np.float32) for images in (private, public)]
    of_bytes = in_distribution(private, public, np.random.default_rng(1))
    assert np.array_equal(of_bytes, in_distribution(as_floats[0], as_floats[1], np.random.default_rng(1)))
    assert 0 < of_bytes.sum() < 100


@pytest.mark.parametrize("original", [False, True])
def test_500_private_images_are_shared_out_as_the_authors_do(monkeypatch: pytest.MonkeyPatch, original: bool) -> None:
    fitted: list[tuple[int, int, float, float]] = []

    def watched(numerator: Matrix, denominator: Matrix, width: float, ridge: float) -> Ratio:
        assert -1 <= denominator.min() < -0.99 and 0.99 < denominator.max() <= 1
        fitted.append((len(numerator), len(denominator), width, ridge))
        return kulsif(numerator, denominator, width, ridge)

    monkeypatch.setattr(module, "kulsif", watched)
    rng = np.random.default_rng(0)
    private, public = around(rng, 500, 120), around(rng, 10, 120)
    if original:
        in_distribution(
            private, public, rng, threshold=0.25, ridge_exponent=-0.5, used_share=1, fitted_share=0.05, auxiliary=250
        )
    else:
        in_distribution(private, public, rng)
    assert fitted == [(25, 250, 5.0, 500**-0.5) if original else (225, 250, 5.0, 500**0.5)]


def test_memory_stays_bounded_however_many_public_samples_there_are() -> None:
    rng = np.random.default_rng(0)
    private = rng.integers(0, 256, (500, 3, 32, 32), dtype=np.uint8)
    public = rng.integers(0, 256, (3_000, 3, 32, 32), dtype=np.uint8)
    peaks = []
    for count in (600, 3_000):
        tracemalloc.start()
        in_distribution(private, public[:count], np.random.default_rng(1))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # As float64 all at once, 3,000 images are 74 MB; the differences of 225 from 250 points would be 1,400 MB.
    assert max(peaks) < 48e6
    assert peaks[1] - peaks[0] < 1e6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": -0.1}, "threshold must be 0 to 1, got -0.1"),
        ({"threshold": 1.1}, "threshold must be 0 to 1, got 1.1"),
        ({"threshold": float("nan")}, "threshold must be 0 to 1, got nan"),
        ({"used_share": 0.0}, "used_share must be more than 0 and at most 1, got 0.0"),
        ({"fitted_share": 1.5}, "fitted_share must be more than 0 and at most 1, got 1.5"),
        ({"width": 0.0}, "width must be more than 0, got 0.0"),
    ],
)
def test_a_constant_outside_its_range_is_refused(options: dict[str, float], message: str) -> None:
    rng = np.random.default_rng(0)
    images = around(rng, 8, 60)
    with pytest.raises(ConfigError, match=f"^{message}"):
        in_distribution(images, images, rng, **options)  # type: ignore[arg-type]


def test_no_auxiliary_point_and_no_ridge_are_refused() -> None:
    rng = np.random.default_rng(0)
    images, points = around(rng, 8, 60), rng.normal(size=(3, 2))
    with pytest.raises(ConfigError, match=r"^auxiliary must be 1 or more, got 0"):
        in_distribution(images, images, rng, auxiliary=0)
    with pytest.raises(ConfigError, match=r"^ridge must be more than 0, got 0"):
        kulsif(points, points, 1.0, 0)
