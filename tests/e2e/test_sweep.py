"""A grid of runs side by side, killed and continued."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import scarlet
from scarlet.cli import main
from scarlet.errors import ConfigError, DataError, ScarletError
from scarlet.experiment.side_by_side import Progress
from scarlet.experiment.sweep import sweep

pytestmark = pytest.mark.xdist_group("sweep")

TINY: dict[str, object] = {
    "method": ["scarlet", "dsfl"],
    "seed": [0, 1],
    "rounds": 6,
    "clients": 3,
    "samples_per_client": 30,
    "test_per_client": 10,
    "public_size": 60,
    "public_per_round": 20,
    "local_epochs": 1,
}
RUNS = ["scarlet-seed0", "dsfl-seed0", "scarlet-seed1", "dsfl-seed1"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sweep") / "out"
    assert len(sweep(TINY, out=out, processes=2)) == 4
    return out


def timeless(path: Path) -> Any:
    """A summary.json without what two runs of the same never share."""
    runs = json.loads(path.read_text())["runs"]
    return [{key: value for key, value in run.items() if key != "seconds"} for run in runs]


def metrics(out: Path) -> dict[str, list[dict[str, object]]]:
    found = {name: (out / name / "metrics.jsonl").read_text().splitlines() for name in RUNS}
    return {
        name: [{key: value for key, value in json.loads(line).items() if key != "seconds"} for line in lines]
        for name, lines in found.items()
    }


def begin(out: Path, grid: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "scarlet", "sweep", str(grid), "--out", str(out), "--processes", "2"]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background may ignore it
    )


def written(tmp_path: Path) -> Path:
    lines = [f"{name} = {json.dumps(value)}" for name, value in TINY.items()]
    (tmp_path / "grid.toml").write_text("\n".join(lines))
    return tmp_path / "grid.toml"


def rounds_of(out: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in out.glob("*/metrics.jsonl"))


def test_each_run_is_what_it_would_be_by_itself_and_a_page_shows_all(undisturbed: Path, tmp_path: Path) -> None:
    config = scarlet.Config(**{k: v for k, v in TINY.items() if k not in ("method", "seed")}, seed=1, workers=1)  # type: ignore[arg-type]
    alone = scarlet.run(scarlet.DsflConfig(), config, out=tmp_path / "alone")
    found = {each["directory"]: each for each in timeless(undisturbed / "summary.json")}
    assert list(found) == RUNS
    assert found["dsfl-seed1"]["weights_digest"] == alone.summary["weights_digest"]
    index = (undisturbed / "index.html").read_text()
    assert "4 runs: 4 finished." in index and "data-refresh=" not in index
    pages = [undisturbed / name / "report.html" for name in RUNS]
    assert all(f'href="{page.parent.name}/report.html"' in index for page in pages)
    assert all('src="../plotly.min.js"' in page.read_text() for page in pages), "the library is there once"
    assert {path.name for path in (undisturbed / "dsfl-seed1").iterdir()} == {
        path.name for path in (tmp_path / "alone").iterdir()
    }


def test_a_sweep_that_is_killed_twice_goes_on_and_ends_as_one_that_was_not(undisturbed: Path, tmp_path: Path) -> None:
    out, grid = tmp_path / "out", written(tmp_path)
    for least in (2, 9):
        process = begin(out, grid)
        while rounds_of(out) < least and process.poll() is None:
            time.sleep(0.02)
        process.kill()
        process.wait()
        time.sleep(0.3)  # until its runs have ended too
        before = rounds_of(out)
        time.sleep(1)
        assert rounds_of(out) == before < 24
    assert begin(out, grid).wait() == 0
    assert metrics(out) == metrics(undisturbed)
    assert timeless(out / "summary.json") == timeless(undisturbed / "summary.json")


def test_ctrl_c_ends_all_runs_after_a_whole_round_and_resume_goes_on(undisturbed: Path, tmp_path: Path) -> None:
    out, grid = tmp_path / "out", written(tmp_path)
    process = begin(out, grid)
    while rounds_of(out) < 3 and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate()
    assert process.returncode == 130
    assert "interrupted: the numbers are those of the rounds so far" in said and "Traceback" not in said
    resumed = subprocess.run([sys.executable, "-m", "scarlet", "resume", str(out), "--json"], stdout=subprocess.PIPE)
    assert resumed.returncode == 0
    assert [run["interrupted"] for run in json.loads(resumed.stdout)["runs"]] == [False] * 4
    assert metrics(out) == metrics(undisturbed)


def test_values_that_come_to_the_same_run_on_these_data_are_shown_once(tmp_path: Path) -> None:
    table = {**TINY, "method": "dsfl", "seed": 0, "rounds": 1, "engine": ["auto", "contiguous"]}
    both = sweep(table, out=tmp_path / "out")
    assert both[0].config == both[1].config
    assert "2 runs: 2 finished." in (tmp_path / "out" / "index.html").read_text()
    assert main(["resume", str(tmp_path / "out")]) == 0


@pytest.mark.parametrize("seconds", [0.2, 1.0])
def test_ctrl_c_in_a_terminal_while_torch_is_loaded_leaves_no_traceback(tmp_path: Path, seconds: float) -> None:
    process = begin(tmp_path / "out", written(tmp_path))
    while not (tmp_path / "out" / "index.html").exists():  # it is written just before the server starts
        time.sleep(0.01)
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to all processes
    said, _ = process.communicate()
    assert process.returncode == 130 and "Traceback" not in said, said


def test_finished_runs_are_taken_up_where_the_list_of_runs_is_lost(undisturbed: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(undisturbed, tmp_path / "out"))
    before = {path: path.read_bytes() for path in out.glob("*/metrics.jsonl")}
    (out / "sweep.json").write_text("")
    with pytest.raises(ConfigError, match=r"sweep.json cannot be read .*; for a sweep, remove it and give the command"):
        sweep(TINY, out=out)
    (out / "sweep.json").unlink()
    sweep(TINY, out=out)
    assert {path: path.read_bytes() for path in before} == before
    assert (out / "sweep.json").read_bytes() == (undisturbed / "sweep.json").read_bytes()


def test_a_finished_sweep_is_left_as_it_is_and_takes_further_values(undisturbed: Path, tmp_path: Path) -> None:
    seen: list[list[Progress]] = []
    before = {path: path.stat().st_mtime_ns for path in undisturbed.glob("*/metrics.jsonl")}
    more = sweep(
        {**TINY, "seed": [0, 1, 2], "method": ["scarlet", "dsfl"]},
        out=undisturbed,
        watch=lambda runs, _: seen.append(list(runs)),
    )
    assert len(more) == 6
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert all(run.state == "finished" for run in seen[-1])
    with pytest.raises(ConfigError, match=r"^out holds other runs: .* has scarlet-seed0 with rounds = 6, which is now"):
        sweep({**TINY, "seed": [0, 1, 2], "rounds": 7}, out=undisturbed)
    with pytest.raises(ConfigError, match=r"^out holds another sweep: .* has the run dsfl-seed0, which the grid"):
        sweep({**TINY, "seed": [0, 1, 2], "method": "scarlet"}, out=undisturbed)


def test_a_run_that_fails_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    table = {**TINY, "method": "dsfl", "seed": 0, "rounds": 2, "lr": [0.1, 1e30]}
    seen: list[Progress] = []
    results = sweep(table, out=tmp_path / "out", processes=2, watch=lambda runs, _: seen.extend(runs))
    last = {run.name: run for run in seen[-2:]}
    assert last["dsfl-lr0.1-seed0"].state == "finished"
    assert last["dsfl-lr1e+30-seed0"].state == "failed" and "smaller lr" in last["dsfl-lr1e+30-seed0"].reason
    assert [result.interrupted for result in results] == [False, True]
    page = (tmp_path / "out" / "index.html").read_text()
    assert "2 runs: 1 finished, 1 failed." in page and "dsfl-lr1e+30-seed0 failed: round 1 failed 10 times" in page
    with pytest.raises(
        ScarletError, match=r"^1 of 2 runs failed, and the others are in .*: dsfl-lr1e\+30-seed0: round 1"
    ):
        sweep(table, out=tmp_path / "out", processes=2)
    # A value that cannot be used can be replaced, because no round would be lost.
    mended = sweep({**table, "lr": [0.1, 0.2]}, out=tmp_path / "out", processes=2)
    assert [result.interrupted for result in mended] == [False, False]


def test_what_cannot_be_run_is_said_before_any_run_begins(tmp_path: Path) -> None:
    for wrong, complaint in (
        ({"samples_per_client": [30, 100_000]}, r"^samples_per_client "),
        ({"model": ["cnn", "nope"]}, r"^unknown model 'nope'"),
        ({"public_per_round": [20, 100_000]}, r"^public_per_round "),
        ({"device": "cuda:7"}, r"^device 'cuda:7' cannot be used"),
        ({"stop_when": "converged", "private_validation": 0.1}, r"^stop_when converged needs 40 evaluations"),
    ):
        with pytest.raises(ConfigError, match=complaint):
            sweep({**TINY, **wrong}, out=tmp_path / "out")
        assert not (tmp_path / "out").exists()
    for arguments, complaint in (
        ({"processes": "2"}, r"^processes must be a whole number or None, got '2'"),
        ({"processes": True}, r"^processes must be a whole number or None, got True"),
        ({"watch": 3}, r"^watch must be a function of the runs"),
        ({"out": None}, r"^out must be the path of a directory, got None"),
    ):
        with pytest.raises(TypeError, match=complaint):
            sweep(TINY, **{"out": tmp_path / "out", **arguments})  # type: ignore[arg-type]


def test_a_sweep_does_not_go_into_the_directory_of_a_comparison(tmp_path: Path) -> None:
    (tmp_path / "scarlet-seed0").mkdir()
    (tmp_path / "comparison.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"^out must be new or empty"):
        sweep(TINY, out=tmp_path)


def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    table = {**TINY, "method": "individual", "seed": 0, "rounds": 1}
    script = tmp_path / "script.py"
    call = f"scarlet.sweep({table!r}, out={str(tmp_path / 'out')!r})"
    script.write_text(f"import scarlet\nprint('once')\nprint(len({call}))\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("once\n1\n", "")


def test_a_method_of_a_script_is_sent_to_its_runs_also_where_it_replaces_another(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "from dataclasses import dataclass\n"
        "import scarlet\n"
        "from scarlet.methods.dsfl import DsflConfig, dsfl\n"
        "@dataclass(frozen=True)\n"
        "class MineConfig:\n"
        "    temperature: float = 0.1\n"
        "def build(config): return dsfl(DsflConfig(temperature=config.temperature))\n"
        "scarlet.register('cfd', 'Mine', MineConfig, build)\n"
        f"table = {TINY!r} | {{'method': ['cfd', 'dsfl'], 'seed': 0, 'rounds': 2}}\n"
        "mine, dsfl = scarlet.sweep(table, out='out')\n"
        "print(mine.title, mine.records[-1].server_accuracy == dsfl.records[-1].server_accuracy)\n"
    )
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("Mine True\n", "")


def test_data_that_are_missing_are_named_once_before_any_run_begins(tmp_path: Path) -> None:
    table = {**TINY, "private": "cifar10", "public": "cifar100", "data_dir": str(tmp_path)}
    with pytest.raises(DataError, match=r"^cifar10 is not under .*; run 'scarlet data get cifar10'"):
        sweep(table, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
