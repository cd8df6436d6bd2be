from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from scarlet.models.cnn import cnn, cnn32
from tests.core.native_models import (
    Found,
    biases_before_norms,
    check,
    drawn,
    errors,
    images,
    looked,
    nested,
    pair,
    quick,
    same,
    small,
    step,
    trained,
    watched,
    within_a_module,
)

pytestmark = pytest.mark.usefixtures("one_thread")


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
