from __future__ import annotations

import multiprocessing
import pickle
import resource
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import scarlet
from scarlet.data.datasets import Augment
from scarlet.errors import ConfigError
from scarlet.experiment.problem import prepare
from scarlet.models.registry import ModelFactory, initial_weights, model_factory
from scarlet.protocol.types import EngineName, Labels
from scarlet.training import native_library, runtime
from scarlet.training.engine import Engine, Plan, choose
from scarlet.training.runtime import keep_freed_memory, laid_out_for
from scarlet.training.train import Samples, Training, distil, evaluate, fit, parameters_of, predict, scaled

QUICKEST = "contiguous" if native_library.compiled() is None else "native"  # for the embedded default
IMAGES = {"cnn": (1, 28, 28), "cnn32": (3, 32, 32), "resnet20": (3, 32, 32)}


def factory_of(name: str) -> ModelFactory:
    return model_factory(name, 10, IMAGES[name])


def chosen(asked: EngineName, model: str, images: int = 0) -> Engine:
    return choose(asked, factory_of(model), Plan(IMAGES[model], images))


@pytest.mark.parametrize(
    ("model", "engine"), [("cnn", "contiguous"), ("cnn32", "channels-last"), ("resnet20", "channels-last")]
)
def test_auto_chooses_by_the_widest_convolution_where_nothing_can_be_native(
    model: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_library, "compiled", lambda: None)
    assert chosen("auto", model).name == engine
    with pytest.raises(ConfigError, match=r"^engine must not be native here \(.+\); use another, or auto$"):
        chosen("native", model)


@pytest.mark.parametrize(("model", "engine"), [("cnn", "native"), ("cnn32", "native"), ("resnet20", "channels-last")])
def test_auto_has_small_convolutions_in_a_row_run_by_a_library(
    model: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_library, "compiled", lambda: b"a library")
    assert chosen("auto", model).name == engine
    assert (chosen("auto", model).library == b"a library") == (engine == "native")
    with pytest.raises(
        ConfigError, match=r"^engine must not be native here \(the device is cuda\); use another, or auto$"
    ):
        choose("native", factory_of(model), Plan(IMAGES[model], device="cuda"))


def test_a_model_without_convolutions_is_left_as_it_is() -> None:
    assert choose("auto", lambda: nn.Linear(3, 2), Plan((3,), 10**12)).name == "contiguous"


@pytest.mark.parametrize(
    ("model", "images", "compiler", "engine"),
    [
        ("resnet20", 3_000_000, "/usr/bin/g++", "channels-last"),  # 41 M multiply-adds an image, six operations each
        ("resnet20", 5_000_000, "/usr/bin/g++", "compiled"),
        ("resnet20", 5_000_000, None, "channels-last"),
        ("cnn32", 10**9, "/usr/bin/g++", "channels-last"),  # where it is not native
        ("cnn", 10**9, "/usr/bin/g++", "contiguous"),
    ],
)
def test_auto_compiles_where_much_is_to_be_computed_and_there_is_a_compiler(
    model: str, images: int, compiler: str | None, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: compiler)
    monkeypatch.setattr(native_library, "compiled", lambda: None)
    assert chosen("auto", model, images).name == engine


@pytest.mark.parametrize(("model", "channels_last"), [("cnn", False), ("cnn32", True)])
def test_what_is_compiled_is_laid_out_as_auto_would(model: str, channels_last: bool) -> None:
    assert chosen("compiled", model).channels_last == channels_last


@pytest.mark.parametrize("model", IMAGES)
@pytest.mark.parametrize("device", ["cuda", "cuda:1", "mps"])
def test_clients_are_trained_together_where_the_device_is_not_a_cpu(model: str, device: str) -> None:
    assert choose("auto", factory_of(model), Plan(IMAGES[model], device=device)).name == "batched"


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Dropout(0.5), nn.Linear(4 * 26 * 26, 10))


def test_auto_falls_back_and_says_so_where_a_model_cannot_be_stacked() -> None:
    fallback = choose("auto", with_dropout, Plan((1, 28, 28), device="cuda"))
    on_a_cpu = choose("auto", with_dropout, Plan((1, 28, 28)))
    assert fallback.name == on_a_cpu.name == "contiguous"
    assert fallback.why.startswith("the model cannot be stacked (") and fallback.why.endswith(on_a_cpu.why)


