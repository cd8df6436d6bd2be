"""A run that is killed and resumed is, at its end, the run that nobody disturbed."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from scarlet.cli import main
from scarlet.experiment.config_json import unflatten
from scarlet.experiment.run import run
from scarlet.store import Folder
from tests.e2e import kills
from tests.experiment.watchers import CtrlC

pytestmark = pytest.mark.xdist_group("resume")  # its fixtures are made once, in one process

OPTIONS = [
    *("--rounds", "12", "--clients", "6", "--samples-per-client", "60", "--test-per-client", "20", "--workers", "2"),
    *("--public-size", "400", "--public-per-round", "60", "--local-epochs", "1", "--distil-epochs", "1"),
    *("--participation", "0.7", "--dropout", "0.2", "--cache-duration", "4"),
    *("--model", "cnn,mlp", "--momentum", "0.9", "--lr", "0.02", "--distil-lr", "0.02", "--wipe", "0.1"),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("resume") / "whole"
    assert main(["run", "scarlet", *OPTIONS, "--out", str(directory)]) == 0
    return directory


@pytest.fixture(scope="module")
def interrupted(whole: Path) -> Path:
    """The run, interrupted in round 8, when the checkpoints of rounds 6 and 7 are there."""
    method, config = unflatten(json.loads((whole / "config.json").read_text()), "config.json")
    directory = whole.with_name("interrupted")
    assert run(method, config, out=directory, watchers=[CtrlC(8)]).interrupted
    return directory


@pytest.fixture
def cut(interrupted: Path, tmp_path: Path) -> Path:
    """A copy of the interrupted run."""
    return shutil.copytree(interrupted, tmp_path / "cut")


def test_a_run_that_is_killed_three_times_ends_as_if_it_had_not_been(whole: Path, tmp_path: Path) -> None:
    rng, directory = random.Random(0), tmp_path / "killed"
    for kill in range(3):  # `python -m tests.e2e.kills` has more; each is somewhere in a round
        instant = kills.Instant(directory, 3 * kill + rng.randint(1, 3), rng.randint(0, 40))
        assert kills.disturb(directory, OPTIONS, instant, rng) in ("parent", "worker")
    kills.finish(directory, OPTIONS)
    assert kills.outcome(directory) == kills.outcome(whole)


def test_a_run_goes_on_with_another_number_of_workers(cut: Path, whole: Path) -> None:
    assert main(["resume", str(cut), "--workers", "1"]) == 0
    assert kills.outcome(cut) == kills.outcome(whole)


@pytest.mark.parametrize("name", ["7.safetensors", "7.json"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_says_so(
    name: str, cut: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = bytearray((cut / "checkpoint" / name).read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (cut / "checkpoint" / name).write_bytes(damaged)
    assert main(["resume", str(cut)]) == 0
    assert "checkpoint 7 is damaged" in capsys.readouterr().err
    assert kills.outcome(cut) == kills.outcome(whole)


def test_half_a_line_at_the_end_of_the_metrics_is_written_anew(cut: Path, whole: Path) -> None:
    with (cut / "metrics.jsonl").open("a") as file:
        file.write('{"round": 8, "server_acc')
    with (cut / "ledger.csv").open("a") as file:
        file.write("8,0,48")
    assert main(["resume", str(cut)]) == 0
    assert kills.outcome(cut) == kills.outcome(whole)


def test_a_full_disk_ends_the_run_with_one_line_and_the_run_can_go_on(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    directory, honest = tmp_path / "full", Folder.write

    def write(self: Folder, name: str, data: bytes) -> None:
        if name.startswith("5."):
            honest(self, name, data[: len(data) // 2])
            raise OSError(28, "No space left on device")
        honest(self, name, data)

    monkeypatch.setattr(Folder, "write", write)
    assert main(["run", "scarlet", *OPTIONS, "--out", str(directory)]) == 2
    complaint = capsys.readouterr().err.splitlines()
    assert len(complaint) == 1 and "No space left on device" in complaint[0] and "scarlet resume" in complaint[0]
    monkeypatch.setattr(Folder, "write", honest)
    assert main(["resume", str(directory)]) == 0
    assert kills.outcome(directory) == kills.outcome(whole)


def test_a_comparison_that_was_cut_off_is_finished(tmp_path: Path) -> None:
    options = [
        *("--rounds", "2", "--clients", "4", "--samples-per-client", "50", "--test-per-client", "10"),
        *("--public-size", "60", "--public-per-round", "20", "--workers", "1"),
    ]
    out = tmp_path / "comparison"
    assert main(["compare", "scarlet", "dsfl", "--seeds", "0,1", *options, "--out", str(out)]) == 0
    runs = ("scarlet-seed0", "dsfl-seed0", "scarlet-seed1", "dsfl-seed1")
    before = {name: kills.outcome(out / name) for name in runs}
    kept = (out / "scarlet-seed0" / "metrics.jsonl").stat().st_mtime_ns
    (out / "dsfl-seed0" / "summary.json").unlink()  # cut off at its very end
    shutil.rmtree(out / "scarlet-seed1")
    (out / "scarlet-seed1").mkdir()  # killed before it had written anything
    shutil.rmtree(out / "dsfl-seed1")  # not begun
    (out / "report.html").unlink()
    assert main(["resume", str(out)]) == 0
    assert {name: kills.outcome(out / name) for name in runs} == before
    assert (out / "scarlet-seed0" / "metrics.jsonl").stat().st_mtime_ns == kept
    assert (out / "report.html").exists()


def test_a_checkpoint_of_other_options_is_refused(cut: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = json.loads((cut / "config.json").read_text())
    (cut / "config.json").write_text(json.dumps(config | {"beta": 3.0}))
    assert main(["resume", str(cut)]) == 2
    complaint = capsys.readouterr().err.splitlines()
    assert len(complaint) == 1 and "is of other options or other data" in complaint[0]


def test_what_is_not_a_run_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resume", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("scarlet: config cannot be read: ")


def test_a_finished_run_has_no_checkpoints_and_an_interrupted_one_has_two(whole: Path, cut: Path) -> None:
    assert not (whole / "checkpoint").exists()
    assert {path.name for path in (cut / "checkpoint").glob("*.json")} == {"6.json", "7.json"}


def test_a_finished_run_is_left_alone(whole: Path) -> None:
    before = kills.outcome(whole)
    assert main(["resume", str(whole)]) == 0
    assert kills.outcome(whole) == before
