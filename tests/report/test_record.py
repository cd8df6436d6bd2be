from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from scarlet.errors import DataError
from scarlet.report import read_run
from scarlet.report.record import COUNTS, counted
from tests.report.runs import run, save


def test_a_finished_run_is_read_back_as_it_was(tmp_path: Path) -> None:
    record = run("scarlet", 3, [0.1, None, 0.3], beta=1.5)
    read = read_run(save(record, tmp_path / "run"))
    assert dataclasses.replace(read, rounds=list(read.rounds)) == record


def test_an_interrupted_run_has_an_empty_summary(tmp_path: Path) -> None:
    directory = save(dataclasses.replace(run("scarlet", 0, [0.1]), summary={}), tmp_path / "run")
    assert read_run(directory).summary == {}


@pytest.mark.parametrize("kept", [1, 20, -2])
def test_half_a_last_line_is_ignored(tmp_path: Path, kept: int) -> None:
    directory = save(run("scarlet", 0, [0.1, 0.2]), tmp_path / "run")
    path = directory / "metrics.jsonl"
    first, second = path.read_text().splitlines()
    path.write_text(f"{first}\n{second[:kept]}")
    assert [line["round"] for line in read_run(directory).rounds] == [1]


def test_a_broken_line_before_the_last_is_an_error_that_names_it(tmp_path: Path) -> None:
    directory = save(run("scarlet", 0, [0.1, 0.2]), tmp_path / "run")
    path = directory / "metrics.jsonl"
    path.write_text(path.read_text()[5:])
    with pytest.raises(DataError, match=r"metrics.jsonl line 1 is not JSON"):
        read_run(directory)


def test_unknown_numbers_are_kept_other_values_dropped_and_what_is_not_finite_is_a_gap(
    tmp_path: Path,
) -> None:
    directory = save(run("scarlet", 0, []), tmp_path / "run")
    (directory / "metrics.jsonl").write_text('{"round": 1, "rejections": 2, "note": "x", "server_loss": NaN}\n')
    assert read_run(directory).rounds == ({"round": 1, "rejections": 2, "server_loss": None},)


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


def test_more_bytes_can_be_counted_as_traffic() -> None:
    record = run("scarlet", 0, [0.1, 0.2])
    payload, framed, carried = (counted(record, count).rounds[-1] for count in COUNTS)
    assert payload == record.rounds[-1]
    assert (framed["uplink_bytes"], framed["downlink_bytes"], framed["cumulative_bytes"]) == (
        350_000,
        210_000,
        1_120_000,
    )
    assert (carried["uplink_bytes"], carried["downlink_bytes"]) == (380_000, 230_000)
    assert carried["cumulative_bytes"] == 2 * 610_000
    assert carried["server_accuracy"] == 0.2


def test_a_run_that_did_not_count_them_has_its_payload_alone() -> None:
    record = run("scarlet", 0, [0.1])
    kept = {"round", "uplink_bytes", "cumulative_bytes"}
    old = dataclasses.replace(record, rounds=[{key: line[key] for key in kept} for line in record.rounds])
    assert [counted(old, count).rounds for count in COUNTS] == [tuple(old.rounds)] * 3
