"""Whole runs with clients that are trained together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import scarlet
from scarlet.records import RoundRecord, RunResult
from tests.experiment.watchers import CtrlC

SHORT = scarlet.Config(
    rounds=4,
    clients=5,
    samples_per_client=70,
    test_per_client=40,
    public_size=60,
    public_per_round=30,
    batch_size=20,
    codec="reference",
    engine="batched",
    workers=1,
)
METHODS = {
    "scarlet": scarlet.ScarletConfig(cache_duration=2),
    "cfd": scarlet.CfdConfig(restart=True),
    "comet": scarlet.CometConfig(assign="client", cache_duration=2),
    "fedavg": scarlet.FedavgConfig(),
    "individual": scarlet.IndividualConfig(),
}


def protocol(record: RoundRecord) -> RoundRecord:
    """All of a record that does not depend on what the models say."""
    return replace(
        record,
        server_accuracy=None,
        client_accuracy=None,
        server_loss=None,
        mean_teacher_entropy=None,
        report_bytes=0,  # metrics are sent as text, in as many digits as they have
        seconds=0,
    )


def check(run: RunResult, other: RunResult) -> None:
    assert run.summary["weights_digest"] != other.summary["weights_digest"], "nothing was rounded differently"
    assert [protocol(record) for record in run.records] == [protocol(record) for record in other.records]
    for one, two in zip(run.records, other.records, strict=True):
        assert one.client_accuracy == pytest.approx(two.client_accuracy, abs=0.02)
        if two.server_accuracy is not None:
            assert one.server_accuracy == pytest.approx(two.server_accuracy, abs=0.02)
        if two.mean_teacher_entropy is not None:
            assert one.mean_teacher_entropy == pytest.approx(two.mean_teacher_entropy, rel=0.05)


@pytest.mark.parametrize("name", METHODS)
def test_a_run_is_that_of_clients_trained_one_after_another_to_rounding(name: str) -> None:
    batched = scarlet.run(METHODS[name], SHORT)
    check(batched, scarlet.run(METHODS[name], replace(SHORT, engine="contiguous")))
    assert batched.config["engine"] == "batched"


def test_with_dropouts_and_part_of_the_clients_in_memory() -> None:
    hard = replace(SHORT, clients=7, participation=0.8, dropout=0.4, clients_in_memory=3)
    batched = scarlet.run(METHODS["scarlet"], hard)
    check(batched, scarlet.run(METHODS["scarlet"], replace(hard, engine="contiguous")))
    assert min(record.answers for record in batched.records) < 6


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_was_cut_and_resumed_ends_in_the_same_bits(workers: int, tmp_path: Path) -> None:
    config: Any = replace(SHORT, participation=0.8, dropout=0.2, clients_in_memory=2 * workers, workers=workers)
    method = METHODS["scarlet"]
    assert scarlet.run(method, config, out=tmp_path / "run", watchers=[CtrlC(3)]).interrupted
    resumed = scarlet.run(method, config, out=tmp_path / "run", resume=True)
    whole = scarlet.run(method, config)
    assert resumed.summary["weights_digest"] == whole.summary["weights_digest"] is not None
    assert [replace(record, seconds=0) for record in resumed.records] == [replace(r, seconds=0) for r in whole.records]
