from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

import scarlet
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
    ("seconds", "exact", "expected"),
    [
        (89, True, "about 89 s, 1.5 GB of memory, 2.0 MB up and 3.5 MB down"),
        (600, False, "about 10 min, 1.5 GB of memory, at least 2.0 MB up and 3.5 MB down"),
        (9000, True, "about 2.5 h, 1.5 GB of memory, 2.0 MB up and 3.5 MB down"),
    ],
)
def test_an_estimate_in_words(seconds: float, exact: bool, expected: str) -> None:
    assert str(Estimate(seconds, 1.5e9, 2_000_000, 3_500_000, exact)) == expected
