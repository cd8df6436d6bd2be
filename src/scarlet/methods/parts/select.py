"""Which public samples a round is about."""

from __future__ import annotations

import numpy as np

from scarlet.arrays import Index
from scarlet.rng import draw, stream


def fixed(rng: np.random.Generator, population: int, size: int) -> Index:
    """The same random samples in every round."""
    return draw(stream(0, "server", purpose="fixed subset"), population, size)