def test_batched_is_refused_for_a_model_that_cannot_be_stacked() -> None:
    assert chosen("batched", "cnn").name == "batched"
    with pytest.raises(ConfigError, match=r"^engine must not be batched .*random operation.*; use auto$"):
        choose("batched", with_dropout, Plan((1, 28, 28)))


def test_a_problem_is_prepared_for_its_device() -> None:
    tiny = scarlet.Config(clients=2, samples_per_client=20, public_size=20)
    assert prepare(tiny).config.engine == QUICKEST
    assert prepare(replace(tiny, device="cuda")).config.engine == "batched"


def test_an_engine_that_there_is_not_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="channels-last"):
        scarlet.Config(engine="channels_last")  # type: ignore[arg-type]


def test_the_factory_of_an_engine_can_be_sent_to_a_worker_and_lays_its_models_out() -> None:
    made = pickle.loads(pickle.dumps(chosen("auto", "cnn32").applied_to(factory_of("cnn32"))))()
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
    names: list[EngineName] = ["contiguous", "channels-last"]
    if chosen("auto", name).name == "native":
        names.append("native")
    for engine in names:
        model = chosen(engine, name).applied_to(factory_of(name))()
        model.load_state_dict(start)
        fit(model, private, how, np.random.default_rng(1))
        trained.append(parameters_of(model))
    before = factory_of(name)()
    before.load_state_dict(start)
    moved = trained[0] - parameters_of(before)
    moved[moved == 1] = 0  # the counts of batches
    # A deep network with batch norm multiplies rounding errors from step to step, so more steps would say nothing.
    for other in trained[1:]:
        assert np.linalg.norm(trained[0] - other) < 1e-3 * np.linalg.norm(moved)


@pytest.mark.parametrize("floats", [False, True])
def test_images_laid_out_for_a_model_give_the_same_bits(floats: bool) -> None:
    rng, start = np.random.default_rng(0), initial_weights(factory_of("cnn32"), 0)
    images = torch.from_numpy(rng.integers(0, 256, (70, 3, 32, 32), dtype=np.uint8))
    images = scaled(images) if floats else images
    how, labels = Training(1, 1, 0.1, 0.1, 20, Augment(padding=2, flip=True), seed=0), torch.arange(70) % 10
    found = []
    for turned in (False, True):
        model = chosen("channels-last", "cnn32").applied_to(factory_of("cnn32"))()
        model.load_state_dict(start)
        seen = laid_out_for(model, images) if turned else images
        assert seen.is_contiguous() != turned and torch.equal(seen, images)
        some = np.array([3, 60, 3, 11])
        taught = Labels(some, predict(model, seen, some))
        loss = distil(model, seen, taught, how, np.random.default_rng(1))
        loss += fit(model, Samples(seen, labels), how, np.random.default_rng(2))
        measured = evaluate(model, Samples(seen, labels))
        found.append((loss, measured, parameters_of(model).tobytes(), taught.value.tobytes()))
    assert found[0] == found[1]


