from __future__ import annotations

import multiprocessing
import pickle
import resource
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import scarlet
from scarlet.core.engine import choose, keep_freed_memory
from scarlet.core.train import Samples, Training, fit, parameters_of
from scarlet.core.types import EngineName
from scarlet.data.datasets import Augment
from scarlet.errors import ConfigError
from scarlet.models.registry import ModelFactory, initial_weights, model_factory
from scarlet.problem import prepare

IMAGES = {"cnn": (1, 28, 28), "cnn32": (3, 32, 32), "resnet20": (3, 32, 32)}


def factory_of(name: str) -> ModelFactory:
    return model_factory(name, 10, IMAGES[name])


@pytest.mark.parametrize(
    ("model", "engine"), [("cnn", "contiguous"), ("cnn32", "channels-last"), ("resnet20", "channels-last")]
)
def test_auto_chooses_by_the_widest_convolution(model: str, engine: str) -> None:
    assert choose("auto", factory_of(model)).name == engine


def test_a_model_without_convolutions_is_left_as_it_is() -> None:
    assert choose("auto", lambda: nn.Linear(3, 2)).name == "contiguous"


@pytest.mark.parametrize("model", IMAGES)
@pytest.mark.parametrize("device", ["cuda", "cuda:1", "mps"])
def test_clients_are_trained_together_where_the_device_is_not_a_cpu(model: str, device: str) -> None:
    assert choose("auto", factory_of(model), device, IMAGES[model]).name == "batched"


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Dropout(0.5), nn.Linear(4 * 26 * 26, 10))


def test_auto_falls_back_and_says_so_where_a_model_cannot_be_stacked() -> None:
    fallback, on_a_cpu = choose("auto", with_dropout, "cuda", (1, 28, 28)), choose("auto", with_dropout)
    assert fallback.name == on_a_cpu.name == "contiguous"
    assert fallback.why.startswith("the model cannot be stacked (") and fallback.why.endswith(on_a_cpu.why)


def test_batched_is_refused_for_a_model_that_cannot_be_stacked() -> None:
    assert choose("batched", factory_of("cnn"), "cpu", (1, 28, 28)).name == "batched"
    with pytest.raises(ConfigError, match=r"^engine must not be batched .*random operation.*; use auto$"):
        choose("batched", with_dropout, "cpu", (1, 28, 28))


def test_a_problem_is_prepared_for_its_device() -> None:
    tiny = scarlet.Config(clients=2, samples_per_client=20, public_size=20)
    assert prepare(tiny).config.engine == "contiguous"
    assert prepare(replace(tiny, device="cuda")).config.engine == "batched"


def test_an_engine_that_there_is_not_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="channels-last"):
        scarlet.Config(engine="channels_last")  # type: ignore[arg-type]


def test_the_factory_of_an_engine_can_be_sent_to_a_worker_and_lays_its_models_out() -> None:
    made = pickle.loads(pickle.dumps(choose("auto", factory_of("cnn32")).applied_to(factory_of("cnn32"))))()
    wide = [each.weight for each in made.modules() if isinstance(each, nn.Conv2d) and each.in_channels > 3]
    assert wide and all(weight.is_contiguous(memory_format=torch.channels_last) for weight in wide)
    assert not any(weight.is_contiguous() for weight in wide)


@pytest.mark.parametrize("name", IMAGES)
def test_engines_agree_to_rounding_after_a_step(name: str) -> None:
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.integers(0, 256, (20, *IMAGES[name]), dtype=np.uint8))
    private = Samples(images, torch.from_numpy(rng.integers(0, 10, 20)))
    how = Training(1, 1, 0.1, 0.1, 20, Augment(padding=2, flip=True), seed=0)
    start = initial_weights(factory_of(name), 0)
    trained = []
    names: tuple[EngineName, ...] = ("contiguous", "channels-last")
    for engine in names:
        model = choose(engine, factory_of(name)).applied_to(factory_of(name))()
        model.load_state_dict(start)
        fit(model, private, how, np.random.default_rng(1))
        trained.append(parameters_of(model))
    before = factory_of(name)()
    before.load_state_dict(start)
    moved = trained[0] - parameters_of(before)
    moved[moved == 1] = 0  # the counts of batches
    # A deep network with batch norm multiplies rounding errors from step to step, so more steps would say nothing.
    assert np.linalg.norm(trained[0] - trained[1]) < 1e-3 * np.linalg.norm(moved)


def _faults(keep: bool) -> int:
    """Page faults of twenty times four pieces of 8 MB that are taken together and given back."""
    torch.set_num_threads(1)
    if keep:
        keep_freed_memory()
    for _ in range(3):
        [torch.ones(2 << 20) for _ in range(4)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        [torch.ones(2 << 20) for _ in range(4)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_memory_that_is_kept_is_not_mapped_anew() -> None:
    faults = {}
    for keep in (True, False):  # each in a process of its own, because it is for good
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            faults[keep] = pool.apply(_faults, (keep,))
    assert faults[True] < 2048  # the pages of one piece
    assert faults[False] > 20 * 2048, "without it nothing would have been mapped anew either"


def test_the_engine_is_recorded_by_the_name_that_was_chosen() -> None:
    config = scarlet.Config(rounds=1, clients=2, samples_per_client=20, public_size=20, workers=1, local_epochs=1)
    for asked, got in (("auto", "contiguous"), ("channels-last", "channels-last"), ("batched", "batched")):
        result = scarlet.run(scarlet.ScarletConfig(), replace(config, engine=asked))
        assert result.config["engine"] == got
