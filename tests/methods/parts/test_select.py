from __future__ import annotations

import numpy as np
import pytest

from scarlet.methods.cfd import fixed
from scarlet.rng import stream


def test_the_samples_are_the_same_in_every_round_of_every_run() -> None:
    draws = {fixed(stream(seed, "server", round=seed), 1000, 50).tobytes() for seed in range(20)}
    assert len(draws) == 1


def test_the_rounds_own_generator_is_left_as_it_was() -> None:
    rng, untouched = stream(3, "server"), stream(3, "server")
    fixed(rng, 100, 10)
    assert rng.integers(2**62) == untouched.integers(2**62)


@pytest.mark.parametrize(("population", "size"), [(1, 1), (10, 10), (100, 0), (1000, 300)])
def test_so_many_different_samples_are_drawn_in_ascending_order(population: int, size: int) -> None:
    index = fixed(stream(0, "server"), population, size)
    assert index.dtype == np.int64
    assert index.tolist() == sorted(set(index.tolist()))
    assert len(index) == size
    assert all(0 <= sample < population for sample in index.tolist())


def test_the_samples_come_from_all_over_the_public_set() -> None:
    quarters = np.bincount(fixed(stream(0, "server"), 10_000, 1000) // 2500)
    assert quarters.min() > 200


def test_a_larger_subset_contains_a_smaller_one() -> None:
    smaller, larger = (set(fixed(stream(0, "server"), 500, size).tolist()) for size in (40, 90))
    assert smaller < larger
