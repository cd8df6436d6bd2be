"""Models of the user's own, images, and complaints, for the tests of commands that use saved models."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from torch import nn

import scarlet
from scarlet.arrays import Inputs
from scarlet.cli import main
from tests.cli.test_bad_input import tree
from tests.experiment.saved import CLASSES, TOKENS

# A module of the user's; `body` goes before its functions.
OWN = f"""
import torch
from torch import nn

{{body}}

def make():
    return nn.Sequential(nn.Embedding(30, 8), nn.Flatten(), nn.Linear({TOKENS[0]} * 8, {CLASSES}))

def raises():
    raise RuntimeError("no\\nmodel")

def number():
    return 3

def other():
    return nn.Linear(2, 2)

constant = 4
"""


def own_model() -> nn.Module:
    return nn.Sequential(nn.Embedding(30, 8), nn.Flatten(), nn.Linear(TOKENS[0] * 8, CLASSES))


def at(run: scarlet.Result) -> str:
    """Where a run is."""
    return str(run.directory)


def saved_png(x: Inputs, name: str) -> str:
    """An image [C, H, W] as a file."""
    Image.fromarray(x.transpose(1, 2, 0)).save(name)
    return name


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line of a command that is refused, and that writes nothing."""
    before = tree(Path.cwd())
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("scarlet: ") and err.count("\n") == 1, err
    after = {name: digest for name, digest in tree(Path.cwd()).items() if "__pycache__" not in name}
    assert after == before
    return err.removeprefix("scarlet: ").removesuffix("\n")
