from __future__ import annotations

import pytest
import torch
from torch import nn

from scarlet.errors import ConfigError
from scarlet.models.registry import MODELS, initial_weights, model_factory, usual_model
from scarlet.models.resnet import ResNet

SHAPES: dict[str, tuple[int, ...]] = {
    "cnn": (1, 28, 28),
    "cnn32": (3, 32, 32),
    "resnet20": (3, 32, 32),
    "resnet32": (3, 32, 32),
    "resnet18": (3, 64, 64),
    "mlp": (20,),
}


def build(name: str, classes: int = 10) -> nn.Module:
    """A model of that name for the images it is meant for."""
    return model_factory(name, classes, SHAPES[name])()


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def conv(width_in: int, width_out: int, kernel: int = 3) -> int:
    return width_in * width_out * kernel**2


def norm(width: int) -> int:
    return 2 * width


def linear(width_in: int, width_out: int) -> int:
    return (width_in + 1) * width_out


def cifar_resnet(n: int, classes: int) -> int:
    """He et al., section 4.2: 6n+2 layers, 2n each of 16, 32 and 64 channels, identity shortcuts throughout."""
    stem = conv(3, 16) + norm(16)
    first = 2 * n * (conv(16, 16) + norm(16))
    second = conv(16, 32) + (2 * n - 1) * conv(32, 32) + 2 * n * norm(32)
    third = conv(32, 64) + (2 * n - 1) * conv(64, 64) + 2 * n * norm(64)
    return stem + first + second + third + linear(64, classes)


def imagenet_resnet18(classes: int) -> int:
    """Four stages of two blocks; each stage but the first opens with a 1x1 projection."""
    total = conv(3, 64) + norm(64) + 4 * (conv(64, 64) + norm(64))
    for before, width in ((64, 128), (128, 256), (256, 512)):
        total += conv(before, width) + 3 * conv(width, width) + 4 * norm(width)
        total += conv(before, width, kernel=1) + norm(width)
    return total + linear(512, classes)


def test_the_models_are_those_of_the_issue() -> None:
    assert set(MODELS) == set(SHAPES)


def test_resnet20_has_the_270_thousand_parameters_of_its_paper() -> None:
    assert parameters(build("resnet20", 10)) == cifar_resnet(3, 10) == 269_722


def test_resnet32_for_100_classes_has_470_thousand_parameters() -> None:
    assert parameters(build("resnet32", 100)) == cifar_resnet(5, 100) == 470_004


def test_resnet18_for_200_classes_has_11_million_parameters() -> None:
    assert parameters(build("resnet18", 200)) == imagenet_resnet18(200) == 11_271_432


def test_cnn_has_two_convolutions_with_bias_and_two_linear_layers() -> None:
    by_hand = (conv(1, 16, 5) + 16) + (conv(16, 32) + 32) + linear(32 * 7 * 7, 64) + linear(64, 10)
    assert parameters(build("cnn")) == by_hand == 106_122


def test_cnn32_has_three_convolutions_with_batch_norm_and_one_linear_layer() -> None:
    by_hand = conv(3, 32) + norm(32) + conv(32, 64) + norm(64) + conv(64, 64) + norm(64) + linear(64 * 4 * 4, 10)
    assert parameters(build("cnn32")) == by_hand == 66_730


def test_mlp_has_two_hidden_layers_of_64() -> None:
    assert parameters(build("mlp")) == linear(20, 64) + linear(64, 64) + linear(64, 10)


@pytest.mark.parametrize(("name", "depth"), [("resnet18", 18), ("resnet20", 20), ("resnet32", 32)])
def test_a_resnet_is_as_deep_as_its_name_says(name: str, depth: int) -> None:
    layers = [layer for layer in build(name).modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    projections = [layer for layer in layers if isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1)]
    assert len(layers) - len(projections) == depth


def test_cnn32_is_three_convolutions_of_stride_2_to_32_64_and_64_channels() -> None:
    convolutions = [layer for layer in build("cnn32").modules() if isinstance(layer, nn.Conv2d)]
    assert [(layer.in_channels, layer.out_channels) for layer in convolutions] == [(3, 32), (32, 64), (64, 64)]
    assert all(layer.kernel_size == (3, 3) and layer.stride == (2, 2) for layer in convolutions)


@pytest.mark.parametrize("name", SHAPES)
def test_a_model_gives_one_score_for_each_class(name: str) -> None:
    scores = build(name, classes=7).eval()(torch.zeros(2, *SHAPES[name]))
    assert scores.shape == (2, 7)


