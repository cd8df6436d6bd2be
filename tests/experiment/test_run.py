from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import scarlet
from scarlet.arrays import Labels
from scarlet.methods.parts.mean import mean
from scarlet.methods.registry import METHODS
from scarlet.protocol.server import ClosedRound, Server
from scarlet.training.server_model import ServerModel
from tests.experiment.tiny import METHOD, TINY, lines, means_of_the_last_10, measured_again, read
from tests.experiment.watchers import CtrlC, Notes


@pytest.mark.parametrize(
    "method",
    [
        scarlet.ScarletConfig(cache_duration=2, on_expiry="delete"),
        scarlet.ScarletConfig(cache_duration=2, on_expiry="refresh"),
        scarlet.DsflConfig(),
    ],
)
def test_the_bytes_predicted_before_the_run_are_the_bytes_measured(method: object) -> None:
    notes = Notes()
    result = scarlet.run(method, replace(TINY, rounds=7, eval_every=7), watchers=[notes])
    assert notes.expected.uplink_bytes == result.summary["uplink_bytes"]
    assert notes.expected.downlink_bytes == result.summary["downlink_bytes"]
    assert notes.heard == ["start", *(f"round {t}" for t in range(1, 8)), "finish"]


def test_eval_every_3_measures_every_third_round_and_the_last(tmp_path: Path) -> None:
    scarlet.run(METHOD, replace(TINY, rounds=8, eval_every=3), out=tmp_path / "run")
    rounds = lines(tmp_path / "run")
    for key in ("server_accuracy", "client_accuracy", "server_loss"):
        assert [line["round"] for line in rounds if line[key] is not None] == [3, 6, 8], key
    summary = read(tmp_path / "run" / "summary.json")
    assert summary["server_accuracy"] == pytest.approx(means_of_the_last_10(rounds, "server_accuracy"))


def test_measuring_less_often_changes_nothing_else() -> None:
    often, seldom = (scarlet.run(METHOD, replace(TINY, rounds=4, eval_every=n)) for n in (1, 4))
    assert often.summary["weights_digest"] == seldom.summary["weights_digest"]
    assert often.summary["cumulative_bytes"] == seldom.summary["cumulative_bytes"]


def test_ctrl_c_between_rounds_leaves_a_whole_directory(tmp_path: Path) -> None:
    notes = CtrlC(2)
    result = scarlet.run(METHOD, TINY, out=tmp_path, watchers=[notes])
    summary = read(tmp_path / "summary.json")
    assert result.interrupted and summary["interrupted"] and summary["weights_digest"] is None
    assert len(lines(tmp_path)) == summary["rounds"] == 2 and notes.heard[-1] == "finish"
    assert (tmp_path / "report.html").stat().st_size > 0
    assert measured_again(tmp_path)[0] == lines(tmp_path)[-1]["server_accuracy"]


def test_bytes_of_a_round_that_ctrl_c_cut_short_are_not_in_the_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = Server.close_round

    def interrupted(server: Server) -> ClosedRound | None:
        if server.state.round == 2 and isinstance(server.learner, ServerModel):  # not while bytes are estimated
            raise KeyboardInterrupt
        return close(server)

    monkeypatch.setattr(Server, "close_round", interrupted)
    scarlet.run(METHOD, TINY, out=tmp_path)
    summary, rounds = read(tmp_path / "summary.json"), lines(tmp_path)
    assert summary["rounds"] == len(rounds) == 2
    assert summary["cumulative_bytes"] == rounds[-1]["cumulative_bytes"]
    for key in ("uplink_bytes", "downlink_bytes", "report_bytes"):
        assert summary[key] == sum(line[key] for line in rounds), key


def test_the_saved_server_is_that_of_the_last_whole_round_when_ctrl_c_cuts_its_training_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn = ServerModel.learn

    def interrupted(model: ServerModel, labels: Labels, round: int) -> None:
        learn(model, labels, round)
        if round == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(ServerModel, "learn", interrupted)
    scarlet.run(METHOD, TINY, out=tmp_path)
    last = lines(tmp_path)[-1]
    assert last["round"] == 2
    assert measured_again(tmp_path)[1] == pytest.approx(last["server_loss"], rel=1e-5)


@dataclass(frozen=True)
class NoServerModelConfig:
    pass


def test_the_server_of_a_method_without_a_model_trains_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def learn(self: ServerModel, labels: Labels, round: int) -> None:
        pytest.fail("there is no model that could learn")

    def build(config: NoServerModelConfig) -> scarlet.Method:
        return scarlet.Method(mean(), server_learns=False)

    monkeypatch.setattr("scarlet.methods.registry.METHODS", dict(METHODS))
    monkeypatch.setattr(ServerModel, "learn", learn)
    scarlet.register("no-server-model", "No server model", NoServerModelConfig, build)
    ran = scarlet.run(NoServerModelConfig(), replace(TINY, rounds=2, workers=1))
    assert [record.server_accuracy for record in ran.records] == [None, None]
    assert ran.records[-1].client_accuracy is not None and ran.summary["uplink_bytes"]