class Scaling(nn.Module):
    """A model that writes to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.head = nn.Parameter(torch.ones(3, 1, 1)), nn.Linear(3 * 8 * 8, 4)

    def forward(self, images: Tensor) -> Tensor:
        images *= self.scale
        scores: Tensor = self.head(images.flatten(1))
        return scores


@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize("how", [Augment(0, False), Augment(1, True)])
def test_a_model_may_write_to_its_input(floats: bool, how: Augment) -> None:
    given = samples(40)
    given = replace(given, images=scaled(given.images)) if floats else given
    before = given.images.clone()
    losses = [fit(Scaling(), given, Training(1, 0, 0.1, 0.1, 8, how, 0), np.random.default_rng(0))]
    assert np.isfinite(losses).all() and torch.equal(given.images, before)


def test_images_for_a_model_that_is_not_laid_out_so_are_copied_only_if_they_are() -> None:
    images = torch.zeros(4, 3, 32, 32, dtype=torch.uint8)
    assert laid_out_for(factory_of("cnn32")(), images) is images
    turned = images.contiguous(memory_format=torch.channels_last)
    assert laid_out_for(factory_of("cnn32")(), turned).is_contiguous()


def tiny() -> nn.Module:
    layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(8 * 36, 4)
    return nn.Sequential(*layers)


def samples(count: int) -> Samples:
    rng = np.random.default_rng(count)
    images = torch.from_numpy(rng.integers(0, 256, (count, 3, 8, 8), dtype=np.uint8))
    return Samples(images, torch.from_numpy(rng.integers(0, 4, count)))


def after(engine: EngineName, factory: ModelFactory, seed: int, private: Samples) -> tuple[float, ...]:
    """What two epochs make of a model, and what it says of 150 images."""
    model = choose(engine, factory, Plan((3, 8, 8))).applied_to(factory)()
    model.load_state_dict(initial_weights(factory, seed))
    loss = fit(model, private, Training(2, 0, 0.05, 0.1, 16, Augment(1, True), 0), np.random.default_rng(seed))
    return (*parameters_of(model).tolist(), loss, *evaluate(model, samples(150)))


@pytest.mark.skipif(shutil.which("g++") is None, reason="NO C++ COMPILER: compiled models are not tested")
def test_compiled_models_learn_what_others_do_and_share_what_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    private, sizes = samples(40), []
    once = runtime._compiled()
    monkeypatch.setattr(
        runtime, "_compiled", lambda: lambda model, images: (sizes.append(len(images)), once(model, images))[1]
    )
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for seed in (0, 1, 2):
        assert after("compiled", tiny, seed, private) == pytest.approx(
            after("contiguous", tiny, seed, private), rel=1e-4, abs=1e-6
        )
    assert sizes == 3 * [16, 16, 16, 16, 100], "batches of another size are not compiled"
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"] - before
    assert graphs == 2, "one to train and one to look, for all models"


class Undecided(nn.Module):
    """A model that looks at its images before it decides, which nobody can compile in one piece."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3 * 64, 4)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.layer(images.flatten(1))
        return scores if float(images.mean()) > 0 else scores * 2


def test_a_model_that_cannot_be_compiled_is_trained_without_and_that_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    private = samples(40)
    assert after("compiled", Undecided, 0, private) == after("contiguous", Undecided, 0, private)
    made = choose("compiled", Undecided, Plan((3, 8, 8))).applied_to(Undecided)
    for _ in range(2):  # a client that is made later is not tried again
        evaluate(made(), samples(100))
    line, again = capsys.readouterr().err.splitlines()
    assert again == line, "once for each kind of model"
    assert line.startswith("scarlet: this model cannot be compiled (") and line.endswith("; going on without")


def test_gradients_come_back_to_a_flattened_image_as_it_is_laid_out() -> None:
    def factory() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Tanh(), nn.Flatten(), nn.Linear(8 * 36, 4))

    model = choose("channels-last", factory, Plan((3, 8, 8))).applied_to(factory)()
    seen = []
    (curve,) = (layer for layer in model.modules() if isinstance(layer, nn.Tanh))
    curve.register_full_backward_hook(lambda module, given, came: seen.append(came[0]))
    model(torch.rand(4, 3, 8, 8)).sum().backward()
    (gradient,) = seen
    assert gradient.is_contiguous(memory_format=torch.channels_last) and not gradient.is_contiguous()


def _faults(keep: bool) -> int:
    """Page faults of pieces of 4, 5, ... 24 MB, each given back before the next is taken."""
    torch.set_num_threads(1)
    if keep:
        keep_freed_memory()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for megabytes in range(4, 25):
        torch.ones(megabytes << 18)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_memory_that_is_kept_is_not_mapped_anew() -> None:
    faults = {}
    for keep in (True, False):  # each in a process of its own, because it is for good
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            faults[keep] = pool.apply(_faults, (keep,))
    pages = [megabytes << 8 for megabytes in range(4, 25)]
    assert faults[True] < sum(pages) / 4, "where a larger piece takes the place of a smaller one, only the rest is new"
    # glibc maps a piece that is larger than all that it was given back so far by itself.
    assert faults[False] > 0.9 * sum(pages), "without it nothing would have been mapped anew either"


def test_the_engine_is_recorded_by_the_name_that_was_chosen() -> None:
    config = scarlet.Config(rounds=1, clients=2, samples_per_client=20, public_size=20, workers=1, local_epochs=1)
    for asked, got in (("auto", QUICKEST), ("channels-last", "channels-last"), ("batched", "batched")):
        result = scarlet.run(scarlet.ScarletConfig(), replace(config, engine=asked))
        assert result.config["engine"] == got
