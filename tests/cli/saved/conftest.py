"""Runs with saved models, for the tests of commands that use them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import scarlet
from tests.cli.saved.files import own_model
from tests.experiment.saved import ROWS, TOKENS, tiny_run


@pytest.fixture(scope="package")
def run(tmp_path_factory: pytest.TempPathFactory) -> scarlet.Result:
    """Of images, with a saved model of the server and of each client."""
    return tiny_run(tmp_path_factory.mktemp("predict") / "run", "cnn32")


@pytest.fixture(scope="package")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> scarlet.Result:
    """Of tokens, with a model of the user's own."""
    return tiny_run(tmp_path_factory.mktemp("predict") / "run", own_model, TOKENS, "int64")


@pytest.fixture(scope="package")
def rows(tmp_path_factory: pytest.TempPathFactory) -> scarlet.Result:
    """Of rows of a table, by a method that has no model on the server."""
    return tiny_run(
        tmp_path_factory.mktemp("predict") / "run", "mlp", ROWS, "float32", method=scarlet.IndividualConfig()
    )


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test in a folder of its own, from which it may import."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
