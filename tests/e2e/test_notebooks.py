"""The notebooks of examples/ run from top to bottom; the one that compares methods is shortened."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

EXAMPLES = Path(__file__).parents[2] / "examples"


def played(name: str, folder: Path, rounds: int | None = None) -> NotebookNode:
    """A notebook after all its cells ran, in an empty folder; an exception in a cell is raised here."""
    notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    for cell in notebook.cells:
        if rounds is not None and cell.cell_type == "code":
            cell.source = re.sub(r"rounds=\d+, alpha", f"rounds={rounds}, alpha", cell.source)
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    assert list(folder.iterdir()) == []
    return notebook


def outputs(notebook: NotebookNode) -> list[NotebookNode]:
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def test_the_first_notebook_compares_two_methods_and_shows_what_a_cache_saves(tmp_path: Path) -> None:
    found = outputs(played("start", tmp_path, rounds=3))
    assert "".join(each.get("text", "") for each in found).count("rounds without a fresh label") == 4
    assert len([each for each in found if "image/png" in each.get("data", {})]) == 2


def test_every_hospital_of_the_second_notebook_learns_more_together_than_alone(tmp_path: Path) -> None:
    text = "".join(each.get("text", "") for each in outputs(played("own_data", tmp_path)))
    found = re.findall(r"^(\w+) +(together|alone) +(\d\.\d+) on all", text, re.MULTILINE)
    scores = {(name, how): float(score) for name, how, score in found}
    assert len(scores) == 10
    for name, _ in scores:
        assert scores[name, "together"] > scores[name, "alone"]


@pytest.mark.parametrize("name", ["start", "own_data"])
def test_a_notebook_shows_its_results_and_no_path_of_the_machine_that_ran_it(name: str) -> None:
    notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    assert all(cell.outputs for cell in notebook.cells if cell.cell_type == "code" and "print" in cell.source)
    assert not re.search(r"/(home|root|tmp|work)/", nbformat.writes(notebook))
