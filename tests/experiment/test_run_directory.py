from __future__ import annotations

import csv
import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean

import pytest

import scarlet
from scarlet.cli.main import main
from scarlet.errors import ConfigError, DataError
from scarlet.experiment.estimate import Estimate
from scarlet.experiment.federation import prepare
from scarlet.experiment.result import Result
from scarlet.experiment.run_directory import RunDirectory, complete, read_run
from tests.experiment.tiny import METHOD, TINY, lines, means_of_the_last_10, measured_again, read
from tests.experiment.watchers import CtrlC

pytestmark = pytest.mark.xdist_group("run directory")  # its fixtures are made once, in one process

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
    "beta",
    "seconds",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A finished run of 13 rounds, three more than a summary looks at."""
    directory = tmp_path_factory.mktemp("runs") / "deep" / "one"
    return directory, scarlet.run(METHOD, TINY, out=directory)


def test_a_run_directory_holds_exactly_these_files(run: tuple[Path, Result]) -> None:
    assert {path.name for path in run[0].iterdir()} == {
        "config.json",
        "agreement.json",
        "metrics.jsonl",
        "ledger.csv",
        "clients.csv",
        "summary.json",
        "server.json",
        "server.safetensors",
        "report.html",
        "partition.svg",
    }


def test_config_json_names_every_option_and_leaves_nothing_that_follows_from_the_data_open(
    run: tuple[Path, Result],
) -> None:
    config = read(run[0] / "config.json")
    assert config == run[1].config
    assert config == {
        **json.loads(json.dumps(asdict(TINY))),
        **asdict(METHOD),
        "method": "scarlet",
        "public": "digits",
        "model": "cnn",
        "engine": "contiguous",
    }


def test_metrics_has_a_line_a_round_with_the_documented_keys(run: tuple[Path, Result]) -> None:
    rounds = lines(run[0])
    assert [line["round"] for line in rounds] == list(range(1, 14))
    assert all(line.keys() >= DOCUMENTED for line in rounds)
    assert rounds == [asdict(record) for record in run[1].records]


def test_metrics_has_the_beta_that_the_server_chose_whatever_the_average_and_the_codec(tmp_path: Path) -> None:
    method = scarlet.ScarletConfig(beta="auto", average="median", cache_duration=3)
    config = replace(TINY, codec="compact", uplink_bits=5, downlink_bits=5, rounds=6)
    result = scarlet.run(method, config, out=tmp_path)
    betas = [line["beta"] for line in lines(tmp_path)]
    assert betas == [record.beta for record in result.records]
    assert all(1 <= beta <= 8 for beta in betas) and len(set(betas)) > 3
    assert read(tmp_path / "config.json")["beta"] == "auto"
    assert "Sharpening exponent beta" in (tmp_path / "report.html").read_text()
    assert [record.beta for record in read_run(tmp_path).records] == betas


def test_cumulative_bytes_are_the_sum_of_both_directions_so_far(run: tuple[Path, Result]) -> None:
    so_far = 0
    for line in lines(run[0]):
        so_far += line["uplink_bytes"] + line["downlink_bytes"]
        assert line["cumulative_bytes"] == so_far
    assert so_far > 0


def test_the_cache_hits_after_the_first_round_and_hits_send_fewer_bytes(run: tuple[Path, Result]) -> None:
    rounds = lines(run[0])
    assert rounds[0]["cache_hit_ratio"] == 0 < max(line["cache_hit_ratio"] for line in rounds)
    for line in rounds:
        misses = round(20 * (1 - line["cache_hit_ratio"]))
        assert line["uplink_bytes"] == 3 * misses * (8 + 4 * 10)


def test_the_summary_has_the_means_of_the_last_10_rounds(run: tuple[Path, Result]) -> None:
    summary, rounds = read(run[0] / "summary.json"), lines(run[0])
    for key in ("server_accuracy", "client_accuracy", "server_loss", "cache_hit_ratio", "mean_teacher_entropy"):
        assert summary[key] == pytest.approx(means_of_the_last_10(rounds, key), rel=1e-12), key
    assert summary["server_loss"] != pytest.approx(sum(line["server_loss"] for line in rounds) / 13, rel=1e-6)


def test_the_summary_has_the_totals_of_all_rounds(run: tuple[Path, Result]) -> None:
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


def test_the_ledgers_rows_sum_to_the_rounds_of_metrics(run: tuple[Path, Result]) -> None:
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


def test_the_saved_server_reproduces_the_last_accuracy_and_loss(run: tuple[Path, Result]) -> None:
    last = lines(run[0])[-1]
    accuracy, loss = measured_again(run[0])
    assert accuracy == last["server_accuracy"]
    assert loss == pytest.approx(last["server_loss"], rel=1e-5)


def test_the_page_and_the_figure_are_there(run: tuple[Path, Result]) -> None:
    page, figure = (run[0] / "report.html").read_text(), (run[0] / "partition.svg").read_text()
    assert page.lstrip().lower().startswith("<!doctype html>") and "SCARLET" in page
    assert "<svg" in figure and "<svg" in page


def test_a_directory_that_holds_a_run_is_left_alone(run: tuple[Path, Result]) -> None:
    before = {path: path.read_bytes() for path in run[0].iterdir()}
    with pytest.raises(ConfigError, match="out must be new or empty"):
        scarlet.run(METHOD, TINY, out=run[0])
    assert {path: path.read_bytes() for path in run[0].iterdir()} == before


def damaged(run: tuple[Path, Result], tmp_path: Path, name: str, content: bytes) -> Path:
    copy = shutil.copytree(run[0], tmp_path / "damaged")
    (copy / name).write_bytes(content)
    return copy


def test_metrics_that_are_not_text_are_one_clear_line(run: tuple[Path, Result], tmp_path: Path) -> None:
    copy = damaged(run, tmp_path, "metrics.jsonl", b'{"round": 1}\n\xff\xfe\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl \(it is not text\)"):
        read_run(copy)


def test_a_finished_run_that_lost_rounds_is_refused(run: tuple[Path, Result], tmp_path: Path) -> None:
    rounds = (run[0] / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    for left in ([], rounds[:-1], [*rounds, rounds[-1]]):
        copy = damaged(run, tmp_path / str(len(left)), "metrics.jsonl", b"".join(left))
        with pytest.raises(
            DataError, match=rf"metrics\.jsonl has {len(left)} of the {len(rounds)} rounds that summary"
        ):
            read_run(copy)


def test_a_finished_run_that_goes_back_to_a_checkpoint_is_not_finished_until_it_is_again(
    run: tuple[Path, Result], tmp_path: Path
) -> None:
    copy = shutil.copytree(run[0], tmp_path / "run")
    RunDirectory(copy, resume=True).rewind(1)
    assert len(read_run(copy).records) == 1 and read_run(copy).interrupted


def test_a_count_that_is_no_number_is_left_out(run: tuple[Path, Result], tmp_path: Path) -> None:
    copy = damaged(run, tmp_path, "metrics.jsonl", b'{"round": 1, "rejections": {"a": "b"}, "failures": {"c": 2}}\n')
    (copy / "summary.json").unlink()
    (record,) = read_run(copy).records
    assert (record.rejections, record.failures) == ({}, {"c": 2})


def test_a_number_that_was_not_recorded_has_its_default(run: tuple[Path, Result], tmp_path: Path) -> None:
    copy = damaged(run, tmp_path, "metrics.jsonl", b'{"round": 1, "uplink_bytes": null, "server_accuracy": null}\n')
    (copy / "summary.json").unlink()
    (record,) = read_run(copy).records
    assert (record.uplink_bytes, record.server_accuracy) == (0, None)


@pytest.mark.parametrize("content", [b"", b"nothing\n", b"round,client\nx,0\n"])
def test_a_ledger_that_is_damaged_is_one_clear_line(run: tuple[Path, Result], tmp_path: Path, content: bytes) -> None:
    copy = damaged(run, tmp_path, "ledger.csv", content)
    with pytest.raises(DataError, match=r"ledger\.csv is damaged"):
        RunDirectory(copy, resume=True).rewind(3)


def test_a_run_that_was_killed_at_its_very_end_is_completed(run: tuple[Path, Result], tmp_path: Path) -> None:
    copy = shutil.copytree(run[0], tmp_path / "killed")
    (copy / "report.html").unlink()
    (copy / "checkpoint").mkdir()
    complete(read_run(copy))
    assert (copy / "report.html").exists() and not (copy / "checkpoint").exists()


def test_a_kill_before_the_new_page_leaves_no_page_of_the_run_as_it_was_when_it_was_interrupted(
    run: tuple[Path, Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(run[0], tmp_path / "killed")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    directory = RunDirectory(copy, resume=True)
    directory.start(run[1].config, prepare(TINY), Estimate(0, 0, 0, 0, "exactly"))
    monkeypatch.setattr("scarlet.experiment.run_directory.write_page", killed)
    with pytest.raises(KeyboardInterrupt):
        directory.finish(run[1])
    assert (copy / "summary.json").exists() and not (copy / "report.html").exists()


def test_an_empty_directory_may_be_used(tmp_path: Path) -> None:
    scarlet.run(METHOD, replace(TINY, rounds=1), out=tmp_path)
    assert len(lines(tmp_path)) == 1


def test_clients_csv_has_the_accuracy_of_every_client_and_evaluated_round(tmp_path: Path) -> None:
    scarlet.run(METHOD, replace(TINY, rounds=5, eval_every=2, model="cnn,mlp"), out=tmp_path)
    with (tmp_path / "clients.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(int(row["round"]), row["client"], row["name"]) for row in rows] == [
        (round, number, number) for round in (2, 4, 5) for number in "012"
    ]
    assert {row["model"] for row in rows} == {"cnn", "mlp"}
    for line in lines(tmp_path):
        own = [(row["model"], float(row["accuracy"])) for row in rows if int(row["round"]) == line["round"]]
        found = {model: [value for name, value in own if name == model] for model, _ in sorted(own)}
        assert line["accuracy_by_model"] == {model: pytest.approx(mean(values)) for model, values in found.items()}
        assert line["client_accuracy"] == (pytest.approx(mean(value for _, value in own)) if own else None)


def test_the_agreement_of_a_run_stays_the_same_when_it_is_resumed_and_differs_from_any_other(tmp_path: Path) -> None:
    notes = CtrlC(2)
    scarlet.run(METHOD, TINY, out=tmp_path / "one", watchers=[notes])
    begun = read(tmp_path / "one" / "agreement.json")
    scarlet.run(METHOD, TINY, out=tmp_path / "one", resume=True)
    assert read(tmp_path / "one" / "agreement.json") == begun
    scarlet.run(METHOD, TINY, out=tmp_path / "two")
    other = read(tmp_path / "two" / "agreement.json")
    assert {key for key in begun if begun[key] != other[key]} == {"nonce", "digest"}
    assert begun["public"] == read(tmp_path / "one" / "summary.json")["public_fingerprint"]


def test_a_model_for_the_server_alone_is_not_one_of_the_clients_when_the_run_goes_on(tmp_path: Path) -> None:
    config = replace(TINY, server_model="mlp", rounds=4)
    whole = scarlet.run(METHOD, config)
    scarlet.run(METHOD, config, out=tmp_path, watchers=[CtrlC(2)])
    assert read(tmp_path / "config.json")["model"] == "cnn" and read(tmp_path / "config.json")["server_model"] == "mlp"
    assert main(["resume", str(tmp_path), "--json"]) == 0
    assert read(tmp_path / "summary.json")["weights_digest"] == whole.summary["weights_digest"]


def test_a_summary_has_the_last_evaluations_and_the_card_the_last_one(tmp_path: Path) -> None:
    config = replace(TINY, rounds=13, eval_every=4, stop_at_mb=0.0001)
    scarlet.run(METHOD, replace(config, rounds=9), out=tmp_path / "cut")
    assert read(tmp_path / "cut" / "summary.json")["server_accuracy"] is None
    result = scarlet.run(METHOD, replace(config, stop_at_mb=None), out=tmp_path / "run")
    values = [each.server_accuracy for each in result.records if each.server_accuracy is not None]
    assert len(values) == 4 and result.summary["server_accuracy"] == pytest.approx(mean(values))
    assert read(tmp_path / "run" / "server.json")["accuracy"] == values[-1]
