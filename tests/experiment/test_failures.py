"""Whole runs with clients that fail."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

from scarlet.config import Config
from scarlet.data.partition import share_out
from scarlet.errors import ScarletError
from scarlet.experiment.loop import ATTEMPTS
from scarlet.experiment.run import run
from scarlet.methods.scarlet import ScarletConfig
from scarlet.transport.worker import WorkerError

SHAPE, CLASSES = (1, 8, 8), 3
SHORT = Config(
    rounds=3,
    clients=4,
    test_per_client=5,
    public_per_round=10,
    batch_size=10,
    local_epochs=1,
    distil_epochs=1,
    workers=1,
)


def images(white: Collection[int]) -> dict[str, Any]:
    """120 training images, thirty for each client, of which some are all white; and public images."""
    rng = np.random.default_rng(0)
    train, test, public = (rng.integers(0, 255, (size, *SHAPE), np.uint8) for size in (120, 40, 50))
    train[list(white)] = 255
    labelled, tested = (train, np.arange(120) % CLASSES), (test, np.arange(40) % CLASSES)
    return {"sites": share_out(labelled, tested, clients=4, test_per_client=5), "public": public, "test": tested}


class Fragile(nn.Module):
    """Cannot look at an image that is all white."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        if bool((x == 1).flatten(1).all(dim=1).any()):
            self.fail()
        scores: Tensor = self.layer(x.flatten(1))
        return scores

    def fail(self) -> None:
        raise ValueError("this image\nis all white")


class Deadly(Fragile):
    """Ends its process instead."""

    def fail(self) -> None:
        assert multiprocessing.parent_process() is not None, "only workers have clients"
        os._exit(3)


def test_a_client_whose_model_raises_is_counted_in_every_round_and_the_run_goes_on() -> None:
    digests = set()
    for workers in (1, 2):
        ran = run(ScarletConfig(), replace(SHORT, workers=workers), **images([57]), model=Fragile)
        assert [record.failures for record in ran.records] == [{"ValueError: this image": 1}] * 3
        assert [(record.answers, record.attempt, record.rejections) for record in ran.records] == [(3, 0, {})] * 3
        digests.add(ran.summary["weights_digest"])
    assert len(digests) == 1 and None not in digests, "what a failed client has become does not depend on who ran it"


@pytest.mark.parametrize("workers", [1, 2])
def test_where_all_fail_the_run_ends_with_the_reason_and_a_traceback(workers: int) -> None:
    everywhere = range(SHORT.batch_size, 120)  # what is before is looked at to estimate the time of the run
    with pytest.raises(ScarletError) as caught:
        run(ScarletConfig(), replace(SHORT, workers=workers), **images(everywhere), model=Fragile)
    first, *trace = str(caught.value).splitlines()
    assert f"failed {ATTEMPTS} times" in first and f"{{'ValueError: this image': {ATTEMPTS * 4}}}" in first
    assert "Traceback (most recent call last):" in trace and trace[-2:] == ["ValueError: this image", "is all white"]
    assert multiprocessing.active_children() == []


def test_a_worker_that_dies_ends_the_run_with_one_line() -> None:
    with pytest.raises(WorkerError, match=r"^worker process \d+ died with exit code 3; ") as caught:
        run(ScarletConfig(), replace(SHORT, workers=2), **images([57]), model=Deadly)
    assert "\n" not in str(caught.value)
    assert multiprocessing.active_children() == []
