from __future__ import annotations

import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from scarlet.data.sites import Augment
from scarlet.errors import ConfigError
from scarlet.models.registry import ModelFactory, initial_weights, model_factory
from scarlet.training.engines.batched import check_stackable
from scarlet.training.engines.choice import Engine, choose
from scarlet.training.engines.memory_format import has_channels_last
from scarlet.training.engines.names import EngineName
from scarlet.training.train import Samples, Training, fit

IMAGES = {"cnn": (1, 28, 28), "cnn32": (3, 32, 32), "resnet20": (3, 32, 32)}


def factory_of(name: str) -> ModelFactory:
    return model_factory(name, 10, IMAGES[name])


def chosen(asked: EngineName, model: str) -> Engine:
    return choose(asked, factory_of(model))


@pytest.mark.parametrize("compiler", ["/usr/bin/g++", None])
@pytest.mark.parametrize(
    ("model", "engine"), [("cnn", "contiguous"), ("cnn32", "channels-last"), ("resnet20", "channels-last")]
)
def test_auto_chooses_by_the_widest_convolution_whether_there_is_a_compiler_or_not(
    model: str, engine: str, compiler: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: compiler)
    found = chosen("auto", model)
    assert (found.name, found.channels_last) == (engine, engine == "channels-last")


def test_auto_leaves_a_model_without_convolutions_contiguous() -> None:
    assert choose("auto", lambda: nn.Linear(3, 2)).name == "contiguous"


@pytest.mark.parametrize(("width", "engine"), [(31, "contiguous"), (32, "channels-last")])
def test_auto_takes_channels_last_from_32_input_channels_on(width: int, engine: str) -> None:
    found = choose("auto", lambda: nn.Sequential(nn.Conv2d(3, width, 3), nn.Conv2d(width, 4, 3)))
    assert found.name == engine and f"{width} input channels" in found.reason


@pytest.mark.parametrize(("model", "channels_last"), [("cnn", False), ("cnn32", True)])
def test_compiled_models_have_the_layout_that_auto_would_choose(model: str, channels_last: bool) -> None:
    assert chosen("compiled", model).channels_last == channels_last


def test_batched_is_refused_for_a_model_that_cannot_be_stacked() -> None:
    def with_dropout() -> nn.Module:
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Dropout(0.5), nn.Linear(4 * 26 * 26, 10))

    few = torch.zeros(4, 1, 28, 28, dtype=torch.uint8)
    training = Training(1, 1, 0.1, 0.1, 10, Augment(), seed=0)
    assert chosen("batched", "cnn").name == "batched"
    check_stackable(factory_of("cnn"), few, training)
    assert choose("auto", with_dropout).name == "contiguous"
    with pytest.raises(ConfigError, match=r"^engine must not be batched .*random operation.*; use auto$"):
        check_stackable(with_dropout, few, training)


def test_the_names_of_the_engines_are_known_without_torch() -> None:
    code = "import sys; import scarlet.training.engines.names; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_factory_of_an_engine_can_be_pickled_and_sets_the_layout_of_its_models() -> None:
    made = pickle.loads(pickle.dumps(chosen("auto", "cnn32").applied_to(factory_of("cnn32"))))()
    wide = [each.weight for each in made.modules() if isinstance(each, nn.Conv2d) and each.in_channels > 3]
    assert wide and all(weight.is_contiguous(memory_format=torch.channels_last) for weight in wide)
    assert not any(weight.is_contiguous() for weight in wide)


@pytest.mark.parametrize("name", IMAGES)
def test_layouts_agree_to_rounding_in_double_precision(name: str) -> None:
    # In single precision a deep network with batch norm multiplies rounding errors from step to step.
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.uniform(-1, 1, (20, *IMAGES[name])))
    private = Samples(images, torch.from_numpy(rng.integers(0, 10, 20)))
    training = Training(1, 1, 0.1, 0.1, 10, Augment(padding=2, flip=True), seed=0)
    start = initial_weights(factory_of(name), 0)
    trained = []
    names: tuple[EngineName, ...] = ("contiguous", "channels-last")
    for engine in names:
        model = chosen(engine, name).applied_to(factory_of(name))().double()
        assert has_channels_last(model) == (engine == "channels-last")
        model.load_state_dict(start)
        fit(training.optimisers(model), private, training, np.random.default_rng(1))
        trained.append(torch.cat([weight.detach().flatten() for weight in model.parameters()]))
    moved = trained[0] - torch.cat([start[name].flatten() for name, _ in model.named_parameters()])
    assert (trained[0] - trained[1]).norm() < 1e-9 * moved.norm()
