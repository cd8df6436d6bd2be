from __future__ import annotations

import copy
import io
import os
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from scarlet.core import native
from scarlet.core.native import Stage, parts_of, quicken, why_not
from scarlet.models.cnn import cnn, cnn32
from scarlet.models.resnet import resnet20
from tests.core.native_models import (
    drawn,
    images,
    looked,
    nested,
    quick,
    same,
    small,
    trained,
    watched,
    within_a_module,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_quickened_model_has_the_state_that_it_had(binary: bytes) -> None:
    model = nested()
    before, layers = copy.deepcopy(model.state_dict()), list(model.modules())
    quicken(model, binary)
    assert list(model.state_dict()) == list(before) and same(model.state_dict(), before)
    assert list(model.modules()) == layers and isinstance(model, nn.Sequential)
    quicken(model, binary)
    with watched() as asked:
        trained(model, images(4, 3, 9, 9))
    assert asked == ["train"] * 3 + ["look"] * 3, "once more changes nothing"


def test_the_state_of_a_model_can_be_sent_and_loaded(binary: bytes) -> None:
    ours, other, x = quick(small(0), binary), quick(small(1), binary), images(5, 3, 9, 9)
    trained(ours, x)
    file = io.BytesIO()
    torch.save(ours.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file))
    assert torch.equal(looked(other, x), looked(ours, x))
    assert not torch.equal(looked(other, x), looked(quick(small(1), binary), x))


def test_a_deep_copy_has_gradients_and_moments_of_its_own(binary: bytes) -> None:
    ours, x = quick(small(), binary), images(5, 3, 9, 9)
    ours.train()(x)
    before = copy.deepcopy(ours.state_dict())
    other = copy.deepcopy(ours)
    with watched() as asked:
        found = trained(other, x)
    assert asked == ["train", "look"]
    assert all(each.grad is None for each in ours.parameters()) and same(ours.state_dict(), before)
    assert all(each.grad is not None for each in other.parameters())
    with torch.no_grad():
        other[0].weight.zero_()
    assert same(trained(ours, x), found)


def test_memory_that_runs_short_is_an_error(binary: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = quick(small(), binary).train()
    y = ours(images(4, 3, 9, 9))
    short = SimpleNamespace(scarlet_forward=lambda *_: 1, scarlet_backward=lambda *_: 1)
    monkeypatch.setattr(native._Quick, "library", short)
    for call in (
        lambda: y.sum().backward(),
        lambda: ours(images(4, 3, 9, 9)),
        lambda: looked(ours, images(4, 3, 9, 9)),
    ):
        with pytest.raises(MemoryError):
            call()


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="NO /proc: leaks are not looked for")
def test_training_does_not_leak(binary: bytes) -> None:
    layers = nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 16, 3), nn.ReLU()
    model = quick(drawn(*layers), binary)
    x = images(16, 16, 16, 16).requires_grad_()

    def steps(count: int) -> None:
        for _ in range(count):
            model.train()(x).sum().backward()
            model(x)  # nobody asks for its gradients
            looked(model, x)

    steps(20)
    before = resident()
    steps(200)
    # 64 KB is held for a stage of the batch or for the copies of an image, so a piece for each step would be 13 MB.
    assert resident() - before < 6 << 20


def convolution(**options: Any) -> nn.Conv2d:
    return nn.Conv2d(**{"in_channels": 16, "out_channels": 16, "kernel_size": 3} | options)


class Odd(nn.Conv2d):
    pass


class OddNorm(nn.BatchNorm2d):
    pass


class OddReLU(nn.ReLU):
    pass


def test_a_chain_is_all_that_follows_on_a_convolution() -> None:
    convolutions = [convolution(), convolution(kernel_size=(1, 5)), convolution(padding=(2, 2), stride=(3, 3))]
    norms, relus, pool, head = (
        [nn.BatchNorm2d(16), nn.BatchNorm2d(16)],
        [nn.ReLU(), nn.ReLU(True)],
        nn.MaxPool2d(2),
        Odd(16, 16, 1),
    )
    one, two, three = convolutions
    layers = [relus[0], one, norms[0], relus[0], two, relus[1], pool, three, norms[1], head]
    assert parts_of(layers) == [
        relus[0],
        (Stage(one, norms[0], relus[0]), Stage(two, None, relus[1])),
        pool,
        (Stage(three, norms[1], None),),
        head,
    ]
    assert parts_of([one, relus[0], norms[0], relus[1]]) == [(Stage(one, None, relus[0]),), norms[0], relus[1]]
    assert parts_of([one, norms[0], norms[1]]) == [(Stage(one, norms[0], None),), norms[1]]
    assert parts_of(nn.Sequential(one, two, three)) == [tuple(Stage(each, None, None) for each in convolutions)]
    assert parts_of([]) == []


@pytest.mark.parametrize(
    "layer",
    [
        convolution(groups=2),
        convolution(dilation=2),
        convolution(padding=1, padding_mode="reflect"),
        convolution(padding="same"),
        convolution(padding="valid"),
        convolution(out_channels=24),
        convolution(out_channels=8),
        convolution(stride=(1, 2)),
        convolution(padding=(1, 2)),
        Odd(16, 16, 3),
        nn.Conv1d(16, 16, 3),
        nn.ConvTranspose2d(16, 16, 3),
        nn.Sequential(convolution()),
    ],
    ids=str,
)
def test_a_convolution_of_another_kind_is_not_taken(layer: nn.Module) -> None:
    norm, relu = nn.BatchNorm2d(16), nn.ReLU()
    assert parts_of([layer, norm, relu]) == [layer, norm, relu]
    assert why_not(nn.Sequential(layer)) == (None if isinstance(layer, nn.Sequential) else UNUSUAL)


@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm2d(16, affine=False),
        nn.BatchNorm2d(16, track_running_stats=False),
        nn.BatchNorm2d(16, momentum=None),
        OddNorm(16),
        nn.GroupNorm(4, 16),
        OddReLU(),
        nn.ReLU6(),
        nn.Identity(),
    ],
    ids=str,
)
def test_a_norm_or_a_relu_of_another_kind_is_not_taken(layer: nn.Module) -> None:
    first, relu = convolution(), nn.ReLU()
    assert parts_of([first, layer, relu]) == [(Stage(first, None, None),), layer, relu]


UNUSUAL = "not all of its convolutions are usual ones of 16, 32, ... filters in an nn.Sequential"


def test_models_that_would_gain_nothing_are_told_why() -> None:
    assert why_not(nn.Sequential(nn.Linear(3, 2))) == "it has no convolutions"
    assert why_not(nn.Sequential(convolution(), convolution(out_channels=24))) == UNUSUAL
    assert why_not(convolution()) == UNUSUAL, "alone"
    assert why_not(nn.ModuleList([convolution()])) == UNUSUAL
    assert why_not(nn.Sequential(OrderedDict(a=convolution()))) is None
    largest = "a convolution has 65600 weights, more than 65536"
    assert why_not(nn.Sequential(convolution(out_channels=16, in_channels=4096, kernel_size=1))) is None
    assert why_not(nn.Sequential(convolution(out_channels=16, in_channels=4100, kernel_size=1))) == largest


def test_small_models_would_gain() -> None:
    assert why_not(cnn(10)) is None and why_not(cnn32(10)) is None
    assert why_not(within_a_module()) is None
    assert why_not(resnet20(10)) is not None
