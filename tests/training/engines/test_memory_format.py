from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from scarlet.arrays import Labels
from scarlet.data.sites import Augment
from scarlet.models.registry import initial_weights, model_factory
from scarlet.training.engines.memory_format import has_channels_last, in_format_of, to_channels_last
from scarlet.training.train import Samples, Training, distil, evaluate, fit, parameters_of, predict, scaled

CNN32 = model_factory("cnn32", 10, (3, 32, 32))


@pytest.mark.parametrize("floats", [False, True])
def test_images_in_the_layout_of_a_model_give_the_same_bits(floats: bool) -> None:
    rng, start = np.random.default_rng(0), initial_weights(CNN32, 0)
    images = torch.from_numpy(rng.integers(0, 256, (70, 3, 32, 32), dtype=np.uint8))
    images = scaled(images) if floats else images
    training, labels = Training(1, 1, 0.1, 0.1, 20, Augment(padding=2, flip=True), seed=0), torch.arange(70) % 10
    found = []
    for converted in (False, True):
        model = to_channels_last(CNN32())
        model.load_state_dict(start)
        assert has_channels_last(model)
        seen = in_format_of(model, images) if converted else images
        assert seen.is_contiguous() != converted and torch.equal(seen, images)
        some = np.array([3, 60, 3, 11])
        taught = Labels(some, predict(model, seen, some))
        loss = distil(training.optimisers(model), seen, taught, training, np.random.default_rng(1))
        loss += fit(training.optimisers(model), Samples(seen, labels), training, np.random.default_rng(2))
        measured = evaluate(model, Samples(seen, labels))
        found.append((loss, measured, parameters_of(model).tobytes(), taught.value.tobytes()))
    assert found[0] == found[1]


def test_images_for_a_contiguous_model_are_copied_only_if_they_are_channels_last() -> None:
    images = torch.zeros(4, 3, 32, 32, dtype=torch.uint8)
    assert not has_channels_last(CNN32())
    assert in_format_of(CNN32(), images) is images
    converted = images.contiguous(memory_format=torch.channels_last)
    assert in_format_of(CNN32(), converted).is_contiguous()


def test_the_gradient_of_a_flattened_activation_is_channels_last() -> None:
    model = to_channels_last(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Tanh(), nn.Flatten(), nn.Linear(8 * 36, 4)))
    seen = []
    (curve,) = (layer for layer in model.modules() if isinstance(layer, nn.Tanh))
    curve.register_full_backward_hook(lambda module, given, came: seen.append(came[0]))
    model(torch.rand(4, 3, 8, 8)).sum().backward()
    (gradient,) = seen
    assert gradient.is_contiguous(memory_format=torch.channels_last) and not gradient.is_contiguous()
