"""FedAvg's mean of models against a literal one, and a model as a row of numbers."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from itertools import permutations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from scarlet.data import Augment
from scarlet.errors import MessageError
from scarlet.methods.fedavg import FedavgConfig, fedavg
from scarlet.protocol.average import AverageOfModels
from scarlet.protocol.client import Client
from scarlet.protocol.server import Federation, Server
from scarlet.protocol.types import Job, Labels, Parameters, Uplink, Values
from scarlet.training.server_model import ServerModel
from scarlet.training.train import Samples, Training, load_parameters, parameters_of, work
from scarlet.wire.ledger import Ledger
from scarlet.wire.reference import Reference

PROFILE = settings(deadline=None, max_examples=100)
CLASSES = 3


pytestmark = pytest.mark.usefixtures("one_thread")


def model(client: int, samples: int, *numbers: float) -> Parameters:
    return Parameters(1, 0, client, samples, np.array(numbers, np.float32))


def averaged(models: list[Parameters]) -> Values:
    average = AverageOfModels(len(models[0].value), len(models))
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
    average = AverageOfModels(2, 4)
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
            AverageOfModels(1, clients).add(model(0, 1, 2.0**exponent))
        except MessageError:
            break
        largest = 2.0**exponent
    assert largest >= 2.0**40
    assert averaged([model(client, 1, largest, -largest) for client in range(clients)]).tolist() == [largest, -largest]


# A model as a row of numbers


def network(seed: int = 1) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 16, CLASSES)
        )


def state(model: nn.Module) -> dict[str, tuple[torch.dtype, list[float]]]:
    return {name: (value.dtype, value.flatten().tolist()) for name, value in model.state_dict().items()}


def used(model: nn.Module, batches: int) -> nn.Module:
    """The model once its batch norm has seen some images."""
    model.train()
    generator = torch.Generator().manual_seed(batches)
    for _ in range(batches):
        model(torch.randn(5, 1, 4, 4, generator=generator))
    return model


def test_a_model_that_loads_anothers_numbers_is_that_other_with_its_buffers_and_its_count_of_batches() -> None:
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


def test_loading_goes_into_the_models_own_tensors_so_that_what_refers_to_them_stays_right() -> None:
    model = network()
    weight = next(model.parameters())
    load_parameters(model, np.zeros_like(parameters_of(model)))
    assert weight.abs().sum() == 0


def test_a_fraction_of_a_batch_is_rounded() -> None:
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


# A round

HOW = Training(
    local_epochs=2, distil_epochs=1, lr=0.1, distil_lr=0.1, batch_size=4, augment=Augment(padding=0, flip=False), seed=5
)
SIZES = (5, 9, 17)  # images of each client


def images(client: int) -> Samples:
    rng = np.random.default_rng(client)
    pixels = rng.integers(0, 256, (SIZES[client], 1, 4, 4), np.uint8)
    return Samples(torch.from_numpy(pixels), torch.from_numpy(rng.integers(0, CLASSES, SIZES[client])))


class Village:
    """A FedAvg federation whose models are real."""

    def __init__(self) -> None:
        self.method, self.codec, self.public = fedavg(FedavgConfig()), Reference(), torch.zeros(4, 1, 4, 4)
        federation = Federation(clients=len(SIZES), public_size=4, public_per_round=2, classes=CLASSES, seed=0)
        self.model = ServerModel(network(), self.public, images(0), HOW)
        self.server = Server(self.method, federation, self.codec, Ledger(), self.model)
        self.clients = [Client(number, self.method, federation, self.codec) for number in range(len(SIZES))]
        self.trained: dict[int, dict[str, Tensor]] = {}  # what each client's model became

    def answers(self, seed: int = 10) -> dict[int, list[bytes]]:
        """Each client trains what it was sent, whatever its own model was before."""
        replies = {}
        for number, downlink in self.server.open_round().items():
            job = self.clients[number].receive(downlink)
            assert isinstance(job, Job)
            own = used(network(seed + number), number)
            result = work(own, job, images(number), None, self.public, HOW, self.method, network().state_dict())
            self.trained[number] = copy.deepcopy(own.state_dict())
            replies[number] = self.clients[number].reply(job, result)
        return replies


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_round_leaves_the_literal_mean_of_the_clients_models_weighted_by_their_images(rounds: int) -> None:
    village = Village()
    for _ in range(rounds):
        before = state(village.model.model)
        for client, messages in village.answers().items():
            for message in messages:
                village.server.take(client, message)
        closed = village.server.close_round()
        assert closed is not None
        assert closed.rejections == {}
        assert state(village.model.model) != before
    for name, value in village.model.model.state_dict().items():
        expected = sum(size * village.trained[client][name].double() for client, size in enumerate(SIZES)) / sum(SIZES)
        assert isinstance(expected, Tensor)
        if not value.is_floating_point():
            expected = expected.round()
        np.testing.assert_allclose(value.double().numpy(), expected.numpy(), rtol=1e-7, atol=1e-8)


def test_a_client_trains_the_servers_model_and_not_its_own() -> None:
    village, other = Village(), Village()
    assert village.answers(seed=10) == other.answers(seed=20)


def test_a_round_does_not_depend_on_the_order_of_the_answers() -> None:
    outcomes = set()
    for order in permutations(range(len(SIZES))):
        village = Village()
        replies = village.answers()
        for client in order:
            for message in replies[client]:
                village.server.take(client, message)
        village.server.close_round()
        outcomes.add(parameters_of(village.model.model).tobytes())
    assert len(outcomes) == 1


def test_labels_where_weights_are_exchanged_and_weights_where_labels_are_rejected() -> None:
    village = Village()
    replies = village.answers()
    nothing = Labels(np.empty(0, np.int64), np.empty((0, CLASSES), np.float32))
    village.server.take(0, village.codec.encode(Uplink(1, 0, 0, nothing)))
    assert village.server.rejections == {"wrong kind": 1}
    weights = village.codec.decode(replies[1][0])
    assert isinstance(weights, Parameters)
    village.server.take(1, village.codec.encode(replace(weights, client=2)))
    assert village.server.rejections == {"wrong kind": 1, "unknown client": 1}


def test_a_round_in_which_every_model_is_rejected_leaves_the_servers_as_it_was() -> None:
    village = Village()
    before = state(village.model.model)
    for client, (weights, _) in village.answers().items():
        sent = village.codec.decode(weights)
        assert isinstance(sent, Parameters)
        village.server.take(client, village.codec.encode(replace(sent, value=np.full_like(sent.value, np.nan))))
    assert village.server.rejections == {"not finite": len(SIZES)}
    assert village.server.close_round() is None
    assert state(village.model.model) == before
