"""FedAvg with real models: a round leaves the mean of the clients' models, weighted by their images."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from scarlet.arrays import Labels
from scarlet.data.sites import Augment
from scarlet.job import Job
from scarlet.methods.fedavg import FedavgConfig, fedavg
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.client import Client
from scarlet.protocol.codec_registry import codec
from scarlet.protocol.server import Server
from scarlet.protocol.uplink.labels import Answer, SoftLabels
from scarlet.protocol.uplink.weights import Parameters
from scarlet.training.server_model import ServerModel
from scarlet.training.train import Samples, Task, Training, parameters_of, work
from scarlet.wire.ledger import Ledger

CLASSES = 3
TRAINING = Training(
    local_epochs=2, distil_epochs=1, lr=0.1, distil_lr=0.1, batch_size=4, augment=Augment(padding=0, flip=False), seed=5
)
SIZES = (5, 9, 17)  # images of each client
METHOD = fedavg(FedavgConfig())
AGREEMENT = Agreement(clients=len(SIZES), public_size=4, public_per_round=2, classes=CLASSES, seed=0)


def network(seed: int = 1) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 16, CLASSES)
        )


def used(model: nn.Module, batches: int) -> nn.Module:
    """The model once its batch norm has seen some images."""
    model.train()
    generator = torch.Generator().manual_seed(batches)
    for _ in range(batches):
        model(torch.randn(5, 1, 4, 4, generator=generator))
    return model


def state(model: nn.Module) -> dict[str, list[float]]:
    return {name: value.flatten().tolist() for name, value in model.state_dict().items()}


def images(client: int) -> Samples:
    rng = np.random.default_rng(client)
    pixels = rng.integers(0, 256, (SIZES[client], 1, 4, 4), np.uint8)
    return Samples(torch.from_numpy(pixels), torch.from_numpy(rng.integers(0, CLASSES, SIZES[client])))


class Federation:
    """A FedAvg federation whose models are real."""

    def __init__(self) -> None:
        self.codec, self.public = codec("reference", METHOD, AGREEMENT), torch.zeros(4, 1, 4, 4)
        self.model = ServerModel(network(), self.public, images(0), TRAINING)
        self.server = Server(METHOD, AGREEMENT, self.codec, Ledger(), self.model)
        self.clients = [Client(number, METHOD, AGREEMENT, self.codec) for number in range(len(SIZES))]
        self.trained: dict[int, dict[str, Tensor]] = {}  # each client's model after its job

    def answers(self, seed: int = 10) -> dict[int, list[bytes]]:
        """Each client trains what it was sent, whatever its own model was before."""
        replies = {}
        for number, downlink in self.server.open_round().items():
            job = self.clients[number].receive(downlink)
            assert isinstance(job, Job)
            own = used(network(seed + number), number)
            task = Task(str(number), job, own, TRAINING.optimisers(own), images(number), None)
            result = work(task, self.public, TRAINING, network().state_dict())
            self.trained[number] = copy.deepcopy(own.state_dict())
            replies[number] = self.clients[number].reply(job, result)
        return replies


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_round_leaves_the_literal_mean_of_the_clients_models_weighted_by_their_images(rounds: int) -> None:
    federation = Federation()
    for _ in range(rounds):
        before = state(federation.model.model)
        for client, messages in federation.answers().items():
            for message in messages:
                federation.server.take(client, message)
        closed = federation.server.close_round()
        assert closed is not None
        assert closed.rejections == {}
        assert state(federation.model.model) != before
    for name, value in federation.model.model.state_dict().items():
        models = [size * federation.trained[client][name].double() for client, size in enumerate(SIZES)]
        expected = sum(models) / sum(SIZES)
        assert isinstance(expected, Tensor)
        if not value.is_floating_point():
            expected = expected.round()
        np.testing.assert_allclose(value.double().numpy(), expected.numpy(), rtol=1e-7, atol=1e-8)


def test_a_client_trains_the_servers_model_and_not_its_own() -> None:
    assert Federation().answers(seed=10) == Federation().answers(seed=20)


def test_a_round_does_not_depend_on_the_order_of_the_answers() -> None:
    outcomes = set()
    for order in permutations(range(len(SIZES))):
        federation = Federation()
        replies = federation.answers()
        for client in order:
            for message in replies[client]:
                federation.server.take(client, message)
        federation.server.close_round()
        outcomes.add(parameters_of(federation.model.model).tobytes())
    assert len(outcomes) == 1


def test_labels_where_weights_are_exchanged_and_anothers_weights_are_rejected() -> None:
    federation = Federation()
    replies = federation.answers()
    of_labels = codec("reference", replace(METHOD, uplink=SoftLabels()), AGREEMENT)
    nothing = Labels(np.empty(0, np.int64), np.empty((0, CLASSES), np.float32))
    federation.server.take(0, of_labels.encode(Answer(1, 0, 0, nothing)))
    assert federation.server.rejections == {"wrong kind": 1}
    weights = federation.codec.decode(replies[1][0])
    assert isinstance(weights, Parameters)
    federation.server.take(1, federation.codec.encode(replace(weights, client=2)))
    assert federation.server.rejections == {"wrong kind": 1, "unknown client": 1}


def test_a_round_in_which_every_model_is_rejected_leaves_the_servers_as_it_was() -> None:
    federation = Federation()
    before = state(federation.model.model)
    for client, (weights, _) in federation.answers().items():
        sent = federation.codec.decode(weights)
        assert isinstance(sent, Parameters)
        federation.server.take(client, federation.codec.encode(replace(sent, value=np.full_like(sent.value, np.nan))))
    assert federation.server.rejections == {"not finite": len(SIZES)}
    assert federation.server.close_round() is None
    assert state(federation.model.model) == before
