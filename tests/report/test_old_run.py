"""A run directory that an earlier version wrote: the files of `old_run`, its engine was native."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from scarlet.cli import main
from scarlet.experiment.run_directory import finished, read_run
from scarlet.store import Folder, Snapshot, Store

OLD = Path(__file__).parent / "old_run"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD, tmp_path / "old"))


def test_it_is_read_with_its_numbers_and_without_what_it_did_not_count() -> None:
    result = read_run(OLD)
    assert (result.method, result.title, result.seed, result.interrupted) == ("scarlet", "SCARLET", 0, False)
    assert result.config["engine"] == "native"
    assert [record.round for record in result.records] == [1, 2, 3]
    assert [record.server_accuracy for record in result.records] == [0.094, 0.1, 0.1]
    assert result.records[-1].cumulative_bytes == result.summary["cumulative_bytes"] == 836
    assert all(record.failures == {} for record in result.records)
    assert finished(OLD) == result


def test_scarlet_report_makes_a_page_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(OLD), "--out", str(tmp_path / "page.html")]) == 0
    assert capsys.readouterr().out == f"report: {tmp_path / 'page.html'}\n"
    assert "SCARLET reaches 0.10 server accuracy" in (tmp_path / "page.html").read_text()


def test_scarlet_resume_of_it_prints_its_results_and_writes_the_page_that_is_missing(
    old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["resume", str(old), "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["runs"]
    assert shown["weights_digest"] == json.loads((old / "summary.json").read_text())["weights_digest"]
    assert "<svg" in (old / "report.html").read_text()


def test_its_config_with_the_engine_native_is_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["run", "--config", str(OLD / "config.json"), "--out", "new", "--json"]
    assert main(arguments) == 2
    assert capsys.readouterr().err == (
        f"scarlet: engine in {OLD / 'config.json'} must be auto, contiguous, channels-last, compiled or batched, "
        "got 'native'; native was removed, use auto\n"
    )
    assert main([*arguments, "--engine", "auto"]) == 0
    assert json.loads(capsys.readouterr().out)["config"]["engine"] == "contiguous"


def test_a_checkpoint_of_the_old_format_is_refused_in_one_line(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (old / "summary.json").unlink()
    config = json.loads((old / "config.json").read_text()) | {"engine": "contiguous"}
    (old / "config.json").write_text(json.dumps(config))
    Store(Folder(old / "checkpoint")).save(Snapshot(3, {"run": {"options": config}, "ledger": {}}, {}))
    assert main(["resume", str(old)]) == 2
    (complaint,) = capsys.readouterr().err.splitlines()
    assert complaint.startswith(f"scarlet: the checkpoint in {old / 'checkpoint'} has format 1, and this version")
    assert complaint.endswith("; resume with the version that wrote it, or run anew")
