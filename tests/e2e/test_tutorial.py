"""The method of docs/new-method.md, as it stands there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).parents[2] / "docs" / "new-method.md"
SCRIPT = """
import sys
import scarlet
from fedmd import FedmdConfig, fedmd
from scarlet.cli import main
from scarlet.methods.registry import METHODS

scarlet.register("fedmd", "FedMD", FedmdConfig, fedmd)
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""
SHORT = (
    "--rounds 5 --clients 3 --samples-per-client 250 --test-per-client 50 --alpha 1000 --public-size 600 "
    "--public-per-round 200 --local-epochs 3 --distil-epochs 4 --distil-lr 0.15 --batch-size 20 --eval-every 5 "
    "--cache-duration 2"
)


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (code,) = blocks("python")
    (tmp_path / "fedmd.py").write_text(code)
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path


def call(folder: Path, arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "script.py", *arguments.split()]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def test_the_method_of_the_tutorial_learns_and_caches_from_its_one_file(folder: Path) -> None:
    done = call(folder, f"run fedmd {SHORT} --out out --json")
    assert done.returncode == 0, done.stderr
    last = (folder / "out" / "metrics.jsonl").read_text().splitlines()[-1]
    accuracy = float(re.findall(r'"server_accuracy": ([0-9.]+)', last)[0])
    assert accuracy >= 0.3
    assert float(re.findall(r'"cache_hit_ratio": ([0-9.]+)', last)[0]) > 0


def test_its_options_are_checked_and_shown_like_those_of_any_method(folder: Path) -> None:
    wrong = call(folder, "run fedmd --certainty -1 --out out")
    assert (
        wrong.returncode == 2
        and wrong.stderr == "scarlet: certainty must be 0 or more, got -1.0; 0 is the plain mean\n"
    )
    assert "--digest-weight" in call(folder, "run fedmd --help").stdout
    assert "FedMD" in call(folder, "costs --rounds 3").stdout


def test_the_commands_of_the_page_run(folder: Path) -> None:
    (commands,) = blocks("bash")
    program = "import shlex, sys\nfrom script import main\n"
    for words in map(shlex.split, commands.splitlines()):
        short = "--rounds 3" if words[1] == "costs" else f"{SHORT} --rounds 1 --local-epochs 1"
        program += f"assert main({[*words[1:], *short.split()]}) == 0\n"
    (folder / "all.py").write_text(program)
    done = subprocess.run([sys.executable, "all.py"], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
