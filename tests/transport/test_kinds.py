"""Clients of different kinds in one federation: models, training and preprocessing of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from scarlet.arrays import Inputs, Values
from scarlet.data.federated import FederatedData
from scarlet.data.samples import Labelled
from scarlet.data.sites import Augment
from scarlet.models.registry import model_factory
from scarlet.protocol.messages import Report
from scarlet.protocol.uplink.labels import Answer
from scarlet.training.engines.choice import Engine
from scarlet.training.tensors import weights_digest
from scarlet.training.train import Training
from scarlet.transport.client_runner import ClientRunner
from scarlet.transport.client_setup import Kind
from tests.transport.five_clients import (
    CLASSES,
    CODEC,
    EVERYBODY,
    SHAPE,
    Said,
    data,
    exchanged,
    kind,
    of_pools,
    play,
    play_round,
    server,
    setup,
    transport,
)

UNTESTED = 3  # the client without a test part
KIND_OF = [0, 1, 0, 1, 1]
PLAIN = Training(1, 1, 0.1, 0.1, 5, Augment(), seed=0)


def kinds() -> list[Kind]:
    """A convolutional network that is trained with momentum, and a flat one that is augmented and scaled otherwise."""
    first = replace(kind().training, momentum=0.9)
    second = replace(kind().training, augment=mirrored, scale=darker, lr=0.05)
    flat = kind(model="mlp", factory=model_factory("mlp", CLASSES, SHAPE), training=second, cost=2)
    return [kind(training=first), flat]


def mirrored(inputs: Tensor) -> Tensor:
    return inputs.flip(-1) if torch.rand(()) < 0.5 else inputs


def darker(inputs: Tensor) -> Tensor:
    return inputs.float() / 300


def without_a_test() -> FederatedData:
    given = data()
    return replace(given, test=[None if client == UNTESTED else given.test[client] for client in EVERYBODY])


def played(workers: int, **changes: Any) -> tuple[list[Said], list[bytes]]:
    return play(workers, without_a_test(), **{"kinds": kinds(), "kind_of": KIND_OF} | changes)


@pytest.fixture(scope="module")
def in_process() -> tuple[list[Said], list[bytes]]:
    return played(1)


@pytest.mark.parametrize("changes", [{}, {"clients_in_memory": 2}], ids=["in memory", "on disk"])
def test_clients_of_two_kinds_say_the_same_in_one_process_and_in_two_workers(
    changes: dict[str, Any], in_process: tuple[list[Said], list[bytes]]
) -> None:
    assert played(2, **changes) == in_process


def test_each_client_has_the_model_of_its_kind() -> None:
    first, second = (weights_digest(each.weights) for each in kinds())
    with transport(1, without_a_test(), kinds=kinds(), kind_of=KIND_OF) as clients:
        assert clients.digests() == [first, second, first, second, second]
        play_round(server(), clients)
        states = clients.states(EVERYBODY)
        assert len(set(clients.digests())) == 5
    weights = [len([name for name in states[client] if name.startswith("model.")]) for client in EVERYBODY]
    assert weights[0] == weights[2] > weights[1] == weights[3] == weights[4] == len(kinds()[1].weights)


def test_only_clients_with_a_test_part_report_an_accuracy(in_process: tuple[list[Said], list[bytes]]) -> None:
    rounds, _ = in_process
    for number, said in enumerate(rounds, start=1):
        for client, (_, message) in said.items():
            report = CODEC.decode(message)
            assert isinstance(report, Report)
            assert ("accuracy" in report.metrics) == (number % 2 == 0 and client != UNTESTED)


def test_what_a_kind_says_of_training_and_scaling_is_for_its_clients_only(
    in_process: tuple[list[Said], list[bytes]],
) -> None:
    first, second = kinds()
    other = [first, replace(second, training=replace(second.training, scale=kind().training.scale))]
    changed = play(1, without_a_test(), kinds=other, kind_of=KIND_OF)[0][0]
    same = [changed[client] == in_process[0][0][client] for client in EVERYBODY]
    assert same == [True, False, True, False, False]


def in_a_closure(factor: float) -> Kind:
    """A kind of client all of whose functions exist in this process only."""
    widths = {"hidden": 7}

    class Local(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Flatten(), nn.Linear(768, widths["hidden"]), nn.Linear(7, CLASSES))

        def forward(self, inputs: Tensor) -> Tensor:
            scores: Tensor = self.layers(inputs)
            return scores

    training = replace(
        PLAIN,
        augment=lambda inputs: inputs.roll(int(torch.randint(3, ())), dims=-1),
        scale=lambda inputs: inputs.float() * factor,
        optimiser=lambda parameters, lr: torch.optim.SGD(parameters, lr, momentum=factor),
        schedule=lambda optimiser: torch.optim.lr_scheduler.LambdaLR(optimiser, lambda epoch: factor**epoch),
    )
    return kind(model="local", factory=lambda: Local(), training=training)


def test_lambdas_and_closures_reach_worker_processes() -> None:
    alone = play(1, kinds=[in_a_closure(0.01)])
    assert play(2, kinds=[in_a_closure(0.01)]) == alone
    assert play(2, kinds=[in_a_closure(0.02)]) != alone


def test_what_optimisers_remember_goes_along_with_a_client_to_another_worker_and_to_disk() -> None:
    training = replace(kind().training, optimiser=torch.optim.Adam, schedule=halved, lr=0.01)

    def said(workers: int, limit: int | None) -> list[Any]:
        head, heard = server(), []
        with transport(workers, training=training, clients_in_memory=limit) as clients:
            for asked in ({0, 2, 4}, {0, 3}, {1, 3}, {0, 4}, {0, 1, 2, 3, 4}):
                heard.append(play_round(head, clients, asked))
            return [*heard, clients.digests()]

    assert said(2, None) == said(1, 2) == said(1, None)


def halved(optimiser: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.StepLR(optimiser, 1, 0.5)


def channels_last(each: Kind) -> Kind:
    return replace(
        each,
        factory=Engine("channels-last", "", channels_last=True).applied_to(each.factory),
        channels_last=True,
    )


def test_kinds_may_differ_in_their_memory_format() -> None:
    mixed = [channels_last(kind(training=PLAIN)), kind(model="mlp", factory=model_factory("mlp", CLASSES, SHAPE))]
    assert play(2, kinds=mixed, kind_of=KIND_OF) == play(1, kinds=mixed, kind_of=KIND_OF)


class OverPairs(nn.Module):
    """A convolution over sequences that it turns into images itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Unflatten(1, (2, 4)), nn.Conv2d(2, 32, 3), nn.Conv2d(32, 4, 1))
        self.head = nn.Linear(4 * 2 * 3, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.head(self.layers(inputs).flatten(1))
        return scores


def flat_scores() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(8 * 5, CLASSES))


