"""Small models, and what a step does to them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from scarlet.core import native
from scarlet.core.native import quicken

Found = dict[str, Tensor]


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


def nested() -> nn.Sequential:
    inner = nn.Sequential(nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16), nn.ReLU())
    return drawn(
        nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU()), inner, nn.Sequential(nn.Sequential(nn.Conv2d(16, 32, 2)))
    )


def within_a_module() -> nn.Sequential:
    return drawn(nn.Conv2d(3, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(), Residual(16), Residual(16))


def pair(model: nn.Module, binary: bytes) -> tuple[Any, Any]:
    return quick(model, binary), copy.deepcopy(model)
