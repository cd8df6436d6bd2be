"""Batched k-means against every partition there is, against literal sums, and against scikit-learn."""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from scarlet.arrays import Mask, Values
from scarlet.methods.parts import kmeans
from scarlet.methods.parts.kmeans import Clusters, cluster

PROFILE = settings(deadline=None, max_examples=60)
KINDS = ("even", "mixed", "peaked", "certain", "clients", "repeated")

Point = npt.NDArray[np.float64]


def soft_labels(kind: str, samples: int, size: int, classes: int, seed: int) -> Values:
    """Soft-labels of `size` clients: Dirichlet rows, nearly one-hot, of clients that know few classes, or repeated."""
    rng = np.random.default_rng(seed)
    if kind in ("even", "mixed", "peaked"):
        share = {"even": 5.0, "mixed": 0.5, "peaked": 0.05}[kind]
        return rng.dirichlet(np.full(classes, share), (samples, size)).astype(np.float32)
    if kind == "repeated":
        few = rng.dirichlet(np.full(classes, 0.3), (samples, max(2, size // 4)))
        return np.take_along_axis(few, rng.integers(0, few.shape[1], (samples, size, 1)), axis=1).astype(np.float32)
    score = rng.normal(size=(samples, size, classes))
    if kind == "certain":
        score += 10 * np.eye(classes)[rng.integers(0, classes, (samples, size))]
    else:
        known = rng.random((size, classes)) < 0.3
        true = np.eye(classes)[rng.integers(0, classes, samples)]
        score += 4 * known + 5 * known * true[:, np.newaxis]
    power = np.exp(score)
    power /= power.sum(axis=2, keepdims=True)
    return np.asarray(power, np.float32)


def some_present(samples: int, size: int, seed: int) -> Mask:
    rng = np.random.default_rng(seed)
    present = rng.random((samples, size)) < 0.8
    present[np.arange(samples), rng.integers(0, size, samples)] = True
    return present


def everyone(points: Values) -> Mask:
    return np.ones(points.shape[:2], np.bool_)


def literal_inertia(points: list[Point], members: tuple[int, ...]) -> float:
    """Cluster by cluster and point by point, about the mean of the members."""
    total = 0.0
    for number in set(members):
        inside = [point for point, member in zip(points, members, strict=True) if member == number]
        mean = sum(inside) / len(inside)
        total += sum(float(((point - mean) ** 2).sum()) for point in inside)
    return total


def least_inertia(points: list[Point], clusters: int) -> float:
    """Of all partitions; the first point may as well be in the first cluster."""
    others = itertools.product(range(clusters), repeat=len(points) - 1)
    return min(literal_inertia(points, (0, *rest)) for rest in others)


def scikit_learn(points: Values, clusters: int, starts: int) -> float:
    """The sum over the samples of the inertia that a fit for each of them finds."""
    model = KMeans(clusters, init="k-means++", n_init=starts, random_state=0)
    return math.fsum(float(model.fit(sample.astype(np.float64)).inertia_) for sample in points)


def same(one: Clusters, other: Clusters) -> bool:
    return all(getattr(one, name).tobytes() == getattr(other, name).tobytes() for name in one._fields)


def assert_sound(found: Clusters, points: Values, present: Mask, clusters: int) -> None:
    """Members, centres and inertia fit together, and no point is better off elsewhere."""
    assert found.centre.dtype == np.float32 and found.centre.shape == (len(points), clusters, points.shape[2])
    assert found.member.dtype == np.int64 and found.inertia.dtype == np.float64
    assert np.isfinite(found.centre).all() and np.isfinite(found.inertia).all()
    assert ((found.member == -1) == ~present).all()
    for sample, here in enumerate(present):
        members = found.member[sample, here].tolist()
        real = list(points[sample, here].astype(np.float64))
        scale = sum(float(((point - np.mean(real, axis=0)) ** 2).sum()) for point in real)
        mean = {c: np.mean([p for p, m in zip(real, members, strict=True) if m == c], axis=0) for c in set(members)}
        for number in range(clusters):
            centre = found.centre[sample, number]
            if number in mean:
                assert np.allclose(centre, mean[number], rtol=0, atol=1e-7)
            else:
                assert any(np.array_equal(centre, found.centre[sample, other]) for other in mean)
        assert found.inertia[sample] == pytest.approx(literal_inertia(real, tuple(members)), rel=1e-6, abs=1e-12)
        for point, own in zip(real, members, strict=True):
            size = members.count(own)
            saved = size / (size - 1) * ((point - mean[own]) ** 2).sum() if size > 1 else 0.0
            for other in set(members) - {own}:
                assert ((point - mean[own]) ** 2).sum() <= ((point - mean[other]) ** 2).sum() + 1e-9 * scale
                cost = members.count(other) / (members.count(other) + 1) * ((point - mean[other]) ** 2).sum()
                assert saved <= cost + 1e-9 * scale
            if len(mean) < clusters:
                assert saved <= 1e-9 * scale


@pytest.mark.parametrize(("clusters", "size"), [(2, 8), (3, 7)])
def test_the_inertia_is_nearly_always_the_least_of_all_partitions_and_never_below_it(clusters: int, size: int) -> None:
    points = np.concatenate([soft_labels(kind, 10, size, 4, seed=size) for kind in KINDS])
    found = cluster(points, everyone(points), clusters)
    least = np.array([least_inertia(list(sample.astype(np.float64)), clusters) for sample in points])
    assert (found.inertia >= least * (1 - 1e-9) - 1e-12).all()
    assert np.mean(found.inertia <= least * (1 + 1e-6) + 1e-12) >= 0.95


@pytest.mark.parametrize("kind", KINDS)
@PROFILE
@given(
    seed=st.integers(0, 10_000),
    size=st.integers(1, 14),
    classes=st.integers(2, 6),
    clusters=st.integers(1, 4),
    starts=st.integers(1, 5),
)
def test_members_centres_and_inertia_are_the_literal_ones(
    kind: str, seed: int, size: int, classes: int, clusters: int, starts: int
) -> None:
    points = soft_labels(kind, 3, size, classes, seed)
    present = some_present(3, size, seed)
    found = cluster(points, present, clusters, starts)
    assert_sound(found, points, present, clusters)
    assert (found.centre >= 0).all() and np.allclose(found.centre.sum(axis=2), 1, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("starts", [1, 4, 10])
def test_the_inertia_is_no_worse_than_scikit_learns_with_as_many_starts(kind: str, starts: int) -> None:
    for clusters, size, classes in [(2, 60, 10), (3, 30, 10), (4, 20, 20)]:
        points = soft_labels(kind, 20, size, classes, seed=clusters)
        ours = math.fsum(cluster(points, everyone(points), clusters, starts).inertia)
        assert ours <= scikit_learn(points, clusters, starts) * (1 + 1e-9)


@PROFILE
@given(seed=st.integers(0, 10_000), kind=st.sampled_from(KINDS), clusters=st.integers(1, 4), split=st.integers(0, 6))
def test_a_samples_clusters_do_not_depend_on_the_other_samples(seed: int, kind: str, clusters: int, split: int) -> None:
    points, present = soft_labels(kind, 6, 12, 5, seed), some_present(6, 12, seed)
    whole = cluster(points, present, clusters)
    parts = [cluster(points[part], present[part], clusters) for part in (slice(split), slice(split, None))]
    joined = (np.concatenate([getattr(part, name) for part in parts]) for name in Clusters._fields)
    assert same(whole, Clusters(*joined))


def test_the_size_of_the_blocks_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    points = soft_labels("mixed", 9, 12, 5, seed=1)
    whole = cluster(points, everyone(points), 3)
    for block in (1, 8 * 12 * 12 * 4):
        monkeypatch.setattr(kmeans, "BLOCK", block)
        assert same(whole, cluster(points, everyone(points), 3))


@PROFILE
@given(seed=st.integers(0, 10_000), kind=st.sampled_from(KINDS), clusters=st.integers(1, 4), starts=st.integers(1, 5))
def test_the_order_of_the_clients_does_not_matter(seed: int, kind: str, clusters: int, starts: int) -> None:
    points, present = soft_labels(kind, 50, 24, 9, seed), some_present(50, 24, seed)
    order = np.random.default_rng(seed).permutation(24)
    found = cluster(points, present, clusters, starts)
    other = cluster(points[:, order], present[:, order], clusters, starts)
    assert np.allclose(found.inertia, other.inertia, rtol=1e-6, atol=1e-12)


@PROFILE
@given(seed=st.integers(0, 10_000), kind=st.sampled_from(KINDS), clusters=st.integers(2, 4), starts=st.integers(1, 6))
def test_another_start_never_hurts(seed: int, kind: str, clusters: int, starts: int) -> None:
    points = soft_labels(kind, 4, 15, 5, seed)
    fewer, more = (cluster(points, everyone(points), clusters, count).inertia for count in (starts, starts + 1))
    assert (more <= fewer * (1 + 1e-6) + 1e-12).all()


@PROFILE
@given(seed=st.integers(0, 10_000), size=st.integers(1, 9))
def test_one_cluster_is_the_mean(seed: int, size: int) -> None:
    points, present = soft_labels("mixed", 4, size, 5, seed), some_present(4, size, seed)
    found = cluster(points, present, 1)
    for sample, here in enumerate(present):
        assert np.allclose(found.centre[sample, 0], points[sample, here].mean(axis=0), rtol=0, atol=1e-7)
    assert (found.member == np.where(present, 0, -1)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_absent_points_count_for_nothing_whatever_they_hold(kind: str) -> None:
    points, present = soft_labels(kind, 5, 12, 4, seed=3), some_present(5, 12, seed=3)
    plain = cluster(points, present, 3)
    for false in (np.nan, np.inf, 1e30):
        assert same(plain, cluster(np.where(present[..., np.newaxis], points, np.float32(false)), present, 3))
    for sample, here in enumerate(present):
        alone = cluster(points[[sample]][:, here], present[[sample]][:, here], 3)
        assert alone.inertia[0] == pytest.approx(plain.inertia[sample], rel=1e-6)


@pytest.mark.parametrize("clusters", [2, 3, 4])
def test_fewer_distinct_points_than_clusters_are_each_a_centre(clusters: int) -> None:
    distinct = soft_labels("mixed", 6, clusters - 1, 5, seed=clusters)
    points = np.tile(distinct, (1, 5, 1))
    present = everyone(points)
    present[:, 4 * (clusters - 1) :] = False
    found = cluster(points, present, clusters)
    assert_sound(found, points, present, clusters)
    assert (found.inertia == 0).all()
    for sample in range(6):
        assert {row.tobytes() for row in found.centre[sample]} == {row.tobytes() for row in distinct[sample]}


@pytest.mark.parametrize("size", [1, 7])
def test_equal_points_are_all_the_centres(size: int) -> None:
    points = np.full((2, size, 3), 1 / 3, np.float32)
    found = cluster(points, everyone(points), 4)
    assert (found.centre == points[:, :1]).all() and (found.inertia == 0).all()
    assert len(set(found.member.ravel().tolist())) == 1


def test_groups_of_nearly_certain_labels_are_told_apart() -> None:
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, (50, 20))
    group[:, :2] = 0, 1
    rest = np.where(group, 3e-5, 1e-5) + rng.uniform(0, 1e-7, group.shape)
    points = np.stack([1 - rest, rest, np.zeros_like(rest)], axis=2).astype(np.float32)
    found = cluster(points, everyone(points), 2, starts=1)
    assert ((found.member == found.member[:, :1]) == (group == 0)).all()


def test_no_sample_leaves_nothing() -> None:
    found = cluster(np.empty((0, 5, 3), np.float32), np.empty((0, 5), np.bool_), 2)
    assert (found.centre.shape, found.member.shape, found.inertia.shape) == ((0, 2, 3), (0, 5), (0,))
    assert found.centre.dtype == np.float32 and found.member.dtype == np.int64 and found.inertia.dtype == np.float64
