"""The one reader of run directories, `experiment.run_directory.read_run`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from scarlet.errors import DataError
from scarlet.experiment.run_directory import finished, read_run
from scarlet.records import RoundRecord, RunResult
from scarlet.report.curves import measured
from tests.report.runs import run, save


def test_a_finished_run_is_read_back_as_it_was(tmp_path: Path) -> None:
    result = run("scarlet", 3, [0.1, None, 0.3], beta=1.5)
    directory = save(result, tmp_path / "run")
    assert read_run(directory) == finished(directory) == dataclasses.replace(result, directory=directory)


def killed(accuracies: Sequence[float]) -> RunResult:
    return dataclasses.replace(run("scarlet", 0, accuracies), summary={})


def test_a_run_that_was_killed_has_an_empty_summary_and_is_not_finished(tmp_path: Path) -> None:
    directory = save(killed([0.1]), tmp_path / "run")
    assert read_run(directory).summary == {} and read_run(directory).interrupted
    assert finished(directory) is None


def test_a_run_that_was_interrupted_has_a_summary_and_is_not_finished(tmp_path: Path) -> None:
    summary = {"rounds": 1, "interrupted": True}
    directory = save(dataclasses.replace(run("scarlet", 0, [0.1]), summary=summary), tmp_path / "run")
    assert read_run(directory).summary == summary and finished(directory) is None


@pytest.mark.parametrize("kept", [1, 20, -2])
def test_half_a_last_line_is_ignored(tmp_path: Path, kept: int) -> None:
    directory = save(killed([0.1, 0.2]), tmp_path / "run")
    path = directory / "metrics.jsonl"
    first, second = path.read_text().splitlines()
    path.write_text(f"{first}\n{second[:kept]}")
    assert [record.round for record in read_run(directory).records] == [1]


def test_a_broken_line_is_an_error_that_names_it(tmp_path: Path) -> None:
    directory = save(run("scarlet", 0, [0.1, 0.2]), tmp_path / "run")
    path = directory / "metrics.jsonl"
    path.write_text(path.read_text()[5:])
    with pytest.raises(DataError, match=r"metrics.jsonl line 1 is not JSON"):
        read_run(directory)


def test_what_is_not_known_or_of_another_type_is_left_out(tmp_path: Path) -> None:
    directory = save(killed([]), tmp_path / "run")
    line = '{"round": 1, "rejections": 2, "note": "x", "server_loss": 0.5, "client_accuracy": "high"}\n'
    (directory / "metrics.jsonl").write_text(line)
    assert read_run(directory).records == [RoundRecord(1, server_loss=0.5)]


def test_a_value_that_is_not_finite_is_read_as_it_is_and_is_no_measurement_in_a_page(tmp_path: Path) -> None:
    directory = save(killed([]), tmp_path / "run")
    (directory / "metrics.jsonl").write_text('{"round": 1, "server_loss": NaN, "server_accuracy": 0.5}\n')
    (record,) = read_run(directory).records
    assert record.server_loss is not None and math.isnan(record.server_loss)
    assert measured(record, "server_loss") is None and measured(record, "server_accuracy") == 0.5


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", None),
        ("metrics.jsonl", None),
        ("config.json", "{"),
        ("config.json", "[]"),
        ("config.json", '{"method": "scarlet"}'),
        ("summary.json", "{"),
        ("metrics.jsonl", '{"seconds": 1}\n'),
    ],
)
def test_a_run_that_cannot_be_read_is_an_error_of_one_line(tmp_path: Path, name: str, content: str | None) -> None:
    directory = save(run("scarlet", 0, [0.1]), tmp_path / "run")
    if content is None:
        (directory / name).unlink()
    else:
        (directory / name).write_text(content)
    with pytest.raises(DataError) as error:
        read_run(directory)
    assert name in str(error.value)
    assert "\n" not in str(error.value)
