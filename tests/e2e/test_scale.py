from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import scarlet
from scarlet.experiment.costs import _Uniform
from scarlet.experiment.estimate import estimate
from scarlet.experiment.problem import prepare
from scarlet.methods.cfd import CfdConfig, cfd
from scarlet.methods.comet import CometConfig, comet
from scarlet.methods.scarlet import ScarletConfig
from scarlet.methods.scarlet import scarlet as scarlet_method
from scarlet.protocol.federation import Federation
from scarlet.protocol.server import Server
from scarlet.protocol.types import Uplink
from scarlet.records import RoundRecord
from scarlet.wire.codecs import codec
from scarlet.wire.ledger import Ledger

MANY = scarlet.Config(
    rounds=3,
    clients=2000,
    samples_per_client=20,
    share_images=True,
    test_per_client=5,
    public_size=50,
    public_per_round=20,
    local_epochs=1,
    distil_epochs=1,
    participation=0.002,
    clients_in_memory=2,
    workers=2,
)


class Cut:
    """Ctrl-C after a round."""

    def __init__(self, after: int) -> None:
        self.after = after

    def start(self, config: object, problem: object, expected: object) -> None: ...

    def round(self, record: RoundRecord, ledger: object) -> None:
        if record.round == self.after + 1:  # the checkpoint of the round before is on its way
            raise KeyboardInterrupt

    def finish(self, result: object, weights: object) -> None: ...


def test_of_2000_clients_only_those_that_took_part_are_in_ledger_and_checkpoint(tmp_path: Path) -> None:
    out = tmp_path / "run"
    scarlet.run(ScarletConfig(), MANY, out=out, watchers=[Cut(2)])
    rows = [line.split(",")[:2] for line in (out / "ledger.csv").read_text().splitlines()[1:]]
    assert [row[0] for row in rows].count("1") == 4
    asked = {client for round, client in rows if round in ("1", "2")}
    manifest = json.loads((out / "checkpoint" / "2.json").read_bytes().partition(b"\n")[2])
    assert set(manifest["parts"]) == {"server"} | {f"client-{client}" for client in asked}
    whole = scarlet.run(ScarletConfig(), MANY)
    resumed = scarlet.run(ScarletConfig(), MANY, out=out, resume=True)
    assert resumed.summary["weights_digest"] == whole.summary["weights_digest"] is not None


@pytest.mark.parametrize("method", [CfdConfig(delta=True), CometConfig(assign="server")], ids=["cfd", "comet"])
def test_what_the_server_remembers_of_single_clients_outlives_a_resume(method: Any, tmp_path: Path) -> None:
    config = replace(MANY, clients=5, participation=0.6, rounds=5, clients_in_memory=1, workers=1)
    scarlet.run(method, config, out=tmp_path / "run", watchers=[Cut(3)])
    assert (tmp_path / "run" / "checkpoint").exists()
    resumed = scarlet.run(method, config, out=tmp_path / "run", resume=True)
    whole = scarlet.run(method, config)
    assert resumed.summary["weights_digest"] == whole.summary["weights_digest"] is not None
    assert [replace(record, seconds=0) for record in resumed.rounds] == [replace(r, seconds=0) for r in whole.rounds]


def test_the_estimate_counts_the_clients_in_memory_and_not_all() -> None:
    def memory(**options: Any) -> float:
        problem = prepare(replace(MANY, **options))
        indices = 8 * 25 * problem.config.clients
        return estimate(scarlet_method(ScarletConfig()), problem, 2).memory_bytes - indices

    few, many = memory(clients=20, participation=0.2), memory(clients=2000, participation=0.002)
    assert few == many
    more, most = memory(clients_in_memory=10), memory(clients_in_memory=2000)
    assert few < more < most
    assert most == memory(clients_in_memory=12), "in three rounds four clients a round are asked"


@pytest.mark.parametrize(
    ("method", "limit"),
    [
        (scarlet_method(ScarletConfig(cache_duration=50)), 8e6),
        (cfd(CfdConfig(delta=True)), 16e6),  # 450 kB for each of the ten clients that answered
        (comet(CometConfig(assign="server")), 8e6),
    ],
    ids=["scarlet", "cfd with delta", "comet"],
)
def test_a_server_of_10000_clients_and_10000_samples_keeps_nothing_of_their_product(method: Any, limit: float) -> None:
    federation = Federation(10_000, 10_000, 1_000, 10, seed=0, participation=0.001)
    wire = codec("reference")
    tracemalloc.start()
    try:
        server = Server(method, federation, wire, Ledger())
        for client in server.open_round():
            labels = _Uniform(None, server.request, 10).finish()
            server.take(client, wire.encode(Uplink(1, 0, client, labels)))
        closed = server.close_round()
        assert closed is not None and closed.answers == 10
        assert tracemalloc.get_traced_memory()[0] < limit
    finally:
        tracemalloc.stop()
