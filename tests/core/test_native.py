from __future__ import annotations

import copy
import io
import os
import platform
import pwd
import shutil
import subprocess
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from scarlet.core import native
from scarlet.core.native import Stage, compiled, parts_of, quicken, why_not
from scarlet.models.cnn import cnn, cnn32
from scarlet.models.resnet import resnet20

Found = dict[str, Tensor]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As in a run."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Library(bytes):
    """What was compiled, too long to be shown."""

    def __repr__(self) -> str:
        return f"a library of {len(self)} bytes"


@pytest.fixture(scope="module")
def binary() -> bytes:
    made = compiled()
    if made is None:
        pytest.skip("NO C COMPILER: native models are not tested")
    return Library(made)


@pytest.fixture(scope="module", params=["AVX512", "AVX2"])
def either(request: pytest.FixtureRequest, binary: bytes) -> bytes:
    """The library for this processor, and that for one with narrower vectors."""
    if request.param == torch.backends.cpu.get_cpu_capability():
        return binary
    if request.param == "AVX512":
        pytest.skip("NO AVX512: its code is not tested")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: request.param)
        made = compiled.__wrapped__()
    assert made is not None and made != binary
    return Library(made)


@contextmanager
def watched() -> Iterator[list[str]]:
    """What the library was asked to do with a chain, in that order."""
    asked: list[str] = []
    run = native._run

    def noted(*given: Any, training: bool) -> Any:
        asked.append("train" if training else "look")
        return run(*given, training=training)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "_run", noted)
        yield asked


