"""The paper's cost table: CIFAR-10, 100 clients, 1,000 of 10,000 public samples a round, D = 50, 3,000 rounds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scarlet.experiment.costs import Cost, CostsConfig, Spread, costs, play
from scarlet.methods.registry import METHODS as METHODS_BY_NAME
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.models.registry import model_factory
from scarlet.protocol.cache import OnExpiry
from scarlet.protocol.method import Method
from tests.protocol.federation import AGREEMENT, METHODS, Federation

pytestmark = pytest.mark.xdist_group("cost table")  # its fixtures are made once, in one process


SHORT = 300  # rounds; without a cache all but the first cost the same


@pytest.fixture(scope="module")
def table() -> dict[str, Cost]:
    """SCARLET over all 3,000 rounds, and the methods whose rounds are alike over fewer."""
    found = {cost.method: cost for cost in costs(CostsConfig(rounds=SHORT))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scarlet.experiment.costs.METHODS", {"scarlet": METHODS_BY_NAME["scarlet"]})
        (whole,) = costs(CostsConfig())
    return found | {"scarlet": whole}


def test_the_table_is_of_3000_rounds() -> None:
    assert CostsConfig().rounds == 3_000


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
    # DS-FL: 300 uplinks; a first downlink of requests alone; 299 downlinks with the labels of the round before.
    expected = SHORT * 4.80e6 + 0.80e6 + (SHORT - 1) * 5.60e6
    assert table["dsfl"].total_gb == pytest.approx(expected / 1e9, rel=1e-12)


def test_the_table_is_of_the_papers_codec_and_expiry(table: dict[str, Cost]) -> None:
    for name, cost in table.items():
        on_expiry = "delete" if name == "scarlet" else None  # the others have no cache there
        assert (cost.codec, cost.on_expiry, cost.participation) == ("reference", on_expiry, 1.0)
    assert set(table) == {"scarlet", "dsfl", "cfd", "comet", "selective-fd", "fedavg"}


@pytest.mark.parametrize(
    ("method", "up", "down"), [("cfd", 1.60, 5.60), ("comet", 4.80, 5.60)], ids=["CFD", "COMET, server-assigned"]
)
def test_cfd_and_comet_cost_what_the_paper_says_in_every_round(
    method: str, up: float, down: float, table: dict[str, Cost]
) -> None:
    cost = table[method]
    for spread, megabytes in ((cost.uplink_mb, up), (cost.downlink_mb, down)):
        assert (spread.mean, spread.max, spread.std) == pytest.approx((megabytes, megabytes, 0), abs=1e-12)


def test_selective_fd_costs_3_88_up_where_80_8_percent_pass_the_selectors(table: dict[str, Cost]) -> None:
    assert round(table["selective-fd"].uplink_mb.mean, 2) == 3.88


def test_fedavg_sends_a_resnet20_in_both_directions(table: dict[str, Cost]) -> None:
    model = model_factory("resnet20", 10, (3, 32, 32))()
    size = sum(value.numel() for value in model.state_dict().values())
    assert CostsConfig().model_size == size
    assert table["fedavg"].uplink_mb.mean == table["fedavg"].downlink_mb.mean == pytest.approx(100 * 4 * size / 1e6)


@pytest.mark.parametrize("method", ["cfd", "comet", "selective-fd"])
def test_caching_saves_two_fifths_by_deletion_and_more_than_half_by_refreshing(method: str) -> None:
    entry = METHODS_BY_NAME[method]
    agreement = replace(AGREEMENT, public_size=1_000, public_per_round=100, classes=10)

    def total(duration: int, on_expiry: OnExpiry) -> int:
        chosen = entry.build(entry.config(cache_duration=duration, on_expiry=on_expiry))
        share = CostsConfig().kept_share if method == "selective-fd" else 1.0
        return play(chosen, agreement, 600, "reference", kept_share=share).total

    without = total(0, "delete")
    assert 0.35 < 1 - total(25, "delete") / without < 0.5
    assert 1 - total(25, "refresh") / without > 0.5


def test_refresh_saves_two_fifths_of_scarlets_uplink_in_the_long_run() -> None:
    agreement = replace(AGREEMENT, public_size=1_000, public_per_round=100, classes=10)

    def mean(on_expiry: OnExpiry) -> float:
        method = scarlet(ScarletConfig(cache_duration=50, on_expiry=on_expiry))
        return Spread.of(play(method, agreement, 1_500, "reference").uplink).mean

    # With q the share drawn, an entry gives D q hits: 1 / (1 + D q) of the samples are misses, against 2 / (2 + D q).
    assert 1 - mean("refresh") / mean("delete") == pytest.approx(1 - (1 / 6) / (2 / 7), abs=0.02)


@pytest.mark.parametrize("method", [build() for build in METHODS.values()], ids=METHODS)
def test_one_client_that_stands_for_all_costs_as_much_as_all_together(method: Method) -> None:
    federation, uplink, downlink = Federation(method), [], []
    for _ in range(20):
        federation.play()
        uplink.append(federation.ledger.round_total("uplink").payload)
        downlink.append(federation.ledger.round_total("downlink").payload)
    traffic = play(method, AGREEMENT, 20, "reference")
    assert traffic.uplink.tolist() == uplink
    assert traffic.downlink.tolist() == downlink
    assert not traffic.catch_up.any()
    assert traffic.total == federation.ledger.cumulative_payload
