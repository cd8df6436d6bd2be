"""A script of a user's, whatever it looks like, can have worker processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
print("the script runs")

import sys

import numpy as np
from torch import nn

import scarlet

rng = np.random.default_rng(0)
factor = 0.5


class Net(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, 3))

    def forward(self, inputs):
        return self.layers(inputs)


def small():
    return Net(4)


def part(count):
    labels = rng.integers(0, 3, count)
    return (rng.normal(size=(count, 4)) + 2 * np.eye(3, 4)[labels]).astype("f4"), labels


sites = [
    scarlet.Site(part(20), part(10) if at else None, model=small if at % 2 else lambda: Net(7), name=f"site {at}")
    for at in range(4)
]
public = part(40)[0]
for workers in sys.argv[1:]:
    result = scarlet.run(
        scarlet.ScarletConfig(),
        scarlet.Config(rounds=3, workers=int(workers), public_per_round=10, batch_size=10),
        sites=sites,
        public=public,
        server_model=small,
        scale=lambda inputs: inputs * factor,
    )
    print(result.summary["weights_digest"])
"""


def output(*arguments: str, given: str | None = None) -> list[str]:
    """The lines that a process of Python prints."""
    done = subprocess.run(
        [sys.executable, *arguments], input=given, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_script_without_a_main_guard_may_have_workers_and_models_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "with spaces.py"
    script.write_text(SCRIPT)
    said, alone, shared = output(str(script), "1", "2")
    assert said == "the script runs", "and no worker runs it again"
    assert alone == shared and len(alone) == 32


def test_so_may_what_is_typed_in() -> None:
    said, digest = output("-", "2", given=SCRIPT)
    assert said == "the script runs" and len(digest) == 32
