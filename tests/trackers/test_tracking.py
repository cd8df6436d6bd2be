"""Trackers beside a run: which are accepted, and what becomes of the run when one fails."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

import scarlet
from scarlet.cli import main
from scarlet.errors import ConfigError
from scarlet.records import RoundRecord
from scarlet.trackers.registry import TRACKERS, found_in
from scarlet.trackers.tracker import Ending, Numbers, Place, numbers_of
from tests.experiment.tiny import METHOD, TINY
from tests.experiment.watchers import CtrlC, Notes

CONFIG = replace(TINY, rounds=2)


class Fake:
    """Notes what it is told, and fails where it is asked to."""

    fails_at: str = ""
    heard: list[str]

    def __init__(self, place: Place, options: Mapping[str, object], before: Sequence[Numbers]) -> None:
        self._hear(f"open {len(before)}")

    def log(self, round: int, numbers: Numbers, accuracies: Sequence[float]) -> None:
        self._hear(f"round {round}")

    def close(self, ending: Ending, rounds: int, summary: Mapping[str, object]) -> None:
        self._hear(f"close {ending}")

    def _hear(self, what: str) -> None:
        type(self).heard.append(what)
        if what.startswith(self.fails_at or "never"):
            raise RuntimeError("no space left\non this device")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[Fake]:
    """In place of TensorBoard."""

    class Fresh(Fake):
        heard: list[str] = []  # noqa: RUF012

    module = ModuleType("scarlet.trackers.tensorboard")
    module.Run = Fresh  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "scarlet.trackers.tensorboard", module)
    return Fresh


@pytest.mark.parametrize("command", [["run", "scarlet"], ["compare", "scarlet"], ["resume", "nowhere"]])
def test_an_unknown_tracker_is_one_line_with_the_choices(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*command, "--track", "tensorboard,mlfow"]) == 2
    assert capsys.readouterr().err == (
        "scarlet: unknown tracker 'mlfow': did you mean 'mlflow'? (known: mlflow, tensorboard, wandb)\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["run", "compare"])
@pytest.mark.parametrize("name", TRACKERS)
def test_a_missing_library_is_one_line_before_any_data_is_loaded(
    name: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    package = TRACKERS[name].needs[-1]
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    monkeypatch.setattr("scarlet.experiment.run.prepare", None)
    monkeypatch.setattr("scarlet.experiment.comparison.prepare", None)
    assert main([command, "scarlet", "--track", name]) == 2
    expected = f"scarlet: track {name} needs the package {package}; install scarlet-fl[{name}]\n"
    assert capsys.readouterr().err == expected
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_the_name_of_a_library_is_not_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wandb").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    for loaded in [each for each in sys.modules if each.split(".")[0] == "wandb"]:
        monkeypatch.delitem(sys.modules, loaded)
    with pytest.raises(ConfigError, match="track wandb needs the package wandb"):
        scarlet.run(METHOD, CONFIG, out=tmp_path / "out", track="wandb")


def test_without_a_directory_a_tracker_has_no_place(fake: type[Fake]) -> None:
    with pytest.raises(ConfigError, match="track tensorboard needs a directory for its files; give out"):
        scarlet.run(METHOD, CONFIG, track=("tensorboard",))
    with pytest.raises(ConfigError, match="track tensorboard needs a directory"):
        scarlet.compare([METHOD], CONFIG, track=("tensorboard",))


def test_a_run_without_trackers_loads_none_of_their_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for entry in TRACKERS.values():
        for package in entry.needs:
            monkeypatch.setitem(sys.modules, package, None)
    scarlet.run(METHOD, replace(CONFIG, rounds=1), out=tmp_path)
    assert found_in(tmp_path) == ()


@pytest.mark.parametrize(
    ("fails_at", "heard"),
    [
        ("open", ["open 0"]),
        ("round 1", ["open 0", "round 1", "close failed"]),
        ("close", ["open 0", "round 1", "round 2", "close finished"]),
    ],
)
def test_a_tracker_that_fails_is_one_line_and_the_run_goes_on_without_it(
    fails_at: str, heard: list[str], fake: type[Fake], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.fails_at = fails_at
    result = scarlet.run(METHOD, CONFIG, out=tmp_path, track="tensorboard")
    assert len(result.records) == 2 and not result.interrupted
    assert fake.heard == heard
    assert capsys.readouterr().err == (
        "scarlet: track tensorboard failed (RuntimeError: no space left); the run goes on without it\n"
    )


def test_ctrl_c_closes_a_tracker_that_has_every_round_of_the_result(fake: type[Fake], tmp_path: Path) -> None:
    scarlet.run(METHOD, CONFIG, out=tmp_path, watchers=[CtrlC(1)], track="tensorboard")
    assert fake.heard == ["open 0", "round 1", "close interrupted"]
    fake.heard.clear()
    scarlet.run(METHOD, CONFIG, out=tmp_path, resume=True, track="tensorboard")
    assert fake.heard == ["open 0", "round 1", "round 2", "close finished"]


def test_a_run_that_is_resumed_after_its_last_round_has_it_written_and_not_again(
    fake: type[Fake], tmp_path: Path
) -> None:
    class Fails(Notes):
        def finish(self, result: object) -> None:
            raise ValueError

    with pytest.raises(ValueError):
        scarlet.run(METHOD, CONFIG, out=tmp_path, watchers=[Fails()], track="tensorboard")
    assert fake.heard == ["open 0", "round 1", "round 2", "close failed"]
    fake.heard.clear()
    scarlet.run(METHOD, CONFIG, out=tmp_path, resume=True, track="tensorboard")
    assert fake.heard == ["open 2", "close finished"]


def test_an_exception_closes_a_tracker(fake: type[Fake], tmp_path: Path) -> None:
    class Fails(Notes):
        def round(self, *_: object) -> None:
            raise ValueError("of the caller's own")

    with pytest.raises(ValueError, match="of the caller's own"):
        scarlet.run(METHOD, CONFIG, out=tmp_path, watchers=[Fails()], track="tensorboard")
    assert fake.heard == ["open 0", "close failed"]


def test_a_round_is_flat_and_has_only_what_was_measured() -> None:
    found = numbers_of(RoundRecord(7, server_accuracy=0.5, failures={"lost": 2}))
    assert found["server_accuracy"] == 0.5 and found["failures/lost"] == 2 and found["uplink_bytes"] == 0
    assert found.keys().isdisjoint({"round", "client_accuracy", "beta", "failures", "rejections"})


def test_resume_with_none_leaves_the_trackers_of_the_interrupted_run_out(fake: type[Fake], tmp_path: Path) -> None:
    scarlet.run(METHOD, CONFIG, out=tmp_path, watchers=[CtrlC(1)])
    (tmp_path / "tensorboard").mkdir()
    assert main(["resume", str(tmp_path), "--track", "none", "--json"]) == 0
    assert fake.heard == []
