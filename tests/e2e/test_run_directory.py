from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import scarlet
from scarlet.data import load_private
from scarlet.errors import ConfigError
from scarlet.experiment.estimate import Estimate
from scarlet.experiment.problem import Problem
from scarlet.models.registry import Weights, model_factory
from scarlet.protocol.server import ClosedRound, Server
from scarlet.protocol.types import Labels
from scarlet.records import RoundRecord, RunResult
from scarlet.training import native_library
from scarlet.training.server_model import ServerModel
from scarlet.training.train import Samples, evaluate
from scarlet.wire.ledger import Ledger

DOCUMENTED = {
    "round",
    "server_accuracy",
    "client_accuracy",
    "server_loss",
    "uplink_bytes",
    "downlink_bytes",
    "cumulative_bytes",
    "cache_hit_ratio",
    "mean_teacher_entropy",
    "seconds",
}
TINY = scarlet.Config(
    rounds=13,
    clients=3,
    samples_per_client=30,
    test_per_client=10,
    public_size=60,
    public_per_round=20,
    local_epochs=1,
    codec="reference",  # whose bytes follow from the counts of samples
    workers=1,
)
METHOD = scarlet.ScarletConfig(cache_duration=3)


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def lines(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def means_of_the_last_10(rounds: list[dict[str, Any]], key: str) -> float:
    values = [line[key] for line in rounds[-10:] if line[key] is not None]
    return float(sum(values) / len(values))


def measured_again(directory: Path) -> tuple[float, float]:
    """Accuracy and loss of the server's saved weights on the whole test split."""
    digits = load_private("mnist5k", directory)
    model = model_factory("cnn", 10, (1, 28, 28))()
    model.load_state_dict(load_file(directory / "server.safetensors"))
    return evaluate(model, Samples(torch.from_numpy(digits.test_images), torch.from_numpy(digits.test_labels)))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunResult]:
    """A finished run of 13 rounds, three more than a summary looks at."""
    directory = tmp_path_factory.mktemp("runs") / "deep" / "one"
    return directory, scarlet.run(METHOD, TINY, out=directory)


def test_a_run_directory_holds_exactly_these_files(run: tuple[Path, RunResult]) -> None:
    assert {path.name for path in run[0].iterdir()} == {
        "config.json",
        "metrics.jsonl",
        "ledger.csv",
        "summary.json",
        "server.safetensors",
        "report.html",
        "partition.svg",
    }


def test_config_json_names_every_option_and_leaves_nothing_that_follows_from_the_data_open(
    run: tuple[Path, RunResult],
) -> None:
    config = read(run[0] / "config.json")
    assert config == run[1].config
    assert config == {
        **json.loads(json.dumps(asdict(TINY))),
        **asdict(METHOD),
        "method": "scarlet",
        "public": "digits",
        "model": "cnn",
        "engine": "contiguous" if native_library.compiled() is None else "native",
    }


def test_metrics_has_a_line_a_round_with_the_documented_keys(run: tuple[Path, RunResult]) -> None:
    rounds = lines(run[0])
    assert [line["round"] for line in rounds] == list(range(1, 14))
    assert all(line.keys() >= DOCUMENTED for line in rounds)
    assert rounds == [asdict(record) for record in run[1].rounds]


def test_cumulative_bytes_are_the_sum_of_both_directions_so_far(run: tuple[Path, RunResult]) -> None:
    so_far = 0
    for line in lines(run[0]):
        so_far += line["uplink_bytes"] + line["downlink_bytes"]
        assert line["cumulative_bytes"] == so_far
    assert so_far > 0


def test_the_cache_hits_after_the_first_round_and_hits_send_fewer_bytes(run: tuple[Path, RunResult]) -> None:
    rounds = lines(run[0])
    assert rounds[0]["cache_hit_ratio"] == 0 < max(line["cache_hit_ratio"] for line in rounds)
    for line in rounds:
        misses = round(20 * (1 - line["cache_hit_ratio"]))
        assert line["uplink_bytes"] == 3 * misses * (8 + 4 * 10)


