from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

import scarlet
from scarlet.experiment.costs import Traffic, play
from scarlet.experiment.estimate import Estimate, estimate
from scarlet.experiment.federation import prepare
from scarlet.methods.scarlet import scarlet as scarlet_method
from tests.e2e.test_scale import MANY


def test_the_estimate_counts_the_clients_in_memory_and_not_all() -> None:
    def memory(**options: Any) -> float:
        federation = prepare(replace(MANY, **options))
        indices = 8 * 25 * federation.config.clients
        method, make = scarlet_method(scarlet.ScarletConfig()), partial(scarlet_method, scarlet.ScarletConfig())
        return estimate(method, federation, federation.client_setup(method, make)).memory_bytes - indices

    few, many = memory(clients=20, participation=0.2), memory(clients=2000, participation=0.002)
    assert few == many
    more, most = memory(clients_in_memory=10), memory(clients_in_memory=2000)
    assert few < more < most
    assert most == memory(clients_in_memory=12), "in three rounds four clients a round are asked"


@pytest.mark.parametrize(
    ("seconds", "traffic", "expected"),
    [
        (89, "exactly", "about 89 s, 1.5 GB of memory, 2.0 MB up and 3.5 MB down"),
        (600, "at least", "about 10 min, 1.5 GB of memory, at least 2.0 MB up and 3.5 MB down"),
        (9000, "about", "about 2.5 h, 1.5 GB of memory, about 2.0 MB up and 3.5 MB down"),
    ],
)
def test_an_estimate_in_words(seconds: float, traffic: Any, expected: str) -> None:
    assert str(Estimate(seconds, 1.5e9, 2_000_000, 3_500_000, traffic)) == expected


def test_of_a_long_run_or_a_large_federation_some_messages_are_played_and_the_rest_is_worked_out() -> None:
    """Every message of a thousand clients over thousands of rounds would be half an hour before the first round."""

    def found(**options: Any) -> Estimate:
        federation = prepare(replace(MANY, codec="reference", **options))
        method, make = scarlet_method(scarlet.ScarletConfig()), partial(scarlet_method, scarlet.ScarletConfig())
        return estimate(method, federation, federation.client_setup(method, make))

    def played(**options: Any) -> Traffic:
        federation = prepare(replace(MANY, codec="reference", **options))
        method = scarlet_method(scarlet.ScarletConfig())
        return play(method, federation.agreement, federation.config.rounds, "reference", federation.participation)

    for options in (
        {"clients": 4, "participation": 1.0, "rounds": 600},
        {"clients": 60, "participation": 0.5, "rounds": 40},
    ):
        estimated, whole = found(**options), played(**options)
        assert estimated.traffic == "about"
        assert estimated.uplink_bytes == pytest.approx(whole.uplink.sum(), rel=0.03)
        assert estimated.downlink_bytes == pytest.approx(whole.downlink.sum(), rel=0.03)
    short = {"clients": 4, "participation": 1.0, "rounds": 20}
    assert found(**short).traffic == "exactly" and found(**short).uplink_bytes == played(**short).uplink.sum()
