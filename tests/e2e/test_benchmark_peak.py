"""The FLOPs of a round, and the peak FLOPS of the machine."""

from __future__ import annotations

import math

import pytest
import torch
from benchmarks.flops import multiply_adds
from benchmarks.peak import PeakFlops, training_flops, training_images
from torch import nn

from scarlet import Config
from scarlet.experiment.federation import prepare
from scarlet.models.cnn import cnn
from scarlet.models.resnet import resnet20

CNN = 14 * 14 * 16 * 25 + 7 * 7 * 32 * 16 * 9 + 32 * 7 * 7 * 64 + 64 * 10


@pytest.mark.parametrize(
    ("model", "shape", "expected"),
    [
        (cnn(10), (1, 28, 28), CNN),
        # The stem, six convolutions on 32x32, twice one that halves the side and five more, and the last layer.
        (
            resnet20(10, (3, 32, 32)),
            (3, 32, 32),
            32 * 32 * 16 * 27
            + 6 * 32 * 32 * 16 * 144
            + 16 * 16 * 32 * (144 + 5 * 288)
            + 8 * 8 * 64 * (288 + 5 * 576)
            + 640,
        ),
        (nn.Conv2d(4, 8, 3, padding=1, groups=2), (4, 5, 5), 5 * 5 * 8 * 2 * 9),
    ],
    ids=["cnn", "resnet20", "groups"],
)
def test_multiply_adds_are_those_counted_by_hand(model: nn.Module, shape: tuple[int, int, int], expected: int) -> None:
    assert multiply_adds(model, torch.zeros(1, *shape)) == expected
    assert multiply_adds(model, torch.zeros(1, *shape)) == expected, "hooks of the first count must be gone"


def test_resnet20_needs_about_forty_one_million() -> None:
    assert 40.5e6 < multiply_adds(resnet20(10, (3, 32, 32)), torch.zeros(1, 3, 32, 32)) < 41.2e6


def test_training_images_are_those_of_all_clients_and_the_server() -> None:
    config = Config(clients=3, samples_per_client=50, public_size=100, public_per_round=20, local_epochs=4)
    federation = prepare(config)
    assert training_images(federation) == 3 * (4 * 50 + 2 * 20) + 2 * 20
    assert training_flops(federation) == 6 * CNN * 760


def test_peak_flops_can_be_measured_repeatedly() -> None:
    with PeakFlops(seconds=0.05) as peak:
        found = [peak.measure() for _ in range(2)]
    assert all(math.isfinite(flops) and flops > 0 for flops in found)
