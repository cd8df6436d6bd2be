"""COMET's aggregate against a literal clustering of each sample: every partition of the clients that answered it."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scarlet.arrays import Labels, Values
from scarlet.errors import ConfigError
from scarlet.methods.parts.clusters import clustered
from scarlet.methods.parts.mean import mean
from scarlet.protocol.aggregation import Teachers

PROFILE = settings(deadline=None, max_examples=60)
STARTS = 4
Point = npt.NDArray[np.float64]
Answers = dict[int, Labels]


def answers(seed: int, clients: int, samples: int = 6, classes: int = 3, share: float = 1.0) -> Answers:
    """Of clients with numbers that have gaps; each answers its own share of the samples 0, 3, 6, ..."""
    rng = np.random.default_rng(seed)
    found = {}
    for client in range(clients):
        index = np.flatnonzero(rng.random(samples) < share) * 3
        found[5 * client + 2] = Labels(index, rng.dirichlet([0.4] * classes, len(index)).astype(np.float32))
    return found


def aggregate(given: Answers, clusters: int, samples: int = 6, classes: int = 3) -> Teachers:
    aggregation = clustered(clusters, STARTS)(3 * np.arange(samples), classes)
    for client, labels in given.items():
        aggregation.add(client, labels)
    found = aggregation.finish()
    assert isinstance(found, Teachers)
    return found


def of(given: Answers, sample: int) -> dict[int, Point]:
    """Who answered a sample, and what."""
    return {
        client: labels.value[labels.index == sample][0].astype(np.float64)
        for client, labels in given.items()
        if sample in labels.index
    }


def inertia(points: list[Point], members: tuple[int, ...]) -> float:
    total = 0.0
    for number in set(members):
        own = [point for point, member in zip(points, members, strict=True) if member == number]
        centre = sum(own, np.zeros_like(own[0])) / len(own)
        total += sum(float(((point - centre) ** 2).sum()) for point in own)
    return total


def least_inertia(points: list[Point], clusters: int) -> float:
    return min(inertia(points, members) for members in product(range(clusters), repeat=len(points)))


@pytest.mark.parametrize("clusters", [1, 2, 3])
@pytest.mark.parametrize("clients", [1, 2, 3, 5])
def test_each_sample_is_clustered_as_well_as_by_trying_every_partition_of_who_answered_it(
    clients: int, clusters: int
) -> None:
    for seed in range(25):
        given = answers(seed, clients, share=0.8)
        found = aggregate(given, clusters)
        for row, sample in enumerate(found.index.tolist()):
            said = of(given, sample)
            members = tuple(int(found.choice[client][row]) for client in said)
            assert set(members) <= set(range(clusters))
            assert inertia(list(said.values()), members) == pytest.approx(
                least_inertia(list(said.values()), clusters), abs=1e-9
            )
            for number, centre in enumerate(found.value[row]):
                own = [point for point, member in zip(said.values(), members, strict=True) if member == number]
                if own:
                    np.testing.assert_allclose(centre, np.mean(own, axis=0), rtol=0, atol=1e-6)


@PROFILE
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 4), st.sampled_from([0.3, 0.7, 1.0]))
def test_a_client_is_assigned_the_centre_nearest_to_its_answer_and_none_where_it_gave_none(
    seed: int, clients: int, clusters: int, share: float
) -> None:
    given = answers(seed, clients, share=share)
    found = aggregate(given, clusters)
    assert set(found.choice) == set(given)
    for client, choice in found.choice.items():
        assert len(choice) == len(found.index)
        for row, sample in enumerate(found.index.tolist()):
            own = of(given, sample).get(client)
            if own is None:
                assert choice[row] == -1
                continue
            distances = [float(((centre - own) ** 2).sum()) for centre in found.value[row]]
            assert distances[choice[row]] == pytest.approx(min(distances), abs=1e-6)


@PROFILE
@given(st.integers(0, 2**32 - 1), st.integers(0, 6), st.integers(1, 4), st.sampled_from([0.0, 0.4, 1.0]))
def test_the_mean_is_the_plain_one_of_the_answers_and_samples_that_nobody_answered_are_left_out(
    seed: int, clients: int, clusters: int, share: float
) -> None:
    given = answers(seed, clients, share=share)
    found = aggregate(given, clusters)
    aggregation = mean()(3 * np.arange(6), 3)
    for client, labels in given.items():
        aggregation.add(client, labels)
    plain = aggregation.finish()
    assert found.index.tolist() == plain.index.tolist() == [i for i in range(0, 18, 3) if of(given, i)]
    assert found.mean.tobytes() == plain.value.tobytes()
    assert found.value.shape == (len(found.index), clusters, 3)
    for row, sample in enumerate(found.index.tolist()):
        literal = np.mean(list(of(given, sample).values()), axis=0)
        np.testing.assert_allclose(found.mean[row], literal, rtol=0, atol=1e-6)


@pytest.mark.parametrize("clusters", [1, 2, 3])
def test_the_order_of_arrival_does_not_matter_to_the_bit(clusters: int) -> None:
    given = answers(30, 5, share=0.8)
    outcomes = set()
    for order in list(permutations(given))[::7]:
        found = aggregate({client: given[client] for client in order}, clusters)
        choice = {client: found.choice[client].tolist() for client in sorted(found.choice)}
        outcomes.add((found.index.tobytes(), found.value.tobytes(), found.mean.tobytes(), str(choice)))
    assert len(outcomes) == 1


def test_one_cluster_teaches_the_plain_mean() -> None:
    found = aggregate(answers(2, 5), clusters=1)
    np.testing.assert_allclose(found.value[:, 0], found.mean, rtol=0, atol=1e-7)


def one_hot(*best: int) -> Values:
    return np.eye(3, dtype=np.float32)[list(best)]


def test_clients_of_two_opinions_are_taught_apart() -> None:
    request = np.array([4, 9])
    aggregation = clustered(2, STARTS)(request, 3)
    for client, best in enumerate([(0, 1), (0, 2), (2, 1), (2, 1)]):
        aggregation.add(client, Labels(request, one_hot(*best)))
    found = aggregation.finish()
    assert isinstance(found, Teachers)
    taught = [[found.value[row, found.choice[client][row]].tolist() for row in (0, 1)] for client in range(4)]
    assert taught == [one_hot(0, 1).tolist(), one_hot(0, 2).tolist(), one_hot(2, 1).tolist(), one_hot(2, 1).tolist()]
    assert found.mean.tolist() == [[0.5, 0, 0.5], [0, 0.75, 0.25]]


def test_teachers_that_nobody_needs_repeat_one_that_somebody_does() -> None:
    request = np.array([4])
    aggregation = clustered(3, STARTS)(request, 3)
    for client in range(4):
        aggregation.add(client, Labels(request, one_hot(1)))
    assert aggregation.finish().value.tolist() == [[[0, 1, 0]] * 3]


@pytest.mark.parametrize("request_size", [0, 4])
def test_a_round_without_answers_gives_no_teachers(request_size: int) -> None:
    found = clustered(2, STARTS)(np.arange(request_size), 3).finish()
    assert isinstance(found, Teachers)
    assert (found.index.shape, found.value.shape, found.mean.shape) == ((0,), (0, 2, 3), (0, 3))
    assert found.choice == {}


@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize("name", ["clusters", "starts"])
def test_fewer_than_one_cluster_or_start_is_a_config_error_of_one_line(name: str, value: int) -> None:
    options = {"clusters": 2, "starts": 4} | {name: value}
    with pytest.raises(ConfigError, match=rf"^{name} must be 1 or more, got {value}; [^\n]+$"):
        clustered(**options)
