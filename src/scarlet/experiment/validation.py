"""What is held out to see whether a run has converged where there is no test set (the paper's appendix)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from scarlet.arrays import Mask
from scarlet.data.federated import FederatedData
from scarlet.data.samples import Part
from scarlet.rng import draw, stream


def hold_out(data: FederatedData, share: float, seed: int) -> FederatedData:
    """Each client keeps that share of its training samples for validation; at least one, if it has two or more."""
    if not share:
        return data
    split = [_split(part, share, seed, name) for part, name in zip(data.train, data.names, strict=True)]
    return replace(data, train=[train for train, _ in split], validation=[kept for _, kept in split])


def public_validation(size: int, share: float, seed: int) -> Mask | None:
    """Which public samples the server's model does not learn; None: it learns all."""
    if not share:
        return None
    held = np.zeros(size, np.bool_)
    held[draw(stream(seed, "server", purpose="validation"), size, min(size - 1, max(1, round(share * size))))] = True
    return held


def _split(part: Part, share: float, seed: int, name: str) -> tuple[Part, Part | None]:
    if len(part) < 2:
        return part, None
    count = min(len(part) - 1, max(1, round(share * len(part))))
    held = np.zeros(len(part), np.bool_)
    held[draw(stream(seed, "client", client=name, purpose="validation"), len(part), count)] = True
    index = np.arange(len(part)) if part.index is None else part.index
    return Part(part.of, index[~held]), Part(part.of, index[held])
