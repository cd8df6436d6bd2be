from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import scarlet
from scarlet.errors import ConfigError
from scarlet.experiment.planned import read_plan
from scarlet.records import RunResult
from tests.experiment.tiny import METHOD, TINY, lines, read
from tests.experiment.watchers import CtrlC

pytestmark = pytest.mark.xdist_group("comparison")  # its fixtures are made once, in one process


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
    one, same, other = (re.findall(r"<circle [^>]+>", figure) for figure in drawn)
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


def test_ctrl_c_ends_a_comparison_with_what_was_done(tmp_path: Path) -> None:
    results = scarlet.compare([METHOD, scarlet.DsflConfig()], TINY, seeds=(0, 1), out=tmp_path, watchers=[CtrlC(2)])
    assert [result.interrupted for result in results] == [True]
    assert {path.name for path in tmp_path.iterdir()} == {
        "scarlet-seed0",
        "comparison.json",
        "summary.json",
        "report.html",
    }
    assert len(read(tmp_path / "summary.json")["runs"]) == 1


@pytest.mark.parametrize("content", ["[]", '{"runs": 3}', '{"runs": [{}]}', '{"runs": [7]}', '{"runs": []}', "{"])
def test_a_damaged_plan_is_one_clear_line(content: str, tmp_path: Path) -> None:
    (tmp_path / "comparison.json").write_text(content)
    with pytest.raises(ConfigError, match=r"comparison\.json .*; restore it; for a sweep, remove it"):
        read_plan(tmp_path / "comparison.json")
