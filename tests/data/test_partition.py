from __future__ import annotations

import math
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scarlet.arrays import Integers
from scarlet.data.partition import class_counts, partition, split_test
from scarlet.data.partition_figure import partition_figure, totals_in
from scarlet.errors import ConfigError
from scarlet.rng import stream


def generator(seed: int) -> np.random.Generator:
    return stream(seed, "data", purpose="partition")


def one_by_one(labels: Integers, clients: int, alpha: float, rng: np.random.Generator, size: int) -> Integers:
    """The process to the letter, one image after the other: i64[clients, classes] of class counts."""
    left = np.bincount(labels)
    counts = np.zeros((clients, len(left)), np.int64)
    for client in range(clients):
        prior = rng.dirichlet([alpha] * len(left))
        for draw in rng.random(size):
            until = np.cumsum(np.where(left > 0, prior, 0.0))
            if until[-1] == 0:
                until = np.cumsum(left > 0)
            label = np.searchsorted(until, draw * until[-1], side="right")
            left[label] -= 1
            counts[client, label] += 1
    return counts


alphas = st.floats(math.log(0.01), math.log(1000)).map(math.exp)


@settings(max_examples=200, deadline=None)
@given(
    class_sizes=st.lists(st.integers(0, 40), min_size=1, max_size=12).filter(any),
    clients=st.integers(1, 12),
    alpha=alphas,
    seed=st.integers(0, 2**32),
    data=st.data(),
)
def test_shares_are_disjoint_and_of_the_exact_size(
    class_sizes: list[int], clients: int, alpha: float, seed: int, data: st.DataObject
) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(class_sizes)), class_sizes))
    clients = min(clients, len(labels))
    size = data.draw(st.none() | st.integers(1, len(labels) // clients))
    shares = partition(labels, clients, alpha, generator(seed), size)
    together = np.concatenate(shares)
    assert [len(share) for share in shares] == [size or len(labels) // clients] * clients
    assert len(np.unique(together)) == len(together)
    assert together.min() >= 0 and together.max() < len(labels)
    assert all((np.diff(share) > 0).all() for share in shares)


@pytest.mark.parametrize(
    ("alpha", "class_sizes"),
    [(0.05, [60, 60, 60, 60]), (0.3, [60, 60, 60, 60]), (0.3, [150, 60, 20, 10]), (5.0, [60, 60, 60, 60])],
)
def test_partition_follows_the_one_by_one_process_in_distribution(alpha: float, class_sizes: list[int]) -> None:
    """Six clients take all of the images, so that classes run out for the later ones."""
    labels, repeats = np.repeat(np.arange(4), class_sizes), 300
    rng = np.random.default_rng(1)
    slow = np.stack([one_by_one(labels, 6, alpha, rng, 40) for _ in range(repeats)])
    fast = np.stack([class_counts(labels, partition(labels, 6, alpha, generator(i)), 4) for i in range(4 * repeats)])
    for a, b in zip(statistics(slow), statistics(fast), strict=True):
        error = np.sqrt(a.var(0) / len(a) + b.var(0) / len(b)) + 1e-9
        assert (np.abs(a.mean(0) - b.mean(0)) < 4.5 * error).all()


def statistics(counts: Integers) -> list[Integers]:
    """Of i64[repeats, clients, classes]: largest count, number of classes, and count of each class."""
    return [counts.max(2), (counts > 0).sum(2), *np.moveaxis(counts, 2, 0)]


def test_a_prior_is_renormalised_over_the_classes_that_are_left() -> None:
    """Class 0 has one image; the ratio of classes 1 and 2 stays that of the prior."""
    labels = np.array([0] + [1] * 500 + [2] * 500)
    counts = [class_counts(labels, partition(labels, 1, 1.0, generator(i), 300), 3)[0] for i in range(2000)]
    ratio = np.array([count[1] / (count[1] + count[2]) for count in counts])
    assert abs(ratio.mean() - 0.5) < 0.03
    assert abs(ratio.var() - 1 / 12) < 0.01  # a Dirichlet(1, 1, 1) restricted to two classes is uniform


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.3, 1.0, 10.0, 1000.0])
def test_two_images_of_a_client_share_a_class_as_often_as_dirichlet_says(alpha: float) -> None:
    """While no class runs out, the chance is (alpha + 1) / (classes alpha + 1)."""
    labels, clients, size = np.repeat(np.arange(10), 30_000), 1000, 30
    counts = class_counts(labels, partition(labels, clients, alpha, generator(0), size), 10)
    pairs = (counts * (counts - 1)).sum(1) / (size * (size - 1))
    assert abs(pairs.mean() - (alpha + 1) / (10 * alpha + 1)) < 4 * pairs.std() / math.sqrt(clients)


@pytest.mark.parametrize("alpha", [1e-300, 1e-9, 0.01])
def test_no_alpha_is_too_small(alpha: float) -> None:
    labels = np.repeat(np.arange(200), 500)
    assert len(np.unique(np.concatenate(partition(labels, 100, alpha, generator(0))))) == 100_000


def test_a_huge_alpha_gives_everyone_all_classes() -> None:
    labels = np.repeat(np.arange(10), 1000)
    counts = class_counts(labels, partition(labels, 10, 1e6, generator(0), 500), 10)
    assert counts.min() > 20 and counts.max() < 90


def test_the_stream_alone_decides() -> None:
    labels = np.repeat(np.arange(10), 100)
    first, again, other = (partition(labels, 10, 0.3, generator(seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_a_hundred_clients_take_fifty_thousand_images_in_no_time() -> None:
    labels = np.repeat(np.arange(10), 5000)
    start = time.process_time()
    partition(labels, 100, 0.05, generator(0))
    assert time.process_time() - start < 0.5


@pytest.mark.parametrize("alpha", [0.0, -1.0, math.nan, math.inf])
def test_alpha_must_be_positive_and_finite(alpha: float) -> None:
    with pytest.raises(ConfigError, match=rf"^alpha must be more than 0.*, got {alpha}; .*$"):
        partition(np.zeros(10, np.int64), 2, alpha, generator(0))


@pytest.mark.parametrize(
    ("clients", "per_client", "wrong"),
    [
        (0, None, r"^clients must be 1 or more, got 0; "),
        (11, None, r"^clients must be at most 10, .* got 11; "),
        (2, 6, r"^samples_per_client must be from 1 to 5 .* got 6; "),
        (2, 0, r"^samples_per_client must be from 1 to 5 .* got 0; "),
    ],
)
def test_more_than_there_is_cannot_be_shared_out(clients: int, per_client: int | None, wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong):
        partition(np.zeros(10, np.int64), clients, 1.0, generator(0), per_client)


def test_class_counts_are_what_each_client_holds() -> None:
    labels = np.array([0, 1, 1, 2])
    index_lists = [np.array([0, 1, 2]), np.array([3]), np.empty(0, np.int64)]
    assert class_counts(labels, index_lists, 4).tolist() == [[1, 2, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    with pytest.raises(ConfigError, match=r"^labels must be from 0 to 1, got 0 to 2; "):
        class_counts(labels, index_lists, 2)


def test_test_images_follow_the_shares_by_largest_remainder() -> None:
    labels = np.repeat(np.arange(3), 100)
    shares = np.array([[0.29, 0.71, 0.0], [1 / 3, 1 / 3, 1 / 3], [0.005, 0.004, 0.991]])
    counts = class_counts(labels, split_test(labels, shares, 100, generator(0)), 3)
    assert counts.tolist() == [[29, 71, 0], [34, 33, 33], [1, 0, 99]]


@settings(max_examples=100, deadline=None)
@given(
    class_sizes=st.lists(st.integers(0, 30), min_size=2, max_size=8).filter(any),
    clients=st.integers(1, 8),
    per_client=st.integers(1, 40),
    seed=st.integers(0, 2**32),
)
def test_an_image_is_handed_out_again_only_when_its_class_is_exhausted(
    class_sizes: list[int], clients: int, per_client: int, seed: int
) -> None:
    labels = np.repeat(np.arange(len(class_sizes)), class_sizes)
    shares = np.random.default_rng(seed).dirichlet([0.3] * len(class_sizes), clients)
    result = split_test(labels, shares, per_client, generator(seed))
    assert [len(index) for index in result] == [per_client] * clients
    uses = np.bincount(np.concatenate(result), minlength=len(labels))
    for label in np.unique(labels):
        members = uses[labels == label]
        assert members.max() - members.min() <= 1


def test_the_quota_of_a_class_without_test_images_goes_to_the_others() -> None:
    labels = np.repeat([0, 2, 3], 50)
    shares = np.array([[0.2, 0.4, 0.4, 0.0], [0.0, 1.0, 0.0, 0.0]])
    counts = class_counts(labels, split_test(labels, shares, 30, generator(0)), 4)
    assert counts.tolist() == [[10, 0, 20, 0], [10, 0, 10, 10]]


def test_split_test_is_the_same_for_the_same_stream_and_shuffled() -> None:
    labels, shares = np.repeat([0, 1], 50), np.array([[1.0, 0.0]])
    first, again = (split_test(labels, shares, 10, generator(4))[0] for _ in range(2))
    assert np.array_equal(first, again) and first.tolist() != list(range(10))


@pytest.mark.parametrize(
    ("labels", "share", "per_client", "wrong"),
    [
        ([0, 1], [0.5, 0.5], 0, "^per_client must be 1 or more, got 0; "),
        ([], [0.5, 0.5], 1, "^test_labels must not be empty"),
        ([0, 1], [math.nan, 0.5], 1, "^shares must be 0 or more and finite; "),
        ([0, 2], [0.5, 0.5], 1, "^labels must be from 0 to 1, got 0 to 2; "),
    ],
)
def test_split_test_names_what_is_wrong(labels: list[int], share: list[float], per_client: int, wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong):
        split_test(np.array(labels, np.int64), np.array([share]), per_client, generator(0))


@pytest.mark.parametrize(("clients", "classes"), [(10, 10), (1, 1), (30, 200), (250, 10)])
def test_the_picture_is_an_svg_with_its_title(clients: int, classes: int, tmp_path: Path) -> None:
    counts = np.random.default_rng(0).integers(0, 50, (clients, classes))
    path = tmp_path / "partition.svg"
    partition_figure(counts, path, "alpha 0.05")
    assert ElementTree.parse(path).getroot().tag.endswith("svg")
    assert totals_in(path.read_text()) == counts.sum(axis=1).tolist()
    assert "alpha 0.05" in path.read_text()
    assert totals_in(path.read_text()) == counts.sum(axis=1).tolist()


def test_a_picture_has_a_circle_for_each_class_a_client_holds(tmp_path: Path) -> None:
    partition_figure(np.array([[4, 0], [1, 2]]), tmp_path / "partition.svg", "")
    circles = [each.attrib for each in ElementTree.parse(tmp_path / "partition.svg").iter() if "r" in each.attrib]
    areas = np.array([float(each["r"]) ** 2 for each in circles])
    assert np.allclose(areas / areas.max(), [1.0, 0.25, 0.5], atol=1e-2)
    columns, rows = ([float(each[axis]) for each in circles] for axis in ("cx", "cy"))
    assert columns[0] < columns[1] == columns[2] and rows[2] < rows[0] == rows[1]  # classes go upwards


def test_a_large_table_becomes_a_small_picture(tmp_path: Path) -> None:
    counts = np.random.default_rng(0).integers(0, 50, (10_000, 10))
    partition_figure(counts, tmp_path / "partition.svg", "10,000 clients")
    assert (tmp_path / "partition.svg").stat().st_size < 300_000


@settings(max_examples=200, deadline=None)
@given(
    class_sizes=st.lists(st.integers(0, 40), min_size=1, max_size=12).filter(any),
    clients=st.integers(1, 60),
    alpha=alphas,
    seed=st.integers(0, 2**32),
    data=st.data(),
)
def test_shared_images_come_once_to_a_client_and_as_often_as_others_of_their_class(
    class_sizes: list[int], clients: int, alpha: float, seed: int, data: st.DataObject
) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(class_sizes)), class_sizes))
    size = data.draw(st.integers(1, len(labels)))
    shares = partition(labels, clients, alpha, generator(seed), size, shared=True)
    assert [len(np.unique(share)) for share in shares] == [size] * clients
    assert all((np.diff(share) > 0).all() for share in shares)
    holders = np.bincount(np.concatenate(shares), minlength=len(labels))
    for label in np.unique(labels):
        assert np.ptp(holders[labels == label]) <= 1


def test_what_is_refused_without_sharing_names_it_as_a_remedy() -> None:
    labels = np.repeat(np.arange(4), 25)
    for clients, size in ((10, 11), (101, None)):
        with pytest.raises(ConfigError, match="share_images"):
            partition(labels, clients, 1.0, generator(0), size)
    assert len(partition(labels, 10, 1.0, generator(0), 11, shared=True)) == 10
    assert len(partition(labels, 101, 1.0, generator(0), 1, shared=True)) == 101


@pytest.mark.parametrize("size", [0, 101])
def test_a_client_cannot_hold_more_images_than_there_are_even_if_they_are_shared(size: int) -> None:
    with pytest.raises(ConfigError, match=f"samples_per_client must be from 1 to 100, .* got {size}"):
        partition(np.repeat(np.arange(4), 25), 10, 1.0, generator(0), size, shared=True)
