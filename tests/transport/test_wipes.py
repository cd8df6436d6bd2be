"""Clients that lose their disk: they begin anew, abstain for some rounds, and then answer as others do."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from scarlet.methods.dsfl import DsflConfig, dsfl
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.protocol.codec_registry import codec
from scarlet.protocol.messages import Report, Resync
from scarlet.protocol.server import Server
from scarlet.protocol.uplink.labels import Answer
from scarlet.transport.client_runner import ClientRunner
from scarlet.transport.fault_injection import FaultInjection
from scarlet.transport.local import LocalTransport
from scarlet.wire.ledger import Ledger
from tests.transport.five_clients import AGREEMENT, CLIENTS, EVERYBODY, data, exchanged, play, setup, transport

WHO, WHEN, ABSTAINS = 2, 3, 2
CACHING = partial(scarlet, ScarletConfig(cache_duration=4))
PLAIN = partial(dsfl, DsflConfig())
each_method = pytest.mark.parametrize("method", [CACHING, PLAIN], ids=["with a cache", "without"])


class WipesOne(FaultInjection):
    """One client loses its disk before one round."""

    def wiped(self, client: int, round: int, attempt: int) -> bool:
        return (client, round) == (WHO, WHEN)


class Rounds:
    """Rounds of a federation, one of whose clients loses its disk."""

    def __init__(self, clients: LocalTransport, method: Any) -> None:
        self.clients, self.codec = clients, codec("reference", method(), AGREEMENT)
        self.server = Server(method(), AGREEMENT, self.codec, Ledger())
        self.downlinks: dict[int, bytes] = {}  # of the last round
        self.resets = 0  # in the last round

    def play(self) -> dict[int, tuple[int, dict[str, float]]]:
        """How many soft-labels each client sends in a round, and what it reports."""
        labels, reports, resyncs = dict.fromkeys(EVERYBODY, 0), {}, 0
        asked = self.downlinks = self.server.open_round()
        while asked:
            for sender, message in exchanged(self.clients, asked):
                assert isinstance(message, bytes), message
                read = self.codec.decode(message)
                if isinstance(read, Answer):
                    labels[sender] = len(read.labels.index)
                elif isinstance(read, Report):
                    reports[sender] = dict(read.metrics)
                resyncs += isinstance(read, Resync)
                self.server.take(sender, message)
            asked = self.server.resets()
        closed = self.server.close_round()
        assert closed is not None and not closed.rejections and closed.answers == CLIENTS
        self.resets = resyncs
        return {client: (labels[client], reports[client]) for client in EVERYBODY}


@pytest.mark.parametrize("in_memory", [None, 1])
@pytest.mark.parametrize("workers", [1, 2])
@each_method
def test_a_wiped_client_learns_and_sends_nothing_for_the_set_rounds_and_then_answers(
    method: Any, workers: int, in_memory: int | None
) -> None:
    faults = WipesOne(seed=0, clients=CLIENTS, abstain=ABSTAINS)
    with transport(workers, faults=faults, method=method, clients_in_memory=in_memory) as clients:
        rounds = Rounds(clients, method)
        for round in range(1, 8):
            found = rounds.play()
            left = ABSTAINS - (round - WHEN) if WHEN <= round < WHEN + ABSTAINS else 0
            most = max(count for count, _ in found.values())
            assert most > 0
            for client, (count, metrics) in found.items():
                wiped = client == WHO and left > 0
                assert count == (0 if wiped else most)
                assert metrics.get("abstains") == (left if wiped else None)
                assert "fit_loss" in metrics, "whoever abstains is trained all the same"


def test_a_client_that_abstains_for_no_round_answers_at_once() -> None:
    with transport(faults=WipesOne(seed=0, clients=CLIENTS, abstain=0), method=PLAIN) as clients:
        rounds = Rounds(clients, PLAIN)
        for _ in range(WHEN):
            found = rounds.play()
    counts, reports = zip(*found.values(), strict=True)
    assert len(set(counts)) == 1 and not any("abstains" in each for each in reports)


@each_method
def test_a_wiped_client_is_a_new_one_with_an_empty_cache(method: Any) -> None:
    with transport(faults=WipesOne(seed=0, clients=CLIENTS, abstain=ABSTAINS), method=method) as clients:
        rounds = Rounds(clients, method)
        for round in range(1, WHEN + 1):
            rounds.play()
            if method is CACHING:
                assert rounds.resets == (round == WHEN), "its cache differs from what the server takes it to hold"
        wiped = clients.states([WHO])[WHO]
        weights = {name: np.array(array) for name, array in wiped.items() if name.startswith("model.")}
        downlink = rounds.downlinks[WHO]
    if method is PLAIN:  # where nothing is cached, a new client takes the same downlink
        with transport(method=method) as clients:
            exchanged(clients, {WHO: downlink})
            new = clients.states([WHO])[WHO]
        assert all(np.array_equal(new[name], array) for name, array in weights.items())


def test_without_a_wipe_nothing_changes() -> None:
    faults = FaultInjection(seed=0, clients=CLIENTS, wipe=0.0, abstain=3)
    assert play(1, faults=faults) == play(1)
    assert not any(faults.wiped(client, round, 0) for client in EVERYBODY for round in range(100))


class WipesAll(FaultInjection):
    """Every client loses its disk before every round."""

    def wiped(self, client: int, round: int, attempt: int) -> bool:
        return True


@pytest.mark.parametrize("workers", [1, 2])
def test_a_client_that_was_never_asked_is_not_wiped(workers: int) -> None:
    with transport(workers, faults=WipesAll(seed=0, clients=CLIENTS, abstain=ABSTAINS), method=PLAIN) as clients:
        rounds = Rounds(clients, PLAIN)
        assert all(count and "abstains" not in metrics for count, metrics in rounds.play().values())
        assert all((count, metrics["abstains"]) == (0, ABSTAINS) for count, metrics in rounds.play().values())


def test_a_client_that_was_asked_but_never_trained_is_not_wiped_either() -> None:
    faults = WipesAll(seed=0, clients=CLIENTS, dropout=0.9, abstain=ABSTAINS)
    runner = ClientRunner(setup(faults=faults, method=PLAIN), data(), {})
    downlinks = Server(PLAIN(), AGREEMENT, codec("reference", PLAIN(), AGREEMENT), Ledger()).open_round()
    states = {client: runner._clients[client].node.client.state for client in EVERYBODY}
    dict(runner.exchange(downlinks))
    trained = {client for client, state in states.items() if state.answered}
    assert 0 < len(trained) < CLIENTS, "some drop out before their training"
    dict(runner.exchange(downlinks))
    for client, state in states.items():
        now = runner._clients[client].node.client.state
        assert (now is state) == (client not in trained)
        assert now.abstains == (ABSTAINS - 1 if client in trained else 0), "and has abstained once"
    runner.close()


def test_wipes_happen_as_often_as_asked_for_and_are_drawn_for_each_client_and_round() -> None:
    faults = FaultInjection(seed=0, clients=20, wipe=0.2)
    found = np.array([[faults.wiped(client, round, 0) for client in range(20)] for round in range(200)])
    assert found.mean() == pytest.approx(0.2, abs=0.02)
    assert (found.mean(axis=0) > 0.1).all() and found.any(axis=1).mean() > 0.9
    again = np.array([[faults.wiped(client, round, 0) for client in range(20)] for round in range(200)])
    assert np.array_equal(found, again)
    assert not np.array_equal(found[0], [FaultInjection(1, 20, wipe=0.2).wiped(client, 0, 0) for client in range(20)])
