"""Every method of the comparison learns, on the embedded default shortened as in test_learning, with a small model."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

import scarlet
from scarlet.methods.registry import METHODS
from scarlet.records import RunResult
from tests.e2e.test_learning import LEARNED, SHORT, client_accuracy, server_accuracy

# For seeds 0 and 1 the server's accuracy after these five rounds was 0.43 to 0.54 for the methods that distil, and
# 0.84 to 0.87 for FedAvg; a server that guesses has 0.10, and one that is taught labels of other samples has up to
# 0.18. The clients' accuracy was 0.75 to 0.88.
QUICK = replace(SHORT, model="mlp", samples_per_client=300, local_epochs=5, lr=0.03, distil_lr=0.08)
OPTIONS: dict[str, object] = {
    "cfd": scarlet.CfdConfig(),
    "cfd, cached": scarlet.CfdConfig(cache_duration=2),
    "cfd-1-1, delta": scarlet.CfdConfig(uplink_bits=1, downlink_bits=1, delta=True),
    "comet": scarlet.CometConfig(),
    "comet, server-assigned": scarlet.CometConfig(assign="server"),
    "comet, cached": scarlet.CometConfig(cache_duration=2),
    "selective-fd": scarlet.SelectiveFdConfig(),
    "selective-fd, cached": scarlet.SelectiveFdConfig(cache_duration=2),
    "fedavg": scarlet.FedavgConfig(),
    "individual": scarlet.IndividualConfig(),
    "centralized": scarlet.CentralizedConfig(),
}
SMALL = replace(SHORT, rounds=3, samples_per_client=40, public_size=60, public_per_round=30, local_epochs=1, workers=1)
pytestmark = pytest.mark.xdist_group("methods")  # each run is made once, in one process
NO_SERVER_MODEL = ("individual", "centralized")


@cache
def learned(name: str) -> RunResult:
    return scarlet.run(OPTIONS[name], QUICK)


def exact(options: object) -> RunResult:
    """A run in which labels are sent as they are, in the paper's accounting."""
    return scarlet.run(options, replace(SMALL, codec="reference"))


def test_every_method_is_here_or_in_test_learning() -> None:
    assert {name.partition(",")[0].partition("-1-1")[0] for name in OPTIONS} | {"scarlet", "dsfl"} >= set(METHODS)


@pytest.mark.parametrize("name", [name for name in OPTIONS if name not in NO_SERVER_MODEL])
def test_the_server_learns(name: str) -> None:
    assert server_accuracy(learned(name)) >= LEARNED


@pytest.mark.parametrize("name", OPTIONS)
def test_the_clients_learn(name: str) -> None:
    assert client_accuracy(learned(name)) >= 0.7


@pytest.mark.parametrize("name", NO_SERVER_MODEL)
def test_without_a_server_model_its_accuracy_is_null_and_nothing_is_sent(name: str) -> None:
    result = learned(name)
    assert all(record.server_accuracy is None and record.server_loss is None for record in result.records)
    assert result.summary["server_accuracy"] is None
    assert result.summary["cumulative_bytes"] == 0


def test_one_client_with_all_data_beats_those_that_have_a_part_each() -> None:
    assert client_accuracy(learned("centralized")) > client_accuracy(learned("individual"))


def test_fedavg_sends_its_model_in_both_directions_every_round() -> None:
    numbers = 55_050  # of the mlp
    result = learned("fedavg")
    for record in result.records:
        assert record.uplink_bytes == record.downlink_bytes == 3 * 4 * numbers


@pytest.mark.parametrize("name", ["cfd", "comet", "selective-fd"])
def test_a_cache_saves_bytes_in_both_directions(name: str) -> None:
    cached, without = learned(f"{name}, cached").summary, learned(name).summary
    assert cached["uplink_bytes"] < without["uplink_bytes"]  # type: ignore[operator]
    assert cached["downlink_bytes"] < without["downlink_bytes"]  # type: ignore[operator]


def test_comet_learns_the_same_whoever_assigns_the_teachers() -> None:
    # A client's model does not change between its answer and its choice, so both sides choose alike.
    client, server = exact(OPTIONS["comet"]), exact(OPTIONS["comet, server-assigned"])
    assert client.summary["weights_digest"] == server.summary["weights_digest"]
    assert client.summary["downlink_bytes"] > server.summary["downlink_bytes"]  # type: ignore[operator]


def test_delta_coding_loses_nothing() -> None:
    plain, delta = (exact(scarlet.CfdConfig(uplink_bits=1, downlink_bits=1, delta=delta)) for delta in (False, True))
    assert delta.summary["weights_digest"] == plain.summary["weights_digest"]
    assert delta.summary["uplink_bytes"] < plain.summary["uplink_bytes"]  # type: ignore[operator]


@pytest.mark.parametrize("method", [scarlet.CfdConfig(restart=True), scarlet.SelectiveFdConfig()], ids=["cfd", "sel"])
def test_one_worker_and_two_give_the_same_weights(method: object) -> None:
    digests = [scarlet.run(method, replace(SMALL, workers=workers)).summary["weights_digest"] for workers in (1, 2)]
    assert digests[0] == digests[1] is not None
