"""A run of a few seconds, and what it leaves on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

import scarlet
from scarlet.data.datasets import PrivateSet, load_private
from scarlet.models.registry import model_factory
from scarlet.training.train import Samples, evaluate

TINY = scarlet.Config(
    rounds=13,
    clients=3,
    samples_per_client=30,
    test_per_client=10,
    public_size=60,
    public_per_round=20,
    local_epochs=1,
    codec="reference",  # whose bytes follow from the counts of samples
    workers=1,
)
METHOD = scarlet.ScarletConfig(cache_duration=3)


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def lines(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def means_of_the_last_10(rounds: list[dict[str, Any]], key: str) -> float:
    values = [line[key] for line in rounds[-10:] if line[key] is not None]
    return float(sum(values) / len(values))


def measured_again(directory: Path) -> tuple[float, float]:
    """Accuracy and loss of the server's saved weights on the whole test split."""
    digits = load_private("mnist5k", directory)
    model = model_factory("cnn", 10, (1, 28, 28))()
    model.load_state_dict(load_file(directory / "server.safetensors"))
    assert isinstance(digits, PrivateSet)
    return evaluate(model, Samples(*map(torch.from_numpy, digits.test)))