def test_the_summary_has_the_means_of_the_last_10_rounds(run: tuple[Path, RunResult]) -> None:
    summary, rounds = read(run[0] / "summary.json"), lines(run[0])
    for key in ("server_accuracy", "client_accuracy", "server_loss", "cache_hit_ratio", "mean_teacher_entropy"):
        assert summary[key] == pytest.approx(means_of_the_last_10(rounds, key), rel=1e-12), key
    assert summary["server_loss"] != pytest.approx(sum(line["server_loss"] for line in rounds) / 13, rel=1e-6)


def test_the_summary_has_the_totals_of_all_rounds(run: tuple[Path, RunResult]) -> None:
    summary, rounds = read(run[0] / "summary.json"), lines(run[0])
    for key in (
        "uplink_bytes",
        "downlink_bytes",
        "uplink_frame_bytes",
        "downlink_frame_bytes",
        "uplink_transport_bytes",
        "downlink_transport_bytes",
        "report_bytes",
        "seconds",
    ):
        assert summary[key] == pytest.approx(sum(line[key] for line in rounds), rel=1e-12), key
    assert summary["cumulative_bytes"] == rounds[-1]["cumulative_bytes"]
    assert (summary["rounds"], summary["interrupted"], summary["method"]) == (13, False, "scarlet")
    assert len(bytes.fromhex(summary["weights_digest"])) == 16


def test_the_ledgers_rows_sum_to_the_rounds_of_metrics(run: tuple[Path, RunResult]) -> None:
    with (run[0] / "ledger.csv").open(newline="") as file:
        rows = [{name: int(value) for name, value in row.items()} for row in csv.DictReader(file)]
    assert [(row["round"], row["client"]) for row in rows] == [(t, k) for t in range(1, 14) for k in range(3)]
    for line in lines(run[0]):
        own = [row for row in rows if row["round"] == line["round"]]
        sums = {name: sum(row[name] for row in own) for name in own[0]}
        assert sums["uplink_payload"] == line["uplink_bytes"]
        assert sums["downlink_payload"] == line["downlink_bytes"]
        assert sums["uplink_frame"] == line["uplink_frame_bytes"]
        assert sums["downlink_frame"] == line["downlink_frame_bytes"]
        assert sums["report_payload"] + sums["report_frame"] == line["report_bytes"]


def test_the_saved_server_reproduces_the_last_accuracy_and_loss(run: tuple[Path, RunResult]) -> None:
    last = lines(run[0])[-1]
    accuracy, loss = measured_again(run[0])
    assert accuracy == last["server_accuracy"]
    assert loss == pytest.approx(last["server_loss"], rel=1e-5)


def test_the_page_and_the_figure_are_there(run: tuple[Path, RunResult]) -> None:
    page, figure = (run[0] / "report.html").read_text(), (run[0] / "partition.svg").read_text()
    assert page.lstrip().lower().startswith("<!doctype html>") and "SCARLET" in page
    assert "<svg" in figure and "<svg" in page


class Notes:
    """A watcher that writes down what it was told."""

    expected: Estimate

    def __init__(self) -> None:
        self.heard: list[str] = []

    def start(self, config: Mapping[str, object], problem: Problem, expected: Estimate) -> None:
        self.expected = expected
        self.heard.append("start")

    def round(self, record: RoundRecord, ledger: Ledger) -> None:
        self.heard.append(f"round {record.round}")

    def finish(self, result: RunResult, weights: Weights) -> None:
        self.heard.append("finish")


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


def test_a_directory_that_holds_a_run_is_left_alone(run: tuple[Path, RunResult]) -> None:
    before = {path: path.read_bytes() for path in run[0].iterdir()}
    with pytest.raises(ConfigError, match="out must be new or empty"):
        scarlet.run(METHOD, TINY, out=run[0])
    assert {path: path.read_bytes() for path in run[0].iterdir()} == before


