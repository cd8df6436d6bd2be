"""A model as a row of numbers, and as named arrays."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from scarlet.data.samples import Labelled
from scarlet.errors import MessageError
from scarlet.training.tensors import model_arrays, resident, samples, weights_digest, weights_of
from scarlet.training.train import load_parameters, parameters_of
from tests.training.easy import network, same


def state(model: nn.Module) -> dict[str, tuple[torch.dtype, list[float]]]:
    return {name: (value.dtype, value.flatten().tolist()) for name, value in model.state_dict().items()}


def used(model: nn.Module, batches: int) -> nn.Module:
    """The model once its batch norm has seen some images."""
    model.train()
    generator = torch.Generator().manual_seed(batches)
    for _ in range(batches):
        model(torch.randn(5, 1, 6, 6, generator=generator))
    return model


def test_a_model_that_loads_anothers_parameters_equals_it_with_its_buffers_and_its_count_of_batches() -> None:
    source, target = used(network(1), 7), used(network(2), 3)
    assert state(source) != state(target)
    load_parameters(target, parameters_of(source))
    assert state(target) == state(source)
    assert int(target.state_dict()["1.num_batches_tracked"]) == 7
    assert target.state_dict()["1.num_batches_tracked"].dtype == torch.int64


def test_the_row_has_every_number_of_the_model_and_is_a_copy() -> None:
    model = used(network(), 2)
    row = parameters_of(model)
    assert row.dtype == np.float32
    assert len(row) == sum(value.numel() for value in model.state_dict().values())
    assert row.tolist() == [float(x) for value in model.state_dict().values() for x in value.flatten().tolist()]
    before = state(model)
    row[:] = 0
    assert state(model) == before


def test_parameters_are_loaded_into_the_models_own_tensors() -> None:
    model = network()
    weight = next(model.parameters())
    load_parameters(model, np.zeros_like(parameters_of(model)))
    assert weight.abs().sum() == 0


def test_a_fractional_count_of_batches_is_rounded() -> None:
    model = used(network(), 2)
    names = [name for name, value in model.state_dict().items() for _ in range(value.numel())]
    row = parameters_of(model)
    row[names.index("1.num_batches_tracked")] = 6.6
    load_parameters(model, row)
    assert int(model.state_dict()["1.num_batches_tracked"]) == 7


@pytest.mark.parametrize("change", [-1, 1])
def test_a_row_of_another_length_is_refused_and_changes_nothing(change: int) -> None:
    model = network()
    before, count = state(model), len(parameters_of(model))
    with pytest.raises(MessageError, match=f"the weights are {count + change} numbers, and this model has {count}"):
        load_parameters(model, np.zeros(count + change, np.float32))
    assert state(model) == before


def test_arrays_share_the_models_memory_and_weights_made_of_them_do_not() -> None:
    model = used(network(), 2)
    arrays = model_arrays(model.state_dict())
    weights = weights_of(arrays)
    assert same(weights, model.state_dict()) and list(weights) == list(model.state_dict())
    load_parameters(model, np.zeros_like(parameters_of(model)))
    assert not arrays["4.weight"].any() and weights["4.weight"].any()


def test_the_digest_is_of_names_and_values_whatever_their_order_and_layout() -> None:
    weights = network().state_dict()
    other = {name: value.clone() for name, value in reversed(weights.items())}
    other["0.weight"] = other["0.weight"].to(memory_format=torch.channels_last)
    assert weights_digest(other) == weights_digest(weights)
    assert weights_digest({**weights, "0.bias": weights["1.bias"], "1.bias": weights["0.bias"]}) != weights_digest(
        weights
    )


def test_samples_become_tensors_in_the_models_layout() -> None:
    given = np.zeros((4, 3, 8, 8), np.uint8)
    model = nn.Conv2d(3, 8, 3)
    assert resident(given, model, "cpu").is_contiguous()
    converted = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    made = samples(Labelled(given, np.arange(4)), converted, "cpu")
    assert made.inputs.is_contiguous(memory_format=torch.channels_last) and not made.inputs.is_contiguous()
    assert made.labels.tolist() == [0, 1, 2, 3]
