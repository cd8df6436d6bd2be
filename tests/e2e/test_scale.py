from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scarlet
from scarlet.arrays import Labels
from scarlet.job import Job, Result
from scarlet.methods.cfd import CfdConfig, cfd
from scarlet.methods.comet import CometConfig, comet
from scarlet.methods.scarlet import ScarletConfig
from scarlet.methods.scarlet import scarlet as scarlet_method
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.codec_registry import codec
from scarlet.protocol.server import Participation, Server
from scarlet.wire.ledger import Ledger
from tests.experiment.watchers import CtrlC

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


def test_of_2000_clients_only_those_that_took_part_are_in_ledger_and_checkpoint(tmp_path: Path) -> None:
    out = tmp_path / "run"
    scarlet.run(ScarletConfig(), MANY, out=out, watchers=[CtrlC(3)])
    rows = [line.split(",")[:2] for line in (out / "ledger.csv").read_text().splitlines()[1:]]
    assert [row[0] for row in rows].count("1") == 4
    asked = {client for round, client in rows if round in ("1", "2")}
    manifest = json.loads((out / "checkpoint" / "2.json").read_bytes().partition(b"\n")[2])
    assert set(manifest["parts"]) == {"server", "model"} | {f"client-{client}" for client in asked}
    whole = scarlet.run(ScarletConfig(), MANY)
    resumed = scarlet.run(ScarletConfig(), MANY, out=out, resume=True)
    assert resumed.summary["weights_digest"] == whole.summary["weights_digest"] is not None


FEW = replace(MANY, clients=5, participation=0.6, rounds=5, clients_in_memory=1, workers=1)
OF_SINGLE_CLIENTS: dict[str, object] = {
    "cfd with delta": CfdConfig(delta=True),
    "comet by the server": CometConfig(assign="server"),
}
CACHED: dict[str, object] = {
    "scarlet": ScarletConfig(cache_duration=2),
    "comet with a cache": CometConfig(assign="client", cache_duration=2),
}


@pytest.mark.parametrize("method", (OF_SINGLE_CLIENTS | CACHED).values(), ids=OF_SINGLE_CLIENTS | CACHED)
def test_a_run_does_not_depend_on_how_many_clients_are_in_memory(method: object) -> None:
    one, all_of_them = (
        scarlet.run(method, replace(FEW, clients_in_memory=limit)).summary["weights_digest"] for limit in (1, None)
    )
    assert one == all_of_them is not None


@pytest.mark.parametrize("method", OF_SINGLE_CLIENTS.values(), ids=OF_SINGLE_CLIENTS)
def test_what_the_server_remembers_of_single_clients_outlives_a_resume(method: object, tmp_path: Path) -> None:
    scarlet.run(method, FEW, out=tmp_path / "run", watchers=[CtrlC(4)])
    assert (tmp_path / "run" / "checkpoint").exists()
    resumed = scarlet.run(method, FEW, out=tmp_path / "run", resume=True)
    whole = scarlet.run(method, FEW)
    assert resumed.summary["weights_digest"] == whole.summary["weights_digest"] is not None
    assert [replace(record, seconds=0) for record in resumed.records] == [replace(r, seconds=0) for r in whole.records]


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
    agreement = Agreement(10_000, 10_000, 1_000, 10, seed=0)
    wire = codec("reference", method, agreement)
    tracemalloc.start()
    try:
        server = Server(method, agreement, wire, Ledger(), participation=Participation(0.001))
        for client in server.open_round():
            labels = Labels(server.request, np.full((1_000, 10), 0.1, np.float32))
            job = Job(client, 1, 0, labels, server.request)
            server.take(client, method.uplink.client(agreement, wire).answer(job, labels, Result(labels.value, {})))
        closed = server.close_round()
        assert closed is not None and closed.answers == 10
        assert tracemalloc.get_traced_memory()[0] < limit
    finally:
        tracemalloc.stop()
