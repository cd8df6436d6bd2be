"""Algorithm 3 as the paper prints it, and what follows from it in the long run."""

from __future__ import annotations

import numpy as np
import pytest

from scarlet.experiment.cache_simulation import SimulateConfig, Simulated, recommended, simulate_cache
from scarlet.protocol.cache import OnExpiry
from scarlet.rng import draw, stream
from tests.protocol import algorithm2

DURATIONS = (0, 1, 3, 10, 40, 1_000)
CONFIG = SimulateConfig(durations=DURATIONS, public_size=120, public_per_round=20, rounds=250, seed=3)


def drawn(config: SimulateConfig, t: int) -> list[int]:
    rng = stream(config.seed, "server", round=t, purpose="select")
    return [int(i) for i in draw(rng, config.public_size, config.public_per_round)]


def algorithm_3(config: SimulateConfig, D: int) -> list[float]:
    cache: list[int | None] = [None] * config.public_size
    ratios: list[float] = []
    if D == 0:
        return [0.0] * config.rounds
    for t in range(1, config.rounds + 1):
        hit_count = 0
        for i in drawn(config, t):
            stamp = cache[i]
            if stamp is None or t - stamp > D:
                cache[i] = t
            else:
                hit_count += 1
        ratios.append(hit_count / config.public_per_round)
    return ratios


def test_every_round_has_the_hit_ratio_of_algorithm_3() -> None:
    for simulated, D in zip(simulate_cache(CONFIG), DURATIONS, strict=True):
        assert simulated.duration == D
        assert simulated.hit_ratio.tolist() == pytest.approx(algorithm_3(CONFIG, D), abs=1e-12)


def test_under_delete_every_round_has_the_hit_ratio_of_algorithm_2() -> None:
    config = SimulateConfig(
        durations=DURATIONS, public_size=120, public_per_round=20, rounds=250, seed=3, on_expiry="delete"
    )
    for simulated, D in zip(simulate_cache(config), DURATIONS, strict=True):
        cache: algorithm2.GlobalCache = {}
        for t, ratio in enumerate(simulated.hit_ratio, start=1):
            index = drawn(config, t)
            fresh = dict.fromkeys(algorithm2.compute_request(cache, index, t, D), (0.0,))
            labels = algorithm2.assemble(cache, fresh, index, t, D)
            algorithm2.update_global_cache(cache, labels, index, t, D)
            assert ratio == pytest.approx(1 - len(fresh) / len(index), abs=1e-12)


@pytest.mark.parametrize(("on_expiry", "misses"), [("refresh", 1), ("delete", 2)])
@pytest.mark.parametrize("D", [0, 5, 20, 60])
def test_the_hit_ratio_tends_to_what_renewal_predicts(on_expiry: OnExpiry, misses: int, D: int) -> None:
    """An entry gives D q hits in the mean, and costs one miss; under delete, its expiry costs another."""
    config = SimulateConfig(
        durations=(D,), public_size=2_000, public_per_round=200, rounds=2_000, on_expiry=on_expiry, seed=0
    )
    q = config.public_per_round / config.public_size
    settled = simulate_cache(config)[0].hit_ratio[1_000:]
    assert settled.mean() == pytest.approx(D * q / (misses + D * q), abs=0.005)


def test_all_durations_see_the_same_draws() -> None:
    together = simulate_cache(CONFIG)
    for D, simulated in zip(DURATIONS, together, strict=True):
        alone = SimulateConfig(durations=(D,), public_size=120, public_per_round=20, rounds=250, seed=3)
        assert simulate_cache(alone)[0].hit_ratio.tolist() == simulated.hit_ratio.tolist()


def test_the_rounds_in_which_everything_hits_are_named_from_1() -> None:
    assert Simulated(5, np.array([0, 1, 0.999, 1])).idle.tolist() == [2, 4]


def test_a_cache_that_never_expires_is_idle_once_everything_was_drawn() -> None:
    config = SimulateConfig(durations=(1_000,), public_size=3, public_per_round=3, rounds=50)
    assert simulate_cache(config)[0].idle.tolist() == list(range(2, 51))


def idle_in(idle: int, duration: int, rounds: int = 200) -> Simulated:
    return Simulated(duration, np.array([1.0] * idle + [0.5] * (rounds - idle)))


@pytest.mark.parametrize(
    ("idle", "duration"),
    [
        ({25: 0, 50: 0, 100: 0}, 100),
        ({25: 0, 50: 5, 100: 6}, 50),  # 6 of 200 rounds are 3 %, and no longer fewer
        ({100: 5, 25: 0, 50: 50}, 100),  # in any order, and whatever lies between
        ({25: 6, 50: 7}, None),
        ({}, None),
    ],
)
def test_the_recommendation_is_the_largest_duration_with_fewer_than_3_percent_of_idle_rounds(
    idle: dict[int, int], duration: int | None
) -> None:
    chosen = recommended([idle_in(count, D) for D, count in idle.items()])
    assert (None if chosen is None else chosen.duration) == duration
