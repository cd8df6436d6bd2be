"""FedAvg's mean of models against a literal one."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scarlet.arrays import Values
from scarlet.errors import MessageError
from scarlet.protocol.uplink.weights import MeanOfModels, Parameters

PROFILE = settings(deadline=None, max_examples=100)


def model(client: int, samples: int, *numbers: float) -> Parameters:
    return Parameters(1, 0, client, samples, np.array(numbers, np.float32))


def averaged(models: list[Parameters]) -> Values:
    average = MeanOfModels(len(models[0].value), len(models))
    for each in models:
        average.add(each)
    return average.finish()


def literal_mean(models: list[Parameters]) -> npt.NDArray[np.float64]:
    """Number by number: sum_k n_k w_k / sum_k n_k, without rounding on the way."""
    samples = sum(each.samples for each in models)
    columns = zip(*(each.value.tolist() for each in models), strict=True)
    weights = [each.samples for each in models]
    return np.array(
        [math.fsum(n * w for n, w in zip(weights, column, strict=True)) / samples for column in columns], np.float64
    )


@st.composite
def models(draw: st.DrawFn) -> list[Parameters]:
    numbers = draw(st.integers(0, 5))
    weight = st.floats(-100, 100, width=32) | st.floats(-(2.0**-20), 2.0**-20, width=32)
    return [
        model(client, draw(st.integers(1, 5_000)), *draw(st.lists(weight, min_size=numbers, max_size=numbers)))
        for client in range(draw(st.integers(1, 6)))
    ]


@PROFILE
@given(models())
def test_the_mean_is_the_literal_weighted_one(models: list[Parameters]) -> None:
    expected = literal_mean(models)
    np.testing.assert_allclose(averaged(models), expected, rtol=1e-7, atol=2.0**-29)


@PROFILE
@given(models().flatmap(lambda several: st.tuples(st.just(several), st.permutations(several))))
def test_the_order_of_arrival_does_not_matter_to_the_bit(orders: tuple[list[Parameters], list[Parameters]]) -> None:
    assert averaged(orders[0]).tobytes() == averaged(orders[1]).tobytes()


def test_every_order_of_arrival_gives_the_same_bits_where_float32_sums_would_differ() -> None:
    several = [model(0, 3, 1e4, 0.1), model(1, 5, -1e4, 1e-5), model(2, 7, 0.3, -0.2), model(3, 1, 1e-6, 7.7)]
    assert len({averaged(list(order)).tobytes() for order in permutations(several)}) == 1
    floats = {
        sum((m.samples * m.value for m in order), np.zeros(2, np.float32)).tobytes() for order in permutations(several)
    }
    assert len(floats) > 1


def test_a_client_counts_by_its_samples() -> None:
    assert averaged([model(0, 1, 0.0, 8.0), model(1, 3, 4.0, 0.0)]).tolist() == [3.0, 2.0]


def test_the_model_of_a_single_client_is_taken_as_it_is() -> None:
    numbers = np.random.default_rng(0).normal(size=500).astype(np.float32)
    alone = averaged([Parameters(1, 0, 0, 500, numbers)])
    np.testing.assert_allclose(alone, numbers, rtol=6e-8, atol=2.0**-31)


@pytest.mark.parametrize("clients", [1, 10, 100])
def test_the_count_of_batches_of_a_long_run_is_not_too_large(clients: int) -> None:
    """CIFAR-10 in batches of 50 makes 1,000 steps an epoch, and so a million in a thousand rounds of one client."""
    counts = [model(client, 50_000 // clients, 1e6, 0.5) for client in range(clients)]
    assert averaged(counts).tolist() == [1e6, 0.5]


BAD: dict[str, tuple[Parameters, str]] = {
    "NaN": (model(1, 3, 1.0, math.nan), "not finite"),
    "infinity": (model(1, 3, math.inf, 1.0), "not finite"),
    "minus infinity": (model(1, 3, 1.0, -math.inf), "not finite"),
    "huge": (model(1, 3, 3e38, 1.0), "not finite"),
    "minus huge": (model(1, 3, 1.0, -3e38), "not finite"),
    "huge by its samples": (model(1, 2**32 - 1, 1e15, 1.0), "not finite"),
    "short": (model(1, 3, 1.0), "wrong shape"),
    "long": (model(1, 3, 1.0, 2.0, 3.0), "wrong shape"),
    "empty": (model(1, 3), "wrong shape"),
    "no samples": (model(1, 0, 1.0, 2.0), "wrong shape"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_model_that_is_none_is_rejected_and_leaves_the_mean_as_it_was(name: str) -> None:
    bad, reason = BAD[name]
    average = MeanOfModels(2, 4)
    average.add(model(0, 1, 1.0, 2.0))
    with pytest.raises(MessageError, match=r"^client 1 [^\n]+$") as rejected:
        average.add(bad)
    assert rejected.value.reason == reason
    average.add(model(2, 1, 3.0, 4.0))
    assert average.finish().tolist() == [2.0, 3.0]


def test_the_largest_models_of_all_clients_together_do_not_overflow() -> None:
    """The largest number that is accepted, from each of the clients."""
    clients, largest = 64, 1.0
    for exponent in range(120):
        try:
            MeanOfModels(1, clients).add(model(0, 1, 2.0**exponent))
        except MessageError:
            break
        largest = 2.0**exponent
    assert largest >= 2.0**40
    assert averaged([model(client, 1, largest, -largest) for client in range(clients)]).tolist() == [largest, -largest]
