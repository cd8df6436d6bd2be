from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from types import SimpleNamespace
from typing import cast

import numpy as np
import numpy.typing as npt
import pytest

from scarlet.rng import draw, stream


@dataclass(frozen=True)
class Name:
    seed: int = 0
    role: str = "client"
    client: int = 1
    round: int = 1
    attempt: int = 0
    purpose: str = "fit"

    def words(self) -> list[int]:
        generator = stream(
            self.seed,
            self.role,
            client=self.client,
            round=self.round,
            attempt=self.attempt,
            purpose=self.purpose,
        )
        return [int(word) for word in generator.bit_generator.random_raw(4)]


# Each differs from the first in one part, or holds the same digits in other places.
NAMES = [
    Name(),
    Name(seed=1),
    Name(role="server"),
    Name(client=2),
    Name(round=2),
    Name(attempt=1),
    Name(purpose="distil"),
    Name(client=11, round=1),
    Name(client=1, round=11),
    Name(seed=11, client=1),
    Name(client=-1),
]


def literal_draw(words: npt.NDArray[np.uint64], size: int) -> list[int]:
    """The definition: sort the indices by their words, the lower index first among equals, and keep the first."""
    return sorted(np.argsort(words, kind="stable")[:size].tolist())


def test_a_stream_of_the_same_name_gives_the_same_words() -> None:
    for name in NAMES:
        assert name.words() == name.words()


def test_streams_of_different_names_differ() -> None:
    for a, b in combinations(NAMES, 2):
        assert not set(a.words()) & set(b.words()), (a, b)


def test_streams_that_are_used_in_turn_do_not_disturb_each_other() -> None:
    alone = stream(0, "client", client=1).random(6)
    a, b = stream(0, "client", client=1), stream(0, "client", client=2)
    mixed = []
    for _ in range(6):
        mixed.append(a.random())
        b.random(3)
    assert mixed == alone.tolist()


def test_the_words_and_the_draw_of_one_named_stream_are_frozen() -> None:
    words = stream(7, "server", round=3, purpose="select").bit_generator.random_raw(2)
    assert words.tolist() == [4697339389241695537, 48823553648369213]
    drawn = draw(stream(7, "server", round=3, purpose="select"), 1000, 12)
    assert drawn.tolist() == [1, 16, 34, 86, 192, 248, 285, 784, 800, 835, 979, 992]


def test_a_draw_is_ascending_without_repetition_and_in_range() -> None:
    for population in range(1, 40):
        for size in range(population + 1):
            drawn = draw(stream(population, "draw", round=size), population, size)
            assert drawn.dtype == np.int64
            assert len(drawn) == size
            assert all(np.diff(drawn) > 0)
            assert all((drawn >= 0) & (drawn < population))


def test_a_draw_keeps_the_indices_of_the_smallest_words() -> None:
    for seed in range(300):
        rng = np.random.default_rng(seed)
        population = int(rng.integers(1, 60))
        size = int(rng.integers(0, population + 1))
        words = stream(seed, "draw").bit_generator.random_raw(population)
        assert draw(stream(seed, "draw"), population, size).tolist() == literal_draw(words, size)


def test_a_draw_takes_the_lower_index_among_equal_words() -> None:
    for seed in range(300):
        rng = np.random.default_rng(seed)
        population = int(rng.integers(1, 20))
        size = int(rng.integers(0, population + 1))
        words = rng.integers(0, 3, population, dtype=np.uint64)  # equals everywhere, and zeros among them
        source = SimpleNamespace(bit_generator=SimpleNamespace(random_raw=lambda count, words=words: words[:count]))
        assert draw(cast(np.random.Generator, source), population, size).tolist() == literal_draw(words, size)


@pytest.mark.parametrize(("population", "size"), [(50, 10), (12, 11)])
def test_draws_are_uniform_over_samples_and_over_pairs(population: int, size: int) -> None:
    draws, rng = 6_000, stream(1, "uniform")
    together = np.zeros((population, population))
    for _ in range(draws):
        drawn = draw(rng, population, size)
        together[np.ix_(drawn, drawn)] += 1
    share = size / population
    pair_share = share * (size - 1) / (population - 1)
    counts, pairs = np.diag(together), together[np.triu_indices(population, 1)]
    # Five standard deviations: with this fixed seed a fair draw is within them, and a lean to either side is not.
    assert np.abs(counts - draws * share).max() < 5 * np.sqrt(draws * share * (1 - share))
    assert np.abs(pairs - draws * pair_share).max() < 5 * np.sqrt(draws * pair_share * (1 - pair_share))
    # The count of a sample varies as without replacement, neither more nor less: chi-square of population - 1 degrees.
    statistic = ((counts - draws * share) ** 2).sum() / (draws * share * (1 - share)) * (population - 1) / population
    assert abs(statistic - (population - 1)) < 4 * np.sqrt(2 * (population - 1))
