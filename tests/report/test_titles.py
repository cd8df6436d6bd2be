"""A method that somebody registered is called by its title, wherever a run of it is shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

import scarlet
from scarlet.experiment.run_directory import read_run
from scarlet.methods.registry import METHODS
from scarlet.methods.scarlet import scarlet as build
from scarlet.report.page import write_report
from scarlet.report.variants import group
from tests.report.runs import run, save

TINY = scarlet.Config(
    rounds=1, clients=2, samples_per_client=10, test_per_client=5, public_size=20, local_epochs=1, workers=1
)


@dataclasses.dataclass(frozen=True)
class MineConfig(scarlet.ScarletConfig):
    """A method of the user's own."""


@pytest.fixture
def mine() -> Iterator[None]:
    scarlet.register("mine", "My Method", MineConfig, build)
    yield
    METHODS.pop("mine", None)


@pytest.mark.usefixtures("mine")
def test_a_registered_method_has_its_title_in_the_result_the_summary_and_the_page(tmp_path: Path) -> None:
    result = scarlet.run(MineConfig(), TINY, out=tmp_path / "run")
    assert result.title == "My Method"
    assert '"title": "My Method"' in (tmp_path / "run" / "summary.json").read_text()
    assert "My Method reaches" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.usefixtures("mine")
def test_the_title_is_read_from_a_run_whose_method_is_not_registered_now(tmp_path: Path) -> None:
    directory = save(dataclasses.replace(run("mine", 0, [0.5]), title="My Method"), tmp_path / "run")
    del METHODS["mine"]
    assert read_run(directory).title == "My Method"
    write_report([read_run(directory)], tmp_path / "page.html")
    assert "My Method reaches 0.50 server accuracy" in (tmp_path / "page.html").read_text()


@pytest.mark.usefixtures("mine")
def test_a_run_that_has_not_written_a_summary_has_the_title_of_the_registered_method(tmp_path: Path) -> None:
    directory = save(dataclasses.replace(run("mine", 0, [0.5]), summary={}), tmp_path / "run")
    assert read_run(directory).title == "My Method"


def test_without_either_the_title_is_the_methods_name(tmp_path: Path) -> None:
    directory = save(dataclasses.replace(run("theirs", 0, [0.5]), summary={}), tmp_path / "run")
    (variant,) = group([read_run(directory)])
    assert variant.name == "theirs"
