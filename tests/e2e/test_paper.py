"""Figures made from real runs, tiny ones: what they leave, what they share, and what is not repeated."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from scarlet.cli import main
from scarlet.paper.exhibit import Context
from scarlet.paper.make import EXHIBITS, make, runs_of
from scarlet.paper.runs import Runs
from scarlet.paper.scale import SCALES
from tests.e2e.test_sweep import TINY as SMALL

TINY = replace(
    SCALES["demo"],
    base={name: value for name, value in SMALL.items() if name not in ("method", "seed")} | {"rounds": 3},
    seeds=(0, 1),
    fewer_seeds=(0, 1),
)


@pytest.mark.parametrize("name", [name for name, each in EXHIBITS.items() if not each.wants(SCALES["demo"])])
def test_what_is_calculated_agrees_with_the_paper(name: str) -> None:
    found = EXHIBITS[name].show(Context(SCALES["demo"], Runs(SCALES["demo"], []), None))
    assert found.holds is True, found.sentence
    assert found.rows


def test_figures_share_their_runs_and_the_same_command_repeats_none(tmp_path: Path) -> None:
    (first,) = make([EXHIBITS["centralized"]], TINY, tmp_path)
    runs = {path.parent.name: path.stat().st_mtime_ns for path in tmp_path.glob("runs-demo/*/metrics.jsonl")}
    assert len(runs) == 4
    assert first.shown.sentence == (first.directory / "sentence.txt").read_text().strip()

    both = make([EXHIBITS["centralized"], EXHIBITS["beta"]], TINY, tmp_path)
    later = {path.parent.name: path.stat().st_mtime_ns for path in tmp_path.glob("runs-demo/*/metrics.jsonl")}
    assert runs.items() < later.items() and len(later) == len(runs) - 2 + len(
        runs_of([EXHIBITS["beta"]], TINY, None)
    )  # of its runs two were there
    assert both[0].shown.rows == first.shown.rows
    page = (tmp_path / "results.md").read_text()
    assert all(f"]({each.exhibit.name}/figure.svg)" in page and each.shown.found in page for each in both)
    says = {True: "yes", False: "no", None: "cannot tell"}
    rows = [
        f"[{each.exhibit.title}](#" in line and line.endswith(f"| {says[each.shown.holds]} |")
        for line, each in zip(page.splitlines()[4:6], both, strict=True)
    ]
    assert all(rows)


def test_a_figure_whose_run_fails_is_left_out_and_the_others_are_made(tmp_path: Path) -> None:
    (tmp_path / "runs-demo").mkdir()
    (tmp_path / "runs-demo" / "centralized-alpha0.3-seed0").write_text("in the way")
    made = make([EXHIBITS["centralized"], EXHIBITS["era-entropy"]], TINY, tmp_path)
    assert [each.exhibit.name for each in made] == ["era-entropy"]
    assert not (tmp_path / "centralized").exists()


def test_the_command_lists_what_there_is_and_makes_what_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["paper", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in listed] == list(EXHIBITS)
    assert all(row.keys() == {"name", "claim", "seconds"} and row["seconds"] > 0 for row in listed)

    assert main(["paper", "era-entropy", "--json", "--out", str(tmp_path)]) == 0
    (made,) = json.loads(capsys.readouterr().out)
    assert made["name"] == "era-entropy" and made["holds"] is True and made["sentence"].startswith("The claim holds: ")
    assert (Path(made["directory"]) / "figure.svg").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "scarlet paper takes NAME"),
        (["performence"], "unknown figure 'performence': did you mean 'performance'?"),
        (["costs", "--scale", "tiny"], "--scale must be demo, small or full, got 'tiny'"),
        (["costs", "--out", "taken"], "out must be a directory, and taken is a file; choose another name"),
    ],
)
def test_a_mistake_is_one_line(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("taken").write_text("a file")
    assert main(["paper", *words]) == 2
    complaint = capsys.readouterr().err
    assert said in complaint and complaint.count("\n") == 1