def drawn(*layers: nn.Module, seed: int = 0) -> nn.Sequential:
    """Those layers one after another, channels-last, with random numbers in all that a norm has."""
    model = nn.Sequential(*layers)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        for layer in model.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                layer.reset_parameters()
            if isinstance(layer, nn.BatchNorm2d):
                assert layer.running_mean is not None and layer.running_var is not None
                layer.weight.normal_()
                layer.bias.normal_()
                layer.running_mean.normal_()
                layer.running_var.uniform_(0.5, 2)
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def small(seed: int = 0) -> nn.Sequential:
    return drawn(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
        nn.Conv2d(16, 32, 3, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        seed=seed,
    )


def images(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def quick(model: nn.Module, binary: bytes) -> Any:
    """A copy that the library runs."""
    made = copy.deepcopy(model)
    quicken(made, binary)
    return made


def looked(model: nn.Module, x: Tensor) -> Tensor:
    """What a model says in eval mode."""
    model.eval()
    with torch.no_grad():
        y: Tensor = model(x)
    return y


def step(model: nn.Module, x: Tensor, of_x: bool = False) -> Found:
    """All that can be seen of a step, but for the step itself."""
    x = x.clone(memory_format=torch.preserve_format).requires_grad_() if of_x else x
    model.zero_grad()
    y = model(x)
    pull = torch.rand(y.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64).to(y.dtype)
    loss = ((y + 1).square() * pull).mean()
    loss.backward()
    found = {"output": y.detach(), "loss": loss.detach()}
    if x.grad is not None:
        found["gradient of the input"] = x.grad
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            found[f"gradient of {name}"] = parameter.grad.clone()
    return found | {name: buffer.clone() for name, buffer in model.named_buffers()}


def trained(model: nn.Module, x: Tensor, of_x: bool = False) -> Found:
    """The same in training, and a look in eval mode."""
    return step(model.train(), x, of_x) | {"output in eval mode": looked(model, x)}


def biases_before_norms(model: nn.Module) -> set[str]:
    names = set()
    for prefix, layer in model.named_modules():
        if isinstance(layer, nn.Sequential):
            for (name, one), (_, other) in zip(layer.named_children(), list(layer.named_children())[1:], strict=False):
                if isinstance(one, nn.Conv2d) and isinstance(other, nn.BatchNorm2d):
                    names.add(f"gradient of {prefix}{'.' * bool(prefix)}{name}.bias")
    return names


def errors(found: Found, exact: Found) -> dict[str, float]:
    """How far tensors are from what they should be, by the largest that is in each; gradients also by all others."""
    assert found.keys() == exact.keys()
    largest = {name: float(value.abs().max()) for name, value in exact.items()}
    usual = max((value for name, value in largest.items() if name.startswith("gradient")), default=0)
    far = {}
    for name, value in exact.items():
        assert found[name].shape == value.shape, name
        away = float((found[name].double() - value.double()).abs().max())
        scale = max(largest[name], usual / 100 if name.startswith("gradient") else 0)
        far[name] = away if away == 0 else away / max(scale, 1e-30)
    return far


def check(model: nn.Module, found: Found, exact: Found, tolerance: float = 5e-5, usual: Found | None = None) -> None:
    """That all is as in double precision; where floats are far from it, that torch's are about as far."""
    skipped = biases_before_norms(model)  # what they should be is nothing but rounding errors
    far = errors(found, exact)
    excused = errors(usual, exact) if usual is not None else dict.fromkeys(far, 0.0)
    assert {
        name: (error, excused[name])
        for name, error in far.items()
        if name not in skipped and not error <= max(tolerance, 20 * excused[name])
    } == {}


def same(one: Found, other: Found) -> bool:
    """Whether all bits are equal, and NaN is where NaN is."""
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype
        and torch.equal(one[name].isnan(), other[name].isnan())
        and torch.equal(one[name].nan_to_num(), other[name].nan_to_num())
        for name in one
    )


# ---- What is computed. ----


@dataclass(frozen=True)
class Case:
    layers: tuple[nn.Module, ...]
    x: Tensor
    of_x: bool
    seed: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """One to three stages on small images, of sizes that fit."""
    count, seed = draw(st.integers(1, 7)), draw(st.integers(0, 2**32))
    channels = given_channels = draw(st.sampled_from([1, 2, 3, 4, 5, 16, 32]))
    height, width = given_size = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    layers: list[nn.Module] = []
    for _ in range(draw(st.integers(1, 3))):
        filters, padding = draw(st.sampled_from([16, 32, 48, 64, 80, 128])), draw(st.integers(0, 3))
        stride = draw(st.integers(1, 3))
        down = draw(st.integers(1, min(5, height + 2 * padding)))
        along = draw(st.integers(1, min(5, width + 2 * padding)))
        before = height * width
        height, width = (height + 2 * padding - down) // stride + 1, (width + 2 * padding - along) // stride + 1
        layers.append(nn.Conv2d(channels, filters, (down, along), stride, padding, bias=draw(st.booleans())))
        if count * height * width > 1 and draw(st.booleans()):
            # Of a few values, what comes back through a norm is the difference of numbers that are almost equal.
            epsilons = [1e-5, 1e-3, 0.1] if count * min(height * width, before) >= 8 else [0.1]
            epsilon, momentum = draw(st.sampled_from(epsilons)), draw(st.sampled_from([0.0, 0.1, 0.7, 1.0]))
            layers.append(nn.BatchNorm2d(filters, epsilon, momentum))
        if draw(st.booleans()):
            layers.append(nn.ReLU(inplace=draw(st.booleans())))
        channels = filters
    of_x = given_channels % 16 == 0 and draw(st.booleans())
    return Case(tuple(layers), images(count, given_channels, *given_size, seed=seed), of_x, seed)


def in_double_precision(model: nn.Module, x: Tensor, of_x: bool) -> tuple[Found, float]:
    """Also the least that comes into a ReLU, by the largest: floats might have it on the other side of zero."""
    exact, nearest = copy.deepcopy(model).double(), [1.0]
    for layer in exact.modules():
        if isinstance(layer, nn.ReLU):
            layer.inplace = False
            layer.register_forward_hook(
                lambda _, given, y: nearest.append(
                    float(given[0].detach().abs().where(given[0] != 0, torch.inf).min() / given[0].detach().abs().max())
                )
            )
    return trained(exact, x.double(), of_x), min(nearest)


@settings(max_examples=150, deadline=None)
@given(case=cases())
def test_a_chain_is_trained_and_run_as_in_double_precision(either: bytes, case: Case) -> None:
    model = drawn(*case.layers, seed=case.seed)
    exact, nearest = in_double_precision(model, case.x, case.of_x)
    assume(nearest > 3e-6)
    with watched() as asked:
        found = trained(quick(model, either), case.x, case.of_x)
    if len(case.x) > 1 or "train" in asked:  # otherwise torch may do it
        assert asked == ["train", "look"]
        assert not any(found[name].any() for name in biases_before_norms(model) & found.keys())
    assert ("gradient of the input" in found) == case.of_x
    check(model, found, exact, usual=trained(copy.deepcopy(model), case.x, case.of_x))


@pytest.mark.parametrize(("factory", "shape"), [(cnn, (1, 28, 28)), (cnn32, (3, 32, 32))])
def test_several_steps_lead_where_they_do_in_double_precision(
    either: bytes, factory: Callable[[int], nn.Module], shape: tuple[int, int, int]
) -> None:
    model = drawn(factory(10))
    ours, exact = quick(model, either), copy.deepcopy(model).double()
    losses: dict[nn.Module, list[float]] = {ours: [], exact: []}
    for each in losses:
        dtype = next(each.parameters()).dtype
        optimiser = torch.optim.SGD(each.train().parameters(), lr=0.02, momentum=0.5)
        for at in range(5):
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(each(images(10, *shape, seed=at).to(dtype)), torch.arange(10))
            loss.backward()
            optimiser.step()
            losses[each].append(float(loss.detach()))
    assert losses[ours] == pytest.approx(losses[exact], rel=1e-5)
    start, end = model.state_dict(), exact.state_dict()
    moved = {name: end[name].double() - start[name].double() for name in end}
    far = errors({name: value - start[name] for name, value in ours.state_dict().items()}, moved)
    assert max(far.values()) < 3e-3, far


class Residual(nn.Module):
    """A chain inside a module of another kind."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + x)


def after_another_layer() -> nn.Sequential:
    return drawn(
        nn.Conv2d(3, 16, 3),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0),
        nn.Linear(32 * 9, 5),
    )


def nested() -> nn.Sequential:
    inner = nn.Sequential(nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16), nn.ReLU())
    return drawn(
        nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU()), inner, nn.Sequential(nn.Sequential(nn.Conv2d(16, 32, 2)))
    )


def within_a_module() -> nn.Sequential:
    return drawn(nn.Conv2d(3, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(), Residual(16), Residual(16))


def before_one_that_writes_to_its_input() -> nn.Sequential:
    return drawn(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.LeakyReLU(inplace=True), nn.Conv2d(16, 16, 1))


def of_the_same_layers_twice() -> nn.Sequential:
    convolution, norm, last = nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.Conv2d(16, 16, 1)
    return drawn(nn.Conv2d(3, 16, 1), convolution, norm, nn.ReLU(), convolution, norm, nn.ReLU(), last)


@pytest.mark.parametrize(
    ("factory", "chains"),
    [
        (after_another_layer, 2),
        (nested, 3),
        (within_a_module, 3),
        (before_one_that_writes_to_its_input, 2),
        (of_the_same_layers_twice, 1),
    ],
)
def test_chains_have_their_place_in_a_larger_model(
    binary: bytes, factory: Callable[[], nn.Sequential], chains: int
) -> None:
    model, x = factory(), images(6, 3, 9, 9, seed=2)
    with watched() as asked:
        found = trained(quick(model, binary), x)
    assert asked == ["train"] * chains + ["look"] * chains
    exact, nearest = in_double_precision(model, x, False)
    assert nearest > 3e-6, "another seed is needed"
    check(model, found, exact)


def test_frozen_parameters_get_no_gradient_and_others_the_same(binary: bytes) -> None:
    model, x = small(), images(4, 3, 9, 9)
    ours = quick(model, binary)
    every = trained(copy.deepcopy(ours), x)
    for layer in (ours[0], ours[4]):
        layer.requires_grad_(False)
    found = trained(ours, x)
    frozen = {f"gradient of {name}" for name in ("0.weight", "0.bias", "4.weight", "4.bias")}
    assert found.keys() == every.keys() - frozen and same(found, {name: every[name] for name in found})
    ours.requires_grad_(False)
    assert not ours.train()(x).requires_grad


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_batch_counts_for_the_running_moments_without_gradients_too(binary: bytes, mode: Callable[[], Any]) -> None:
    one, other, x = quick(small(), binary), quick(small(), binary), images(4, 3, 9, 9)
    with mode(), watched() as asked:
        y = one.train()(x)
    assert asked == ["train"] and not y.requires_grad
    assert torch.equal(y, other.train()(x))
    assert same(dict(one.named_buffers()), dict(other.named_buffers()))
    assert not same(dict(one.named_buffers()), dict(small().named_buffers()))


def test_weights_that_are_put_in_for_one_call_are_used(binary: bytes) -> None:
    ours, other, x = quick(small(0), binary), quick(small(1), binary), images(4, 3, 9, 9)
    weights = {name: value.clone(memory_format=torch.preserve_format) for name, value in other.state_dict().items()}
    with watched() as asked:
        y = torch.func.functional_call(ours.train(), weights, (x,))
    assert asked == ["train"] and torch.equal(y, other.train()(x))


def test_gradients_are_found_twice_only_where_that_was_asked_for(binary: bytes) -> None:
    ours, x = quick(small(), binary), images(4, 16, 9, 9)[:, :3]
    loss = ours(x).square().mean()
    first = torch.autograd.grad(loss, list(ours.parameters()), retain_graph=True)
    again = torch.autograd.grad(loss, list(ours.parameters()))
    assert all(map(torch.equal, first, again))
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    (gradient,) = torch.autograd.grad(ours(x).square().mean(), [ours[0].weight], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_weights_must_not_change_between_a_batch_and_its_gradients(binary: bytes) -> None:
    ours = quick(small(), binary)
    loss = ours(images(4, 3, 9, 9)).mean()
    with torch.no_grad():
        ours[3].weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_weights_that_are_elsewhere_when_their_gradients_are_found_are_read_there(binary: bytes) -> None:
    ours = quick(drawn(nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3)), binary)
    loss = ours(images(4, 16, 9, 9)).square().mean()
    ours[2].weight.data = torch.zeros_like(ours[2].weight)
    others = [torch.full((16, 16, 3, 3), 1e9) for _ in range(20)]  # where they were
    loss.backward()
    assert not ours[0].weight.grad.any() and others[0].min() == 1e9


# ---- What torch does instead. ----


def outcome(model: nn.Module, x: Tensor, of_x: bool = False) -> Found | str:
    """What can be seen of a step, or how it is refused."""
    try:
        return step(model, x, of_x)
    except (RuntimeError, ValueError, TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"


def refusal(found: Found | str) -> str:
    return found if isinstance(found, str) else "none"


def as_torch_does(ours: nn.Module, plain: nn.Module, x: Tensor, of_x: bool = False) -> bool:
    """Whether all bits are equal, or both refuse it in the same words."""
    one, other = outcome(ours, x, of_x), outcome(plain, x, of_x)
    assert refusal(one) == refusal(other)
    return isinstance(one, str) or isinstance(other, str) or same(one, other)


def pair(model: nn.Module, binary: bytes) -> tuple[Any, Any]:
    return quick(model, binary), copy.deepcopy(model)


def test_the_library_and_torch_can_be_told_apart_by_their_bits(binary: bytes) -> None:
    ours, plain = pair(small().train(), binary)
    assert not as_torch_does(ours, plain, images(5, 3, 9, 9))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_numbers_than_floats_are_left_to_torch(binary: bytes, dtype: torch.dtype) -> None:
    ours, plain = pair(small().train(), binary)
    x = images(5, 3, 9, 9)
    assert as_torch_does(ours, plain, x.to(dtype)), "images"
    ours.to(dtype), plain.to(dtype)
    assert as_torch_does(ours, plain, x), "weights"
    assert as_torch_does(ours, plain, x.to(dtype)), "both"
    assert torch.equal(looked(ours, x.to(dtype)), looked(plain, x.to(dtype)))


@pytest.mark.parametrize("of_x", [False, True])
def test_gradients_in_eval_mode_are_left_to_torch(binary: bytes, of_x: bool) -> None:
    ours, plain = pair(drawn(nn.Conv2d(16, 32, 3), nn.BatchNorm2d(32), nn.ReLU()).eval(), binary)
    assert as_torch_does(ours, plain, images(5, 16, 9, 9), of_x)


def test_gradients_of_images_whose_channels_fill_no_vector_are_left_to_torch(binary: bytes) -> None:
    ours, plain = pair(small().train(), binary)
    assert as_torch_does(ours, plain, images(5, 3, 9, 9), of_x=True)


@pytest.mark.parametrize("norm", [1, 4])
def test_a_norm_in_another_mode_than_the_rest_is_left_to_torch(binary: bytes, norm: int) -> None:
    ours, plain = pair(small(), binary)
    for model in (ours, plain):
        model.train()[norm].eval()
    assert as_torch_does(ours, plain, images(5, 3, 9, 9))
    for model in (ours, plain):
        model.eval()[norm].train()
    with torch.no_grad():
        assert torch.equal(ours(images(5, 3, 9, 9)), plain(images(5, 3, 9, 9)))
    assert same(dict(ours.named_buffers()), dict(plain.named_buffers()))


@pytest.mark.parametrize("when", ["before", "after", "after a batch"])
@pytest.mark.parametrize(
    ("kind", "layer"),
    [("forward_hook", 2), ("forward_pre_hook", 3), ("full_backward_hook", 4), ("full_backward_pre_hook", 2)],
)
def test_a_hook_in_the_middle_of_a_chain_is_called(binary: bytes, kind: str, layer: int, when: str) -> None:
    calls: list[nn.Module] = []
    model, x = small().train(), images(5, 3, 9, 9)
    for each in model:
        if isinstance(each, nn.ReLU):
            each.inplace = False  # torch refuses backward hooks of those that are
    hooked = model if when == "before" else (ours := quick(model, binary))
    if when == "after a batch":
        step(ours, x)
    getattr(hooked[layer], f"register_{kind}")(lambda module, *_: calls.append(module))
    if when == "before":
        ours = quick(model, binary)
    step(ours, x)
    assert calls == [ours[layer]]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_forward_hook_may_change_what_a_layer_gives(binary: bytes, when: str) -> None:
    def hook(module: nn.Module, given: tuple[Tensor, ...], y: Tensor) -> Tensor:
        return y * 2

    model, plain, x = small().train(), small().train(), images(5, 3, 9, 9)
    plain[2].register_forward_hook(hook)
    if when == "before":
        model[2].register_forward_hook(hook)
    quicken(model, binary)
    if when == "after":
        model[2].register_forward_hook(hook)
    check(model, step(model, x), step(plain.double(), x.double()))


@pytest.mark.parametrize(
    "shape",
    [(5, 4, 9, 9), (5, 16, 9, 9), (5, 3, 4, 9), (5, 3, 9, 1), (1, 3, 5, 5), (5, 9), (5, 3, 9, 9, 2), (5, 0, 9, 9)],
)
def test_images_that_torch_refuses_are_refused_in_its_words(binary: bytes, shape: tuple[int, ...]) -> None:
    ours, plain = pair(small().train(), binary)
    said = outcome(ours, images(*shape))
    assert isinstance(said, str) and said == refusal(outcome(plain, images(*shape)))


def test_images_without_pixels_are_refused_in_torchs_words(binary: bytes) -> None:
    ours, plain = pair(drawn(nn.Conv2d(3, 16, 3, padding=2), nn.ReLU()), binary)
    assert as_torch_does(ours, plain, images(5, 3, 0, 9))


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("after", [[], [nn.Conv2d(16, 16, 1, padding=1), nn.ReLU()]])
def test_a_single_value_of_a_channel_is_not_normed(binary: bytes, whole: bool, after: list[nn.Module]) -> None:
    ours, plain = pair(drawn(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), *after), binary)
    one = images(1, 3, 3, 3)
    for model in (ours, plain):
        model.train(whole)
        for layer in model:
            layer.train()
    assert as_torch_does(ours, plain, one)
    assert "more than 1 value per channel" in refusal(outcome(ours, one))
    for name in ("running_mean", "running_var"):
        assert torch.equal(getattr(ours[1], name), getattr(plain[1], name))
    torch.testing.assert_close(looked(ours, one), looked(plain, one))


def test_an_empty_batch_gives_what_torch_gives(binary: bytes) -> None:
    none = images(0, 3, 9, 9)
    for model in (small(), drawn(nn.Conv2d(3, 16, 3), nn.ReLU())):
        ours, plain = pair(model, binary)
        assert looked(ours, none).shape == looked(plain, none).shape
        ours.train(), plain.train()
        assert as_torch_does(ours, plain, none)


def test_a_single_image_that_is_no_batch_is_left_to_torch(binary: bytes) -> None:
    ours, plain = pair(drawn(nn.Conv2d(3, 16, 3), nn.ReLU()), binary)
    assert as_torch_does(ours, plain, images(3, 9, 9))


def test_a_model_that_is_not_channels_last_is_left_to_torch(binary: bytes) -> None:
    ours, plain = pair(small().to(memory_format=torch.contiguous_format), binary)  # type: ignore[call-overload]
    assert as_torch_does(ours, plain, images(5, 3, 9, 9))


class Doubled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight * 2


def as_update_bn_does(model: nn.Sequential) -> None:
    for layer in model:
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = None  # type: ignore[assignment]


def with_another_momentum(model: nn.Sequential) -> None:
    model[1].momentum = 0.7  # type: ignore[assignment]


def with_another_epsilon(model: nn.Sequential) -> None:
    model[4].eps = 0.3  # type: ignore[assignment]


def with_weights_elsewhere(model: nn.Sequential) -> None:
    model.load_state_dict(small(1).state_dict(), assign=True)


def with_a_parametrised_weight(model: nn.Sequential) -> None:
    nn.utils.parametrize.register_parametrization(model[3], "weight", Doubled())


def with_running_moments_in_double_precision(model: nn.Sequential) -> None:
    model[1].running_mean = model[1].running_mean.double()


def with_another_norm(model: nn.Sequential) -> None:
    model[1] = nn.BatchNorm2d(16)


def without_its_last_layers(model: nn.Sequential) -> None:
    del model[3:]


def with_another_layer(model: nn.Sequential) -> None:
    model.append(nn.Flatten())


def with_a_dilated_convolution(model: nn.Sequential) -> None:
    model[0].dilation = (2, 2)  # type: ignore[assignment]


@pytest.mark.parametrize(
    "change",
    [
        as_update_bn_does,
        with_another_momentum,
        with_another_epsilon,
        with_weights_elsewhere,
        with_a_parametrised_weight,
        with_running_moments_in_double_precision,
        with_another_norm,
        without_its_last_layers,
        with_another_layer,
        with_a_dilated_convolution,
    ],
)
def test_a_model_that_is_changed_later_does_what_it_then_says(
    binary: bytes, change: Callable[[nn.Sequential], None]
) -> None:
    ours, plain = pair(small().train(), binary)
    step(ours, images(5, 3, 15, 15))
    plain.load_state_dict(ours.state_dict())
    for model in (ours, plain):
        change(model)
    one, other = outcome(ours, images(5, 3, 15, 15)), outcome(plain, images(5, 3, 15, 15))
    assert refusal(one) == refusal(other)
    if not isinstance(one, str) and not isinstance(other, str):
        check(plain, one, other)


def test_a_norm_of_another_width_than_its_convolution_is_refused(binary: bytes) -> None:
    ours, plain = pair(drawn(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(32), nn.ReLU()), binary)
    assert as_torch_does(ours, plain, images(5, 3, 9, 9))
    with torch.no_grad(), pytest.raises(RuntimeError, match="should contain 16 elements not 32"):
        ours.eval()(images(5, 3, 9, 9))


def test_a_part_of_a_quickened_model_can_be_run(binary: bytes) -> None:
    ours, plain = pair(small().eval(), binary)
    torch.testing.assert_close(looked(ours[:3], images(5, 3, 9, 9)), looked(plain[:3], images(5, 3, 9, 9)))


def test_another_default_than_floats_changes_nothing(binary: bytes) -> None:
    ours, x = quick(small(), binary), images(5, 3, 9, 9)
    expected = trained(copy.deepcopy(ours), x)
    torch.set_default_dtype(torch.float64)
    try:
        found = trained(ours, x)
    finally:
        torch.set_default_dtype(torch.float32)
    assert same(found, expected)


def _cut(model: nn.Sequential) -> None:
    """The first half of the filters, where they are."""
    for layer in model[:2]:
        layer.weight.data, layer.bias.data = layer.weight.data[:16], layer.bias.data[:16]
    model[1].running_mean, model[1].running_var = model[1].running_mean[:16], model[1].running_var[:16]


def _transpose(model: nn.Sequential) -> None:
    model[0].weight.data = model[0].weight.data.transpose(2, 3)


def _forget_the_scale(model: nn.Sequential) -> None:
    model[1].weight = None


def _forget_the_averages(model: nn.Sequential) -> None:
    model[1].running_mean = model[1].running_var = None


def _forget_the_count(model: nn.Sequential) -> None:
    model[1].num_batches_tracked = None


def _have_a_forward_of_its_own(model: nn.Sequential) -> None:
    model[0].forward = lambda x: nn.functional.conv2d(x, model[0].weight, None, 2)  # type: ignore[method-assign]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "change",
    [_cut, _transpose, _forget_the_scale, _forget_the_averages, _forget_the_count, _have_a_forward_of_its_own],
)
def test_tensors_that_were_made_others_are_used_as_they_are(
    binary: bytes, change: Callable[[nn.Sequential], None], training: bool
) -> None:
    ours, plain = pair(drawn(nn.Conv2d(16, 32, 3), nn.BatchNorm2d(32), nn.ReLU()).train(training), binary)
    x, given = images(5, 16, 9, 9), []
    for model in (ours, plain):
        with torch.set_grad_enabled(training):
            model(x)
            change(model)
            given.append(model(x).detach())
    torch.testing.assert_close(*given)


@pytest.mark.parametrize(
    "layer", [nn.Conv2d(16, 16, 1, padding=-1), nn.Conv2d(16, 16, 1, stride=0), nn.Conv2d(16, 16, 0)]
)
def test_settings_that_mean_nothing_are_left_to_torch(binary: bytes, layer: nn.Module) -> None:
    ours, plain = pair(nn.Sequential(layer), binary)
    for model in (ours.eval(), plain.eval()):
        with torch.no_grad(), pytest.raises(RuntimeError):
            model(images(5, 16, 9, 9))


def test_weights_that_are_laid_out_otherwise_after_forward_have_the_same_gradients(binary: bytes) -> None:
    found = []
    for model in pair(drawn(nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Conv2d(32, 16, 3)), binary):
        x = images(5, 16, 9, 9).requires_grad_()
        loss = model(x).square().sum()
        model[2].weight.data = model[2].weight.data.contiguous()
        loss.backward()
        found.append([x.grad, *(each.grad for each in model.parameters())])
    for ours, plain in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-2)


def test_what_a_batch_left_is_given_back_with_its_gradients(binary: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    left, run = [], native._run

    def noted(*given: Any, training: bool) -> Any:
        found = run(*given, training=training)
        left.extend(weakref.ref(each) for each in found[1:])
        return found

    monkeypatch.setattr(native, "_run", noted)
    loss = quick(small(), binary)(images(5, 3, 9, 9)).sum()
    assert all(each() is not None for each in left)
    loss.backward()
    assert len(left) == 2 and all(each() is None for each in left)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_names_devices_precisions_and_transformations_are_as_torch_has_them(binary: bytes) -> None:
    ours, plain = pair(small().eval(), binary)
    x, weights = images(5, 3, 9, 9), {name: each.detach() for name, each in ours.named_parameters()}
    with torch.no_grad():
        assert torch.equal(ours(input=x), ours(x))
        with torch.device("meta"):
            assert torch.equal(ours(x), ours(x))
        with torch.autocast("cpu", torch.bfloat16):
            assert ours(x).dtype == plain(x).dtype
        seen: list[type] = []
        with nn.modules.module.register_module_forward_hook(lambda module, given, came: seen.append(type(module))):
            ours(x)
        assert seen.count(nn.Conv2d) == sum(isinstance(layer, nn.Conv2d) for layer in ours)
    for model in (ours, plain):
        of = torch.func.grad(lambda named: torch.func.functional_call(model, named, (x,)).sum())(weights)  # noqa: B023
        assert of.keys() == weights.keys()


def test_a_model_that_was_saved_whole_runs_where_no_library_is(binary: bytes, tmp_path: Path) -> None:
    ours = quick(small().eval(), binary)
    torch.save((ours, images(5, 3, 9, 9)), tmp_path / "model.pt")
    script = "import sys, torch; model, x = torch.load(sys.argv[1], weights_only=False); print(model(x).shape)"
    ended = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "model.pt"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


# ---- Numbers that are hard to keep. ----


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("place", ["image", "weight"])
def test_what_is_not_finite_is_not_hidden(binary: bytes, place: str, value: float, norm: bool, stages: int) -> None:
    layers = [nn.Conv2d(3, 16, 3), *[nn.BatchNorm2d(16)] * norm, nn.ReLU(), nn.Conv2d(16, 32, 2), nn.ReLU()]
    model, x = drawn(*layers[: None if stages == 2 else -2]), images(4, 3, 9, 9)
    with torch.no_grad():
        if place == "image":
            x[1, 2, 4, 4] = value
        else:
            model[0].weight[5, 0, 1, 1] = value
    ours, plain = pair(model, binary)
    with watched() as asked:
        found, all_found = looked(ours, x), step(ours.train(), x)
    assert asked == ["look", "train"]
    expected, all_expected = looked(plain, x), step(plain.train(), x)
    assert torch.equal(found.isnan(), expected.isnan()) and torch.equal(found.isinf(), expected.isinf())
    assert not expected.isfinite().all()
    for name in ("output", *(name for name in all_expected if "running" in name)):
        assert torch.equal(all_found[name].isnan(), all_expected[name].isnan()), f"NaN in {name}"
        assert torch.equal(all_found[name].isinf(), all_expected[name].isinf()), f"infinity in {name}"


def test_nothing_comes_back_through_a_relu_that_was_given_zero(either: bytes) -> None:
    model = drawn(nn.Conv2d(3, 16, 3), nn.ReLU())
    with torch.no_grad():
        model[0].weight[::2] = model[0].bias[::2] = 0
    found = step(quick(model, either), images(4, 3, 9, 9))
    given = torch.stack([found["gradient of 0.weight"].abs().amax((1, 2, 3)), found["gradient of 0.bias"].abs()])
    assert not given[:, ::2].any() and given[:, 1::2].all()


def copying(channels: int) -> nn.Sequential:
    """A convolution that gives what it is given, and a norm."""
    model = drawn(nn.Conv2d(channels, channels, 1, bias=False), nn.BatchNorm2d(channels))
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(channels)[:, :, None, None])
    return model


@pytest.mark.parametrize(("mean", "deviation"), [(1e3, 1e-1), (-1e3, 1e-1), (1e4, 1.0), (1e-3, 1e-6), (0.0, 1e4)])
def test_channels_far_from_zero_are_normed_as_in_double_precision(either: bytes, mean: float, deviation: float) -> None:
    model, x = copying(32), images(7, 32, 13, 11) * deviation + mean * torch.linspace(0.5, 2, 32)[:, None, None]
    exact = step(copy.deepcopy(model).double(), x.double(), of_x=True)
    found, usual = step(quick(model, either), x, of_x=True), step(copy.deepcopy(model), x, of_x=True)
    for name in ("1.running_mean", "1.running_var"):
        torch.testing.assert_close(found[name].double(), exact[name], rtol=1e-6, atol=1e-7 * deviation)
    check(model, found, exact, tolerance=2e-3, usual=usual)


def test_a_first_pixel_that_is_like_no_other_does_not_spoil_the_moments(either: bytes) -> None:
    model, x = copying(16), images(50, 16, 16, 16)
    x[0, :, 0, 0] = 1e3
    exact, found = step(copy.deepcopy(model).double(), x.double()), step(quick(model, either), x)
    far = errors(found, exact)
    assert max(far[name] for name in ("output", "loss", "1.running_mean", "1.running_var")) < 1e-5, far


@pytest.mark.parametrize("value", [0.0, 0.1, -1e3])
def test_a_constant_channel_is_normed_to_a_constant(either: bytes, value: float) -> None:
    model = copying(16)
    x = torch.full((3, 16, 7, 5), value)
    x[:, ::2] = images(3, 8, 7, 5)
    exact = step(copy.deepcopy(model).double(), x.double(), of_x=True)
    found, usual = step(quick(model, either), x, of_x=True), step(copy.deepcopy(model), x, of_x=True)
    assert all(each.isfinite().all() for each in found.values())
    constant = found["output"][:, 1::2]
    assert torch.equal(constant, constant[:1, :, :1, :1].expand_as(constant))
    check(model, found, exact, tolerance=1e-4, usual=usual)


# ---- The same bits. ----


def test_the_same_call_gives_the_same_bits(binary: bytes) -> None:
    x = images(7, 3, 13, 9)
    assert same(trained(quick(small(), binary), x), trained(quick(small(), binary), x))


def test_threads_do_not_disturb_each_other(binary: bytes) -> None:
    batches = [images(8, 3, 31, 29, seed=at) for at in range(6)]

    def work(model: nn.Module) -> list[Found]:
        return [trained(model, x) for x in batches]

    models = [quick(small(seed), binary) for seed in range(4)]
    copies = copy.deepcopy(models)
    alone = [work(model) for model in models]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(work, copies))
    assert all(same(*each) for one, other in zip(alone, together, strict=True) for each in zip(one, other, strict=True))


def test_threads_may_look_at_the_same_model(binary: bytes) -> None:
    model, batches = quick(small(), binary).eval(), [images(8, 3, 31, 29, seed=at) for at in range(20)]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(lambda x: looked(model, x), batches))
    assert all(map(torch.equal, together, [looked(model, x) for x in batches]))


@settings(max_examples=20, deadline=None)
@given(case=cases(), order=st.randoms(use_true_random=False))
def test_what_is_said_of_an_image_does_not_depend_on_the_others(binary: bytes, case: Case, order: Any) -> None:
    model = quick(drawn(*case.layers, seed=case.seed), binary)
    every = looked(model, case.x)
    some = order.sample(range(len(case.x)), order.randint(1, len(case.x)))
    assert torch.equal(looked(model, case.x[some]), every[some])


def laid_out(x: Tensor) -> dict[str, Tensor]:
    """The same images, in several orders in memory."""
    count, channels, height, width = x.shape
    wide = torch.full((count, channels + 2, height + 1, width + 3), torch.nan)
    part = wide[:, 1:-1, 1:, 2:-1]
    turned = torch.empty(width, count, height, channels).permute(1, 3, 2, 0)
    last = torch.full((2 * count, height, width, channels), torch.nan).permute(0, 3, 1, 2)[::2]
    for view in (part, turned, last):
        view.copy_(x)
    kept = {
        "contiguous": x.contiguous(),
        "channels-last": x.contiguous(memory_format=torch.channels_last),
        "a part": part,
        "turned": turned,
        "every other": last,
    }
    assert len({view.stride() for view in kept.values()}) == len(kept)
    return kept


def test_how_images_lie_in_memory_changes_no_bits(binary: bytes) -> None:
    x = images(6, 3, 13, 9)
    found = {name: trained(quick(small(), binary), view) for name, view in laid_out(x).items()}
    assert all(same(each, found["contiguous"]) for each in found.values())


@pytest.mark.parametrize("shape", [(6, 16, 13, 9), (1, 16, 5, 5), (6, 16, 1, 7), (1, 16, 1, 1)])
def test_how_gradients_lie_in_memory_changes_no_bits(binary: bytes, shape: tuple[int, ...]) -> None:
    model, x = quick(drawn(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()), binary).train(), images(*shape)
    found = []
    for pull in laid_out(images(*shape, seed=1)).values() if min(shape) > 1 else [images(*shape, seed=1)] * 2:
        for view in (x, x.contiguous(memory_format=torch.channels_last)):
            leaf = view.clone(memory_format=torch.preserve_format).requires_grad_()
            found.append(torch.autograd.grad(model(leaf), [leaf, *model.parameters()], pull))
    assert all(map(torch.equal, found[0], each) for each in found)
    expanded = torch.autograd.grad(model(leaf).sum(), [leaf, *model.parameters()])
    ones = torch.autograd.grad(model(leaf), [leaf, *model.parameters()], torch.ones(shape))
    assert all(map(torch.equal, expanded, ones))


@pytest.mark.parametrize("channels_last", [False, True])
def test_images_and_weights_are_not_written_to(binary: bytes, channels_last: bool) -> None:
    model = quick(drawn(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True)), binary).train()
    x = images(4, 16, 7, 7)
    x = x.contiguous(memory_format=torch.channels_last) if channels_last else x
    before, weights = x.clone(), [each.detach().clone() for each in model.parameters()]
    given = x.requires_grad_()
    pull = images(4, 16, 7, 7, seed=1).contiguous(memory_format=torch.channels_last)
    kept = pull.clone()
    y = model(given)
    said = y.detach().clone()
    y.backward(pull)
    looked(model, x)
    assert torch.equal(x, before) and torch.equal(pull, kept) and torch.equal(y, said)
    assert all(map(torch.equal, model.parameters(), weights))


# ---- Models as things to keep, copy and change. ----


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


# ---- Which layers are taken. ----


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


# ---- The library. ----


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where what is compiled is kept: nothing yet, and nothing is remembered."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    compiled.cache_clear()
    yield tmp_path / "cache" / "scarlet"
    compiled.cache_clear()


Compiler = Callable[[str], None]


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """What `cc` is from now on."""

    def put(script: str) -> None:
        file = tmp_path / "bin" / "cc"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        monkeypatch.setenv("PATH", str(file.parent), prepend=os.pathsep)

    return put


@pytest.fixture
def runs(tmp_path: Path, binary: bytes, compiler: Compiler) -> Callable[[], int]:
    """How often a compiler was run, which takes no time."""
    log, made = tmp_path / "log", tmp_path / "made.so"
    made.write_bytes(binary)
    log.touch()
    compiler(
        f'[ "$1" = --version ] && exit; echo run >>"{log}"; while [ "$1" != -o ]; do shift; done; cp "{made}" "$2"'
    )
    return lambda: len(log.read_text().splitlines())


def test_without_a_compiler_there_is_no_library(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert compiled() is None and not kept.exists()


@pytest.mark.skipif(shutil.which("cc") is None, reason="NO C COMPILER: native models are not tested")
@pytest.mark.parametrize("capability", native._FLAGS)
def test_a_compiler_has_nothing_to_say_about_the_source(capability: str) -> None:
    options = "-Wall", "-Wextra", "-Wno-unknown-pragmas", "-fsyntax-only", *native._FLAGS[capability]
    if platform.machine() == "x86_64":
        said = subprocess.run(["cc", *options, native._SOURCE], capture_output=True, text=True, check=False)
        assert said.returncode == 0 and said.stderr == ""


def test_for_another_processor_there_is_no_library(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    assert compiled() is None and not kept.exists()


@pytest.mark.parametrize(
    "script", ["exit 1", "exit 0", '[ "$1" = --version ] || { while [ "$1" != -o ]; do shift; done; echo no >"$2"; }']
)
def test_of_a_compiler_that_fails_there_is_no_library(kept: Path, compiler: Compiler, script: str) -> None:
    compiler(script)
    assert compiled() is None and not kept.exists()


def test_a_library_is_compiled_kept_and_found_again(
    binary: bytes, kept: Path, compiler: Compiler, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    real = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    compiler(f'[ "$1" = --version ] || echo run >>"{log}"; exec {real} "$@"')
    made = compiled()
    assert made is not None and compiled() is made
    (file,) = kept.iterdir()
    compiled.cache_clear()
    assert compiled() == made and log.read_text() == "run\n"
    assert list(kept.iterdir()) == [file]
    with watched() as asked:
        found = trained(quick(small(), made), images(5, 3, 9, 9))
    assert asked == ["train", "look"] and same(found, trained(quick(small(), binary), images(5, 3, 9, 9)))


FIND = "from scarlet.core.native import compiled; assert compiled()"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: b"",
        lambda content: b"no library" * 1000,
        lambda content: content[: len(content) // 2],
        lambda content: content[:4096] + bytes(len(content) - 4096),
    ],
    ids=["empty", "something else", "cut off", "zeros"],
)
def test_a_kept_library_that_was_spoilt_is_replaced(
    kept: Path, runs: Callable[[], int], spoil: Callable[[bytes], bytes]
) -> None:
    assert compiled() and runs() == 1
    (file,) = kept.iterdir()
    file.write_bytes(spoil(file.read_bytes()))
    # In another process, as it might end this one.
    ended = subprocess.run([sys.executable, "-c", FIND], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"it ended by {ended.returncode}: {ended.stderr}"
    assert runs() == 2 and list(kept.iterdir()) == [file]
    compiled.cache_clear()
    assert compiled() and runs() == 2


def a_file(cache: Path) -> None:
    cache.write_text("")


def a_directory_that_nobody_may_write_to(cache: Path) -> None:
    cache.mkdir(mode=0o500)


def a_directory_that_nobody_may_enter(cache: Path) -> None:
    cache.mkdir(mode=0o000)


@pytest.mark.parametrize("make", [a_file, a_directory_that_nobody_may_write_to, a_directory_that_nobody_may_enter])
def test_where_nothing_can_be_kept_the_library_is_compiled_each_time(
    kept: Path, runs: Callable[[], int], binary: bytes, make: Callable[[Path], None]
) -> None:
    make(kept.parent)
    assert compiled() == binary
    compiled.cache_clear()
    assert compiled() == binary
    if os.geteuid() or make is a_file:  # root may do all
        assert runs() == 2 and not kept.exists()
    kept.parent.chmod(0o700)


def test_something_else_in_the_place_of_the_kept_library_is_left_there(
    kept: Path, runs: Callable[[], int], binary: bytes
) -> None:
    assert compiled()
    (file,) = kept.iterdir()
    file.unlink()
    file.mkdir()
    compiled.cache_clear()
    assert compiled() == binary and runs() == 2
    assert list(kept.iterdir()) == [file] and file.is_dir()


def test_an_empty_name_of_the_cache_is_none(
    kept: Path, runs: Callable[[], int], binary: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert compiled() == binary and runs() == 1
    assert list(here.iterdir()) == [] and list((tmp_path / "home" / ".cache" / "scarlet").iterdir())


def test_somebody_without_a_home_has_a_library_too(
    kept: Path, runs: Callable[[], int], binary: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(user: int) -> pwd.struct_passwd:
        raise KeyError(user)

    monkeypatch.chdir(kept.parent.parent)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    before = set(Path.cwd().iterdir())
    assert compiled() == binary and runs() == 1
    assert set(Path.cwd().iterdir()) == before, "a directory called ~ is nobody's home"
