from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from scarlet.data.sites import Augment
from scarlet.models.registry import ModelFactory, initial_weights
from scarlet.training.engines import compiled
from scarlet.training.engines.choice import choose
from scarlet.training.engines.names import EngineName
from scarlet.training.train import Samples, Training, evaluate, fit, parameters_of

SHAPE = (3, 8, 8)


def tiny() -> nn.Module:
    layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(8 * 36, 4)
    return nn.Sequential(*layers)


def samples(count: int) -> Samples:
    rng = np.random.default_rng(count)
    images = torch.from_numpy(rng.integers(0, 256, (count, *SHAPE), dtype=np.uint8))
    return Samples(images, torch.from_numpy(rng.integers(0, 4, count)))


def after(engine: EngineName, factory: ModelFactory, seed: int, private: Samples) -> tuple[float, ...]:
    """The weights of a model after two epochs, its loss, and its accuracy and loss on 150 images."""
    model = choose(engine, factory).applied_to(factory)()
    model.load_state_dict(initial_weights(factory, seed))
    training = Training(2, 0, 0.05, 0.1, 16, Augment(1, True), 0)
    loss = fit(training.optimisers(model), private, training, np.random.default_rng(seed))
    return (*parameters_of(model).tolist(), loss, *evaluate(model, samples(150)))


@pytest.mark.skipif(shutil.which("g++") is None, reason="NO C++ COMPILER: compiled models are not tested")
def test_compiled_models_learn_the_same_as_others_and_share_the_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    private, sizes = samples(40), []
    once = compiled._compiled()
    monkeypatch.setattr(
        compiled, "_compiled", lambda: lambda model, images: (sizes.append(len(images)), once(model, images))[1]
    )
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for seed in (0, 1, 2):
        assert after("compiled", tiny, seed, private) == pytest.approx(
            after("contiguous", tiny, seed, private), rel=1e-4, abs=1e-6
        )
    assert sizes == 3 * [16, 16, 16, 16, 100], "batches of another size are not compiled"
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"] - before
    assert graphs == 2, "one to train and one to predict, for all models"


class Undecided(nn.Module):
    """A model with data-dependent control flow, which cannot be compiled in one graph."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3 * 64, 4)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.layer(images.flatten(1))
        return scores if float(images.mean()) > 0 else scores * 2


def test_a_model_that_cannot_be_compiled_is_trained_uncompiled_and_that_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    private = samples(40)
    assert after("compiled", Undecided, 0, private) == after("contiguous", Undecided, 0, private)
    made = choose("compiled", Undecided).applied_to(Undecided)
    for _ in range(2):  # a model that is made later is not tried again
        evaluate(made(), samples(100))
    line, again = capsys.readouterr().err.splitlines()
    assert again == line, "once for each factory"
    assert line.startswith("scarlet: this model cannot be compiled (") and line.endswith("; going on without")
