"""How a cache duration will behave, without training (Algorithm 3): the draws and the real cache policy, no labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
from typing_extensions import Doc

from scarlet.arrays import Labels
from scarlet.config import check_at_least, check_per_round
from scarlet.errors import ConfigError
from scarlet.protocol.cache import CacheTable, Duration, OnExpiry
from scarlet.rng import draw, stream

IDLE_SHARE = 0.03  # a duration is recommended only if fewer rounds than this share refresh nothing


@dataclass(frozen=True, slots=True)
class SimulateConfig:
    """The setting to simulate; the defaults are those of the paper's figure."""

    durations: Annotated[tuple[int, ...], Doc("cache durations D to compare")] = (25, 50, 100, 200, 400, 800)
    public_size: Annotated[int, Doc("|P|, number of public images")] = 10_000
    public_per_round: Annotated[int, Doc("|P^t|, public images drawn for each round")] = 1_000
    rounds: Annotated[int, Doc("number of rounds to simulate")] = 3_000
    on_expiry: Annotated[
        OnExpiry, Doc("expired cache entries: refresh as in Algorithm 3, delete as in Algorithm 2")
    ] = "refresh"
    seed: Annotated[int, Doc("random seed of all draws")] = 0

    def __post_init__(self) -> None:
        if not self.durations:
            raise ConfigError("durations must name at least one value of D, got none; 25,50,100 would do")
        for duration in self.durations:
            Duration(duration, self.on_expiry)
        check_at_least(1, self, "public_size", "public_per_round", "rounds")
        check_at_least(0, self, "seed")
        check_per_round(self.public_per_round, self.public_size)


@dataclass(frozen=True, slots=True)
class Simulated:
    """One cache duration, played through."""

    duration: int
    hit_ratio: npt.NDArray[np.float64]  # [rounds]

    @property
    def idle(self) -> npt.NDArray[np.int64]:
        """The rounds, counted from 1, in which everything hits and nothing would be refreshed."""
        return np.flatnonzero(self.hit_ratio == 1) + 1


def simulate_cache(config: SimulateConfig) -> list[Simulated]:
    """The share of hits in each round, for each duration, all under the same draws."""
    policies = [Duration(duration, config.on_expiry) for duration in config.durations]
    tables = [CacheTable.empty(config.public_size, 0) for _ in policies]  # stamps, and labels without classes
    ratios = np.zeros((len(policies), config.rounds))
    for round in range(1, config.rounds + 1):
        rng = stream(config.seed, "server", round=round, purpose="select")
        index = draw(rng, config.public_size, config.public_per_round)
        for row, (policy, table) in enumerate(zip(policies, tables, strict=True)):
            request = policy.request(table, index, round)
            policy.commit(table, Labels(request, np.empty((len(request), 0), np.float32)), index, round)
            ratios[row, round - 1] = 1 - len(request) / len(index)
    return [Simulated(policy.duration, ratio) for policy, ratio in zip(policies, ratios, strict=True)]


def recommended(simulated: Sequence[Simulated]) -> Simulated | None:
    """The largest duration with fewer than 3 % of idle rounds; None if there is none."""
    fit = [each for each in simulated if len(each.idle) < IDLE_SHARE * len(each.hit_ratio)]
    return max(fit, key=lambda each: each.duration, default=None)
