from __future__ import annotations

import copy
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from scarlet.core import native
from scarlet.core.native import quicken
from tests.core.native_models import (
    Found,
    check,
    drawn,
    images,
    looked,
    pair,
    quick,
    same,
    small,
    step,
    trained,
)

pytestmark = pytest.mark.usefixtures("one_thread")


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
