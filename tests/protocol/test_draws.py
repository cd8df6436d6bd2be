"""Which samples a round draws, against the generator's definition and frozen examples."""

from __future__ import annotations

from hashlib import blake2b

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scarlet.arrays import Index
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.cache import NoCache
from scarlet.protocol.stamps import Draws
from scarlet.rng import draw, stream

# The generator by its definition: Philox-4x64-10 of Salmon et al. (SC 2011).
MULTIPLY = 0xD2E7470EE14C6C93, 0xCA5A826395121157
RAISE = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
WORD = 2**64


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """The four words of a counter under a key."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = divmod(MULTIPLY[0] * c0, WORD)
        high1, low1 = divmod(MULTIPLY[1] * c2, WORD)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + RAISE[0]) % WORD, (k1 + RAISE[1]) % WORD
    return c0, c1, c2, c3


def words(seed: int, round: int, attempt: int, count: int) -> list[int]:
    """The first words of the stream that draws a round's samples; its counter begins with 1."""
    name = f"{seed}/server/-1/{round}/{attempt}/select".encode()
    key = blake2b(name, digest_size=16).digest()
    halves = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    found: list[int] = []
    while len(found) < count:
        found += philox((1 + len(found) // 4, 0, 0, 0), halves)
    return found[:count]


def literal_draw(seed: int, round: int, attempt: int, population: int, size: int) -> list[int]:
    """The indices of the smallest words, the lower first among equals."""
    drawn = words(seed, round, attempt, population)
    return sorted(sorted(range(population), key=lambda i: (drawn[i], i))[:size])


def drawn(seed: int, round: int, attempt: int, population: int, size: int) -> Index:
    return draw(stream(seed, "server", round=round, attempt=attempt, purpose="select"), population, size)


def test_the_generator_gives_the_known_answers_of_its_authors() -> None:
    """From kat_vectors of Random123: philox4x64, 10 rounds."""
    assert philox((0, 0, 0, 0), (0, 0)) == (
        0x16554D9ECA36314C,
        0xDB20FE9D672D0FDC,
        0xD7E772CEE186176B,
        0x7E68B68AEC7BA23B,
    )
    ones = WORD - 1
    assert philox((ones, ones, ones, ones), (ones, ones)) == (
        0x87B092C3013FE90B,
        0x438C3C67BE8D0224,
        0x9CC7D7C69CD777B6,
        0xA09CAEBF594F0BA0,
    )


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**31), st.integers(1, 10**6), st.integers(0, 5), st.integers(1, 400), st.floats(0, 1))
def test_a_draw_is_the_smallest_words_of_the_generator_by_its_definition(
    seed: int, round: int, attempt: int, population: int, share: float
) -> None:
    size = int(share * population)
    expected = literal_draw(seed, round, attempt, population, size)
    assert drawn(seed, round, attempt, population, size).tolist() == expected


FROZEN: list[tuple[tuple[int, int, int, int, int], list[int]]] = [  # seed, round, attempt, population, size
    ((0, 1, 0, 10, 3), [5, 6, 7]),
    ((0, 1, 1, 10, 3), [1, 3, 6]),
    ((0, 2, 0, 10, 3), [3, 4, 8]),
    ((42, 7, 0, 100, 8), [3, 9, 15, 19, 47, 49, 55, 82]),
    ((42, 7, 0, 10000, 6), [1743, 3887, 3997, 4604, 5086, 6524]),
    ((2147483648, 1000, 3, 5, 5), [0, 1, 2, 3, 4]),
    ((1, 1, 0, 7, 0), []),
]


@pytest.mark.parametrize(("name", "expected"), FROZEN)
def test_the_samples_of_a_round_are_frozen(name: tuple[int, int, int, int, int], expected: list[int]) -> None:
    seed, round, attempt, population, size = name
    assert drawn(*name).tolist() == literal_draw(*name) == expected
    agreement = Agreement(3, population, size, classes=3, seed=seed)
    assert Draws(agreement, draw, NoCache()).index(round, attempt).tolist() == expected
