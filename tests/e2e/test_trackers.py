"""Each tracker against its real library: what is written can be read back, exactly and once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import scarlet
from scarlet.cli import main
from scarlet.experiment.run_directory import read_run
from scarlet.records import RunResult
from scarlet.trackers.registry import open_tracker
from scarlet.trackers.tracker import Place, flat, numbers
from tests.experiment.tiny import METHOD, TINY, lines, read
from tests.experiment.watchers import CtrlC
from tests.trackers.read_back import NAMES, Series, events, mlflow_run, mlflow_runs, series, wandb_records

pytestmark = pytest.mark.xdist_group("trackers")  # the libraries are slow to load, and fixtures are made once

CONFIG = replace(TINY, rounds=4, eval_every=2)  # accuracies have gaps


@pytest.fixture(scope="module", autouse=True)
def _nothing_at_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for variable in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
            patch.setenv(variable, str(tmp_path_factory.mktemp("wandb")))
        patch.setenv("WANDB_MODE", "online")  # must not matter
        yield


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: one was interrupted when round 3 was written but not saved, so round 3 is run again; one is whole."""
    out = tmp_path_factory.mktemp("compared")
    methods = [METHOD, scarlet.DsflConfig()]
    (first,) = scarlet.compare(methods, CONFIG, out=out, watchers=[CtrlC(3)], track=NAMES)
    assert len(first.records) == 3 and first.interrupted
    for name in NAMES:
        expected = as_kept_by(name, recorded(out / "scarlet-seed0"))
        assert series(name, out / "scarlet-seed0", out) == expected, "what Ctrl-C left"
    assert mlflow_run("scarlet-seed0", out).info.status == "KILLED"
    assert main(["resume", str(out), "--json"]) == 0  # it finds the trackers by what they left
    return out


@pytest.fixture(scope="module")
def run(comparison: Path) -> RunResult:
    """The run that was not interrupted."""
    return read_run(comparison / "dsfl-seed0")


def recorded(directory: Path) -> Series:
    """Every number of metrics.jsonl by round."""
    found: Series = {}
    for line in lines(directory):
        for name, value in numbers(flat(line)).items():
            if name != "round":
                found.setdefault(name, []).append((line["round"], value))
    return found


def as_kept_by(name: str, values: Series) -> Series:
    """TensorBoard has float32, and the others have what metrics.jsonl has."""
    if name != "tensorboard":
        return values
    return {key: [(round, float(np.float32(value))) for round, value in each] for key, each in values.items()}


@pytest.mark.parametrize("directory", ["scarlet-seed0", "dsfl-seed0"], ids=["resumed", "whole"])
@pytest.mark.parametrize("name", NAMES)
def test_every_number_of_metrics_jsonl_is_in_the_tracker_once_at_its_round(
    name: str, directory: str, comparison: Path
) -> None:
    expected = recorded(comparison / directory)
    assert [round for round, _ in expected["seconds"]] == [1, 2, 3, 4]
    assert [round for round, _ in expected["server_accuracy"]] == [2, 4]
    assert series(name, comparison / directory, comparison) == as_kept_by(name, expected)


def test_trackers_change_neither_the_results_nor_the_options_of_a_run(comparison: Path, tmp_path: Path) -> None:
    untracked = scarlet.run(METHOD, CONFIG, out=tmp_path)
    assert read(comparison / "scarlet-seed0" / "config.json") == read(tmp_path / "config.json")
    summary = read(comparison / "scarlet-seed0" / "summary.json")
    for name in ("weights_digest", "server_accuracy", "cumulative_bytes"):
        assert summary[name] == untracked.summary[name]


def test_tensorboard_has_the_options_the_summary_and_the_clients_accuracies(run: RunResult) -> None:
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    found = events(directory(run))
    content = found.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    options = HParamsPluginData.FromString(content).session_start_info.hparams
    assert options["clients"].number_value == 3 and options["method"].string_value == "dsfl"
    assert options["deadline"].string_value == "None"
    (text,) = found.Tensors("summary/text_summary")
    assert str(run.summary["weights_digest"]) in text.tensor_proto.string_val[0].decode()
    (mean,) = found.Scalars("summary/server_accuracy")
    assert (mean.step, mean.value) == (4, np.float32(str(run.summary["server_accuracy"])))
    assert [event.step for event in found.Histograms("accuracy_of_clients")] == [2, 4]


def test_mlflow_has_the_options_and_the_summary(run: RunResult) -> None:
    found = mlflow_run("dsfl-seed0", directory(run).parent)
    assert found.info.status == "FINISHED"
    assert found.data.params == {name: str(value) for name, value in run.config.items()}
    assert found.data.metrics["summary/server_accuracy"] == run.summary["server_accuracy"]
    assert found.data.tags["summary/weights_digest"] == run.summary["weights_digest"]


def test_wandb_has_the_options_and_the_summary_and_stays_offline(run: RunResult) -> None:
    records = wandb_records(directory(run))
    (began,) = (record.run for record in records if record.HasField("run"))
    options = {item.key: item.value_json for item in began.config.update}
    assert (began.project, began.display_name, options["clients"], options["method"]) == (
        *("scarlet", "dsfl-seed0", "3", '"dsfl"'),
    )
    summary = {item.key: item.value_json for each in records for item in each.summary.update}
    assert summary["summary/weights_digest"] == f'"{run.summary["weights_digest"]}"'
    assert float(summary["summary/server_accuracy"]) == run.summary["server_accuracy"]
    assert [each.exit.exit_code for each in records if each.HasField("exit")] == [0]


def directory(run: RunResult) -> Path:
    assert run.directory is not None
    return run.directory


def numbers_of_round(round: int) -> Mapping[str, float]:
    return {"answers": 3, "seconds": round / 3, "failures/lost": 1, "accuracy_by_model/python:small net": 0.1 * round}


def expected_rounds(last: int) -> Series:
    return {key: [(round, numbers_of_round(round)[key]) for round in range(1, last + 1)] for key in numbers_of_round(1)}


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_is_opened_again_goes_on_after_its_last_round_and_gets_those_that_it_lacks(
    name: str, comparison: Path, tmp_path: Path
) -> None:
    place = Place(tmp_path / name, comparison)  # a database with its tables takes long to make
    opened = open_tracker(name, place, {"workers": 1}, [])
    for round in (1, 2):
        opened.log(round, numbers_of_round(round), ())
    opened.close("failed", 2, {})
    identity = _identity(name, place)
    again = open_tracker(name, replace(place, resumed=True), {"workers": 2}, [numbers_of_round(t) for t in (1, 2, 3)])
    again.log(4, numbers_of_round(4), ())
    again.close("finished", 4, {"server_accuracy": 0.5})
    assert series(name, place.run, place.shared) == as_kept_by(name, expected_rounds(4))
    assert _identity(name, place) == identity


def _identity(name: str, place: Place) -> str:
    if name == "tensorboard":
        return "one folder"
    if name == "mlflow":
        return str(mlflow_run(place.name, place.shared).info.run_id)
    (file,) = (place.run / "wandb").glob("offline-run-*/*.wandb")
    return file.stem


def test_a_comparison_has_one_mlflow_store_with_a_run_for_each_method(comparison: Path) -> None:
    names = [found.info.run_name for found in mlflow_runs(comparison)]
    assert {"scarlet-seed0", "dsfl-seed0"} <= set(names) and len(set(names)) == len(names)
    assert not list(comparison.glob("*/mlflow.db"))
