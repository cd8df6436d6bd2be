"""Settings that stay within a budget of traffic."""

from __future__ import annotations

import pytest

from scarlet.errors import ConfigError
from scarlet.experiment.budget import proposals
from scarlet.experiment.costs import CostsConfig, costs

SMALL = CostsConfig(clients=4, public_size=300, public_per_round=60, rounds=40)


def total(duration: int, size: int) -> float:
    config = CostsConfig(clients=4, public_size=300, public_per_round=size, rounds=40, cache_duration=duration)
    return next(each.total_gb for each in costs(config) if each.method == "scarlet") * 1000


def test_every_proposal_is_within_the_budget_and_uses_it() -> None:
    found = proposals(SMALL, 0.5)
    assert [each.cache_duration for each in found] == [0, 10, 25]  # a longer one than the run is none
    for each in found:
        assert each.total_mb == pytest.approx(total(each.cache_duration, each.public_per_round))
        assert each.total_mb <= 0.5
        assert (
            each.public_per_round == 60
            or each.total_mb >= 0.98 * 0.5
            or total(each.cache_duration, each.public_per_round + 1) > 0.5
        )
    sizes = [each.public_per_round for each in found]
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1]


def test_the_shortest_duration_that_leaves_all_samples_is_recommended() -> None:
    found = proposals(SMALL, total(10, 60) * 1.01)
    assert [(each.cache_duration, each.public_per_round) for each in found if each.recommended] == [(10, 60)]
    plenty = proposals(SMALL, 1e6)
    assert [each.cache_duration for each in plenty if each.recommended] == [0]


def test_a_budget_that_nothing_fits_is_named_with_the_least_that_would() -> None:
    with pytest.raises(
        ConfigError, match=r"^target_mb must be at least 0\.\d+, which one sample a round costs, got 1e-05"
    ):
        proposals(SMALL, 1e-5)
    for wrong in (0, float("inf")):
        with pytest.raises(ConfigError, match=rf"^target_mb must be a number above 0, got {wrong}"):
            proposals(SMALL, wrong)


def test_whoever_asks_for_the_least_gets_a_proposal() -> None:
    for rounds in (20, 40, 61):
        config = CostsConfig(clients=7, public_size=20, public_per_round=10, rounds=rounds)
        with pytest.raises(ConfigError) as refused:
            proposals(config, 1e-9)
        assert proposals(config, float(str(refused.value).split()[5].rstrip(",")))