@pytest.mark.parametrize(
    ("name", "shape"), [("cnn", (3, 30, 30)), ("cnn32", (1, 28, 28)), ("cnn32", (3, 64, 64)), ("resnet20", (1, 28, 28))]
)
def test_a_model_fits_images_of_another_shape(name: str, shape: tuple[int, int, int]) -> None:
    assert model_factory(name, 5, shape)().eval()(torch.zeros(1, *shape)).shape == (1, 5)


@pytest.mark.parametrize("shape", [(5,), (7, 5), (3, 8, 8), (2, 3, 4, 5)])
def test_mlp_takes_inputs_of_any_shape(shape: tuple[int, ...]) -> None:
    assert model_factory("mlp", 5, shape)()(torch.zeros(2, *shape)).shape == (2, 5)


@pytest.mark.parametrize("name", [name for name in SHAPES if name != "mlp"])
@pytest.mark.parametrize("shape", [(5,), (7, 5)])
def test_a_model_for_images_is_refused_for_other_inputs_in_one_line_that_names_mlp(
    name: str, shape: tuple[int, ...]
) -> None:
    with pytest.raises(ConfigError, match=rf"^model {name} takes images .*; use mlp, or .* from Python$") as refused:
        model_factory(name, 5, shape)
    assert str(list(shape)) in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(("shape", "name"), [((9,), "mlp"), ((3, 8, 8), "cnn32"), ((7, 5), None), ((1, 2, 3, 4), None)])
def test_rows_and_images_have_a_usual_model_and_other_inputs_have_none(
    shape: tuple[int, ...], name: str | None
) -> None:
    assert usual_model(shape) == name


def first_block_that_widens(name: str) -> nn.Module:
    model = build(name)
    assert isinstance(model, ResNet)
    return next(block for block in model.stages if block.stride == 2)


@pytest.mark.parametrize("name", ["resnet20", "resnet32"])
def test_the_shortcut_of_the_cifar_resnets_has_no_parameters(name: str) -> None:
    kernels = [layer.kernel_size for layer in build(name).modules() if isinstance(layer, nn.Conv2d)]
    assert set(kernels) == {(3, 3)}


def test_the_parameter_free_shortcut_takes_every_other_pixel_and_leaves_new_channels_zero() -> None:
    block = first_block_that_widens("resnet20").eval()
    nn.init.zeros_(block.get_submodule("bn2").get_parameter("weight"))  # silences the convolutions
    x = torch.rand(2, 16, 32, 32)
    expected = torch.zeros(2, 32, 16, 16)
    expected[:, 8:24] = x[:, :, ::2, ::2]
    assert torch.equal(block(x), expected)


def test_the_shortcut_of_resnet18_is_a_projection_where_the_shape_changes() -> None:
    kernels = [layer.kernel_size for layer in build("resnet18").modules() if isinstance(layer, nn.Conv2d)]
    assert kernels.count((1, 1)) == 3


@pytest.mark.parametrize("name", ["cnn", "cnn32", "resnet20"])
def test_everybody_starts_from_the_same_weights_under_a_seed_and_from_others_under_another(name: str) -> None:
    factory = model_factory(name, 10, SHAPES[name])
    one, again, other = (initial_weights(factory, seed) for seed in (3, 3, 4))
    assert all(torch.equal(one[key], again[key]) for key in one)
    drawn = [key for key in one if one[key].dim() > 1]  # batch norm starts from constants
    assert drawn and all(not torch.equal(one[key], other[key]) for key in drawn)


def test_initial_weights_do_not_depend_on_what_torch_drew_before() -> None:
    factory = model_factory("cnn", 10, SHAPES["cnn"])
    before = initial_weights(factory, 0)
    torch.rand(5)
    after = initial_weights(factory, 0)
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_making_initial_weights_leaves_the_global_generator_untouched() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(99)  # a state that no seed of a model leads to
        before = torch.get_rng_state()
        initial_weights(model_factory("cnn", 10, SHAPES["cnn"]), 0)
        assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("wrong", "nearest"), [("resnet_20", "resnet20"), ("cnn_32", "cnn32"), ("resnet180", "resnet18")]
)
def test_an_unknown_model_is_an_error_that_suggests_the_nearest(wrong: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown model '{wrong}': did you mean '{nearest}'"):
        model_factory(wrong, 10, (3, 32, 32))