class MeanToken(nn.Module):
    """The scores of the mean of the tokens' embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(20, 8), nn.Linear(8, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.head(self.tokens(inputs).mean(dim=1))
        return scores


def drawn(shape: Sequence[int], *, tokens: bool = False) -> FederatedData:
    rng = np.random.default_rng(0)

    def inputs(count: int) -> Inputs:
        if tokens:
            return rng.integers(0, 20, (count, *shape))
        return rng.normal(size=(count, *shape)).astype(np.float32)

    train, test = (Labelled(inputs(count), rng.integers(0, CLASSES, count)) for count in (60, 20))
    return of_pools(train, test, inputs(30))


@pytest.mark.parametrize(
    ("given", "own"),
    [
        (drawn([40]), kind(factory=flat_scores, training=PLAIN)),
        (drawn([8, 5]), kind(factory=flat_scores, training=PLAIN)),
        (drawn([8, 5]), channels_last(kind(factory=OverPairs, training=PLAIN))),
        (drawn([7], tokens=True), kind(factory=MeanToken, training=PLAIN)),
    ],
    ids=["rows", "sequences", "sequences for a channels-last model", "tokens"],
)
def test_inputs_that_are_not_images_reach_worker_processes(given: FederatedData, own: Kind) -> None:
    assert play(2, given, kinds=[own]) == play(1, given, kinds=[own])


def soft_labels(given: FederatedData) -> dict[str, Values]:
    """What the clients answer in the first round, by their names."""
    with transport(1, given) as clients:
        answers = exchanged(clients, server().open_round())
    found = [CODEC.decode(message) for _, message in answers if isinstance(message, bytes)]
    return {given.names[each.client]: each.labels.value for each in found if isinstance(each, Answer)}


def renumbered(given: FederatedData, order: Sequence[int], names: Sequence[str]) -> FederatedData:
    return replace(
        given, names=names, train=[given.train[old] for old in order], test=[given.test[old] for old in order]
    )


def test_random_draws_follow_the_name_of_a_client_and_not_its_number() -> None:
    given, order = data(), [3, 0, 4, 1, 2]
    first = soft_labels(given)
    moved = soft_labels(renumbered(given, order, [given.names[old] for old in order]))
    renamed = soft_labels(renumbered(given, list(EVERYBODY), [f"hospital {client}" for client in EVERYBODY]))
    for client in EVERYBODY:
        assert np.array_equal(moved[str(client)], first[str(client)])
        assert not np.array_equal(renamed[f"hospital {client}"], first[str(client)])


@pytest.mark.parametrize(
    ("at_once", "expected"),
    [((100, 100), [[0, 2], [1, 3, 4]]), ((100, 2), [[0, 2], [1, 3], [4]]), ((1, 100), [[0], [2], [1, 3, 4]])],
)
def test_only_clients_of_one_kind_are_trained_together(
    at_once: tuple[int, int], expected: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[int]] = []
    honest = ClientRunner._work

    def spy(runner: ClientRunner, jobs: Any) -> Any:
        seen.append([job.client for _, job in jobs])
        return honest(runner, jobs)

    monkeypatch.setattr(ClientRunner, "_work", spy)
    plain = [replace(each, training=replace(each.training, augment=Augment())) for each in kinds()]
    stacked = [replace(each, clients_at_once=most) for each, most in zip(plain, at_once, strict=True)]
    runner = ClientRunner(setup(stacked, KIND_OF), without_a_test(), {})
    together = dict(runner.exchange(server().open_round()))
    runner.close()
    assert seen == expected
    with transport(1, without_a_test(), kinds=plain, kind_of=KIND_OF) as clients:
        alone = exchanged(clients, server().open_round())
    for client, message in alone:
        assert isinstance(message, bytes)
        answer = CODEC.decode(message)
        if isinstance(answer, Answer):
            other = CODEC.decode(together[client][0])  # type: ignore[index]
            assert isinstance(other, Answer)
            np.testing.assert_allclose(other.labels.value, answer.labels.value, atol=1e-3)
