from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scarlet.arrays import Labels, Values
from scarlet.methods.parts.clusters import nearest


def distributions(rng: np.random.Generator, *shape: int) -> Values:
    return rng.dirichlet([0.5] * shape[-1], shape[:-1]).astype(np.float32)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**32 - 1), st.integers(0, 6), st.integers(1, 4), st.integers(2, 6))
def test_a_client_takes_of_each_sample_the_teacher_with_the_least_euclidean_distance(
    seed: int, samples: int, teachers: int, classes: int
) -> None:
    rng = np.random.default_rng(seed)
    index = np.sort(rng.choice(50, samples, replace=False)).astype(np.int64)
    several, own = distributions(rng, samples, teachers, classes), distributions(rng, samples, classes)
    taken = nearest(Labels(index, several), own)
    assert taken.index.tolist() == index.tolist()
    assert taken.value.shape == (samples, classes)
    for row, centres, label in zip(taken.value, several, own, strict=True):
        distances = [sum((float(c) - float(z)) ** 2 for c, z in zip(centre, label, strict=True)) for centre in centres]
        best = distances.index(min(distances))
        others = [distance for number, distance in enumerate(distances) if number != best]
        if not others or min(others) - distances[best] > 1e-6:  # otherwise either will do
            assert row.tolist() == centres[best].tolist()
        else:
            assert row.tolist() in centres.tolist()


def test_of_equally_near_teachers_the_first_is_taken() -> None:
    teachers = np.array([[[1, 0], [0, 1]], [[0, 1], [1, 0]]], np.float32)
    taken = nearest(Labels(np.array([2, 5]), teachers), np.full((2, 2), 0.5, np.float32))
    assert taken.value.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("best", [0, 1, 2])
def test_a_client_that_agrees_with_a_teacher_takes_that_one(best: int) -> None:
    teachers = np.eye(3, dtype=np.float32)[np.newaxis]
    assert nearest(Labels(np.array([7]), teachers), teachers[:, best]).value.tolist() == [teachers[0, best].tolist()]
