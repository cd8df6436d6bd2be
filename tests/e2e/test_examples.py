"""The examples, run as a user runs them: as scripts, and each of them must have learned something."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
LEARNED = {"table": 0.8, "image_folder": 0.6, "datasets": 0.6}  # server accuracy; chance is 0.63, 0.1 and 0.1


@pytest.mark.parametrize("name", LEARNED)
def test_an_example_runs_as_it_is_and_learns(name: str, tmp_path: Path) -> None:
    script = EXAMPLES / f"{name}.py"
    assert len(script.read_text().splitlines()) < 40
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), *([str(tmp_path / "images")] if name == "image_folder" else [])]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    accuracy = re.search(r"server:? (0\.\d+|1\.0+)", ran.stdout)
    assert accuracy is not None, ran.stdout
    assert float(accuracy[1]) > LEARNED[name]
    if name == "image_folder":  # it ends with a command that classifies an image
        last = ran.stdout.splitlines()[-1]
        assert last.startswith("scarlet predict ")
        words = [
            sys.executable,
            "-m",
            "scarlet",
            "predict",
            str(tmp_path / "images" / "run"),
            last.split()[-1],
            "--json",
        ]
        predicted = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        assert predicted.returncode == 0 and '"name": "digit ' in predicted.stdout


def test_every_file_of_the_examples_is_run_here() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(LEARNED)