def test_an_empty_directory_may_be_used(tmp_path: Path) -> None:
    scarlet.run(METHOD, replace(TINY, rounds=1), out=tmp_path)
    assert len(lines(tmp_path)) == 1


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[RunResult]]:
    out = tmp_path_factory.mktemp("comparison") / "out"
    return out, scarlet.compare([METHOD, scarlet.DsflConfig()], replace(TINY, rounds=2), seeds=(0, 3), out=out)


def test_a_comparison_holds_a_directory_for_each_method_and_seed(comparison: tuple[Path, list[RunResult]]) -> None:
    out, results = comparison
    names = ["scarlet-seed0", "dsfl-seed0", "scarlet-seed3", "dsfl-seed3"]
    assert {path.name for path in out.iterdir()} == {*names, "comparison.json", "summary.json", "report.html"}
    for name, result in zip(names, results, strict=True):
        assert read(out / name / "config.json") == result.config
        assert f"{result.method}-seed{result.config['seed']}" == name
        assert len(lines(out / name)) == 2


def test_the_summary_of_a_comparison_repeats_that_of_each_run(comparison: tuple[Path, list[RunResult]]) -> None:
    out, _ = comparison
    runs = read(out / "summary.json")["runs"]
    assert len(runs) == 4
    for each in runs:
        own = read(out / each["directory"] / "summary.json")
        assert each.items() >= own.items() and each["seed"] == read(out / each["directory"] / "config.json")["seed"]


def test_methods_of_a_seed_share_their_data_and_seeds_do_not(comparison: tuple[Path, list[RunResult]]) -> None:
    out, _ = comparison
    drawn = [(out / name / "partition.svg").read_text() for name in ("scarlet-seed0", "dsfl-seed0", "scarlet-seed3")]
    one, same, other = (re.findall(r'<path d="[^"]+"', figure) for figure in drawn)
    assert len(one) > 10 and one == same != other


def test_a_run_of_a_comparison_is_the_run_alone(comparison: tuple[Path, list[RunResult]]) -> None:
    alone = scarlet.run(METHOD, replace(TINY, rounds=2, seed=3))
    (within,) = (each for each in comparison[1] if each.method == "scarlet" and each.config["seed"] == 3)
    assert alone.summary["weights_digest"] == within.summary["weights_digest"]


def test_one_method_with_two_settings_gets_a_number_for_each(tmp_path: Path) -> None:
    settings = [scarlet.ScarletConfig(beta=1.0), scarlet.ScarletConfig(beta=2.0)]
    scarlet.compare(settings, replace(TINY, rounds=1), out=tmp_path)
    betas = {path.name: read(path / "config.json")["beta"] for path in tmp_path.iterdir() if path.is_dir()}
    assert betas == {"scarlet-1-seed0": 1.0, "scarlet-2-seed0": 2.0}


class CtrlC(Notes):
    """Interrupts after a round, as the keyboard does."""

    def round(self, record: RoundRecord, ledger: Ledger) -> None:
        super().round(record, ledger)
        if record.round == 2:
            raise KeyboardInterrupt


def test_ctrl_c_between_rounds_leaves_a_whole_directory(tmp_path: Path) -> None:
    notes = CtrlC()
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

    def interrupted(server: Server) -> ClosedRound:
        if server.state.round == 2 and server.learner is not None:  # the rehearsal that counts bytes has no learner
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


def test_ctrl_c_ends_a_comparison_with_what_was_done(tmp_path: Path) -> None:
    results = scarlet.compare([METHOD, scarlet.DsflConfig()], TINY, seeds=(0, 1), out=tmp_path, watchers=[CtrlC()])
    assert [result.interrupted for result in results] == [True]
    assert {path.name for path in tmp_path.iterdir()} == {
        "scarlet-seed0",
        "comparison.json",
        "summary.json",
        "report.html",
    }
    assert len(read(tmp_path / "summary.json")["runs"]) == 1
