"""The paper's cost table: CIFAR-10, 100 clients, 1,000 of 10,000 public samples a round, D = 50, 3,000 rounds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scarlet.core.method import Method
from scarlet.costs import Cost, CostsConfig, costs, play
from tests.core.federation import FEDERATION, METHODS, Town


@pytest.fixture(scope="module")
def table() -> dict[str, Cost]:
    return {cost.method: cost for cost in costs(CostsConfig())}


def test_ds_fl_costs_4_80_up_and_5_60_down_in_every_round(table: dict[str, Cost]) -> None:
    cost = table["dsfl"]
    for spread, megabytes in ((cost.uplink_mb, 4.80), (cost.downlink_mb, 5.60)):
        assert (spread.mean, spread.max) == pytest.approx((megabytes, megabytes), abs=1e-12)
        assert spread.std == pytest.approx(0, abs=1e-12)


def test_scarlet_costs_1_37_up_and_2_97_down_in_the_mean(table: dict[str, Cost]) -> None:
    assert round(table["scarlet"].uplink_mb.mean, 2) == 1.37
    assert round(table["scarlet"].downlink_mb.mean, 2) == 2.97


def test_scarlet_costs_4_30_up_and_6_32_down_at_most(table: dict[str, Cost]) -> None:
    # The maximum is in the second round and depends on the draw: how many of its samples the first round had drawn.
    assert table["scarlet"].uplink_mb.max == pytest.approx(4.30, abs=0.1)
    assert table["scarlet"].downlink_mb.max == pytest.approx(6.32, abs=0.01)


def test_the_first_round_is_in_the_total_and_not_in_the_mean(table: dict[str, Cost]) -> None:
    # DS-FL: 3,000 uplinks; a first downlink of requests alone; 2,999 downlinks with the labels of the round before.
    expected = 3_000 * 4.80e6 + 0.80e6 + 2_999 * 5.60e6
    assert table["dsfl"].total_gb == pytest.approx(expected / 1e9, rel=1e-12)


def test_the_table_is_of_the_papers_codec_and_expiry(table: dict[str, Cost]) -> None:
    assert [(cost.codec, cost.on_expiry, cost.participation) for cost in table.values()] == [
        ("reference", "delete", 1.0),
        ("reference", None, 1.0),
    ]


def test_refresh_saves_two_fifths_of_scarlets_uplink_in_the_long_run() -> None:
    config = CostsConfig(public_size=1_000, public_per_round=100, rounds=1_500)
    delete, refresh = costs(config)[0], costs(replace(config, on_expiry="refresh"))[0]
    assert delete.method == refresh.method == "scarlet"
    # With q the share drawn, an entry gives D q hits: 1 / (1 + D q) of the samples are misses, against 2 / (2 + D q).
    assert 1 - refresh.uplink_mb.mean / delete.uplink_mb.mean == pytest.approx(1 - (1 / 6) / (2 / 7), abs=0.02)


@pytest.mark.parametrize("method", [build() for build in METHODS.values()], ids=METHODS)
def test_one_client_that_stands_for_all_costs_as_much_as_all_together(method: Method) -> None:
    town, uplink, downlink = Town(method), [], []
    for _ in range(20):
        town.play()
        uplink.append(town.ledger.round_total("uplink").payload)
        downlink.append(town.ledger.round_total("downlink").payload)
    traffic = play(method, FEDERATION, 20, "reference")
    assert traffic.uplink.tolist() == uplink
    assert traffic.downlink.tolist() == downlink
    assert not traffic.catch_up.any()
    assert traffic.total == town.ledger.cumulative_payload
