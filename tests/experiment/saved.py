"""Runs of a second whose models are saved: three sites, whose numbers are not their names."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import scarlet
from scarlet.arrays import Inputs, Values
from scarlet.experiment.round_log import Watcher

CLASSES = 3
IMAGES, GREY, ROWS, TOKENS = (3, 16, 16), (10, 12), (5,), (6,)
NAMES = ("2", "7", "north")  # of the clients 0, 1 and 2

Make = Callable[[], nn.Module]


def inputs(count: int, shape: tuple[int, ...], dtype: str, seed: int = 0) -> tuple[Inputs, Any]:
    """Inputs that tell their class, and the classes."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    level = labels.reshape(-1, *[1] * len(shape))
    if dtype == "float32":
        return (rng.normal(size=(count, *shape)) + level).astype(np.float32), labels
    width = 80 if dtype == "uint8" else 10
    return (rng.integers(0, width, (count, *shape)) + width * level).astype(dtype), labels


def tiny_run(
    out: Path | None,
    model: str | Make,
    shape: tuple[int, ...] = IMAGES,
    dtype: str = "uint8",
    method: object = None,
    scale: Callable[[Tensor], Tensor] | None = None,
    watchers: Sequence[Watcher] = (),
    resume: bool = False,
    **options: Any,
) -> scarlet.Result:
    """Three rounds on three sites."""
    sites = [
        scarlet.Site(inputs(30, shape, dtype, seed), inputs(12, shape, dtype, 10 + seed), name=name)
        for seed, name in enumerate(NAMES)
    ]
    usual = {"rounds": 3, "public_per_round": 20, "batch_size": 10, "workers": 1, "save_clients": True}
    return scarlet.run(
        method or scarlet.ScarletConfig(),
        scarlet.Config(**(usual | options)),
        sites=sites,
        public=inputs(60, shape, dtype, 20)[0],
        model=model,
        scale=scale,
        out=out,
        watchers=watchers,
        resume=resume,
    )


def expected(model: nn.Module, x: Inputs) -> Values:
    """The soft-labels of inputs: bytes in [-1, 1], softmax, eval mode."""
    given = torch.tensor(x)
    ready = given.float() / 127.5 - 1 if given.dtype == torch.uint8 else given
    with torch.no_grad():
        return np.asarray(model.eval()(ready).softmax(dim=1))


def copied(run: Path, to: Path, *names: str, **changed: object) -> Path:
    """Some files of a run elsewhere, with keys of the card changed; 'input.shape' is written input__shape."""
    for name in names or ("server.json", "server.safetensors"):
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(run / name, to / name)
    if changed:
        card = json.loads((to / "server.json").read_text())
        for key, value in changed.items():
            inner, _, last = key.rpartition("__")
            (card[inner] if inner else card)[last] = value
        (to / "server.json").write_text(json.dumps(card))
    return to
