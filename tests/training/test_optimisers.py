"""Optimisers and schedules: what they do in a round, what they remember, and when they forget it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load, save
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler, MultiStepLR, StepLR

from scarlet.arrays import Array, Index, Labels
from scarlet.errors import ConfigError
from scarlet.job import Job
from scarlet.rng import stream
from scarlet.training.optimisers import MakeOptimizer, MakeSchedule, Optimisers
from scarlet.training.server_model import ServerModel
from scarlet.training.tensors import TorchState, weights_of
from scarlet.training.train import Task, Training, ends_of_batches, parameters_of, scaled, work
from tests.training.easy import NO_LABELS, TRAINING, easy, network, same, teacher, weights

SAMPLES = easy(20)
# What a client is taught in each round.
TAUGHT = [NO_LABELS, teacher(np.arange(12)), NO_LABELS, teacher(np.arange(3, 20)), teacher(np.arange(9))]
ROUNDS = len(TAUGHT)


def warmed_up(epoch: int) -> float:
    return min(1.0, 0.25 * (epoch + 1))


OPTIMISERS: dict[str, MakeOptimizer] = {
    "SGD": SGD,
    "momentum": partial(SGD, momentum=0.9),
    "weight decay": partial(SGD, weight_decay=0.01),
    "momentum and weight decay": partial(SGD, momentum=0.9, weight_decay=0.01),
    "Nesterov": partial(SGD, momentum=0.9, nesterov=True),
    "Adam": lambda parameters, lr: Adam(parameters, lr=lr / 10, amsgrad=True),
    "AdamW": partial(AdamW, betas=(0.8, 0.99)),
    "RMSprop": lambda parameters, lr: RMSprop(parameters, lr / 100, centered=True),
    "two groups": lambda parameters, lr: SGD(
        [{"params": parameters[:2], "lr": lr / 3}, {"params": parameters[2:]}], lr, momentum=0.5
    ),
}
SCHEDULES: dict[str, MakeSchedule | None] = {
    "none": None,
    "StepLR": partial(StepLR, step_size=2, gamma=0.5),
    "CosineAnnealingLR": partial(CosineAnnealingLR, T_max=4),
    "MultiStepLR": partial(MultiStepLR, milestones=[1, 3], gamma=0.1),
    "LambdaLR": partial(LambdaLR, lr_lambda=warmed_up),
}
every_optimiser = pytest.mark.parametrize("optimiser", OPTIMISERS.values(), ids=OPTIMISERS.keys())
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES.keys())


@dataclass(frozen=True, slots=True)
class Client:
    """A model and its optimisers."""

    model: nn.Module
    optimisers: Optimisers
    training: Training

    @classmethod
    def new(cls, training: Training, seed: int = 1) -> Client:
        model = network(seed)
        return cls(model, training.optimisers(model), training)

    @property
    def state(self) -> TorchState:
        return TorchState(self.model, self.optimisers)

    def play(self, first: int, last: int, **changes: Any) -> None:
        """Train in some rounds; `changes` are fields of their jobs."""
        for round in range(first, last + 1):
            job = replace(Job(0, round, 0, TAUGHT[round - 1], np.arange(3)), **changes)
            work(
                Task("a", job, self.model, self.optimisers, SAMPLES, None),
                SAMPLES.inputs,
                self.training,
                network(2).state_dict(),
            )


class ByHand:
    """The same as a user of torch would write it, with an optimiser for each of the two stages."""

    def __init__(self, training: Training, make: MakeOptimizer, schedule: MakeSchedule | None) -> None:
        self.model, self.training = network(), training
        self.local = make(list(self.model.parameters()), training.lr)
        self.distil = make(list(self.model.parameters()), training.distil_lr)
        self.schedules = {each: schedule(each) for each in (self.local, self.distil)} if schedule else {}

    def play(self, first: int, last: int) -> None:
        for round in range(first, last + 1):
            taught = TAUGHT[round - 1]
            if len(taught.index):
                self._train(self.distil, round, "distil", taught.index, torch.from_numpy(taught.value), kl_divergence)
            self._train(self.local, round, "fit", np.arange(20), SAMPLES.labels, functional.cross_entropy)

    def _train(
        self,
        optimiser: Optimizer,
        round: int,
        purpose: str,
        index: Index,
        targets: Tensor,
        loss: Callable[[Tensor, Tensor], Tensor],
    ) -> None:
        rng = stream(self.training.seed, "client", client="a", round=round, purpose=purpose)
        inputs = scaled(SAMPLES.inputs[torch.from_numpy(index)])
        self.model.train()
        for _ in range(2):
            ends = ends_of_batches(len(index), self.training.batch_size)
            for batch in np.split(rng.permutation(len(index)), ends):
                optimiser.zero_grad()
                loss(self.model(inputs[batch]), targets[batch]).backward()  # type: ignore[no-untyped-call]
                optimiser.step()
        if optimiser in self.schedules:
            self.schedules[optimiser].step()


def kl_divergence(scores: Tensor, soft_labels: Tensor) -> Tensor:
    return functional.kl_div(functional.log_softmax(scores, dim=1), soft_labels, reduction="batchmean")


@pytest.mark.parametrize(
    ("optimiser", "schedule"),
    [
        *((make, None) for make in OPTIMISERS.values()),
        *((OPTIMISERS["momentum"], schedule) for schedule in SCHEDULES.values() if schedule),
    ],
    ids=[*OPTIMISERS, *(name for name in SCHEDULES if name != "none")],
)
def test_rounds_of_training_and_distillation_are_those_of_torch_bit_for_bit(
    optimiser: MakeOptimizer, schedule: MakeSchedule | None
) -> None:
    training = replace(TRAINING, optimiser=optimiser, schedule=schedule)
    ours, by_hand = Client.new(training), ByHand(training, optimiser, schedule)
    for round in range(1, ROUNDS + 1):
        ours.play(round, round)
        by_hand.play(round, round)
        assert same(weights(ours.model), weights(by_hand.model)), f"round {round}"
    assert not same(weights(ours.model), weights(network()))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_momentum_and_weight_decay_are_those_of_torchs_sgd_bit_for_bit(momentum: float, weight_decay: float) -> None:
    training = replace(TRAINING, momentum=momentum, weight_decay=weight_decay)
    ours = Client.new(training)
    by_hand = ByHand(training, partial(SGD, momentum=momentum, weight_decay=weight_decay), None)
    ours.play(1, ROUNDS)
    by_hand.play(1, ROUNDS)
    assert same(weights(ours.model), weights(by_hand.model))
    if momentum:
        names = [name for name, _ in ours.model.named_parameters()]
        for ours_of, theirs in (
            (ours.optimisers.momentum("local"), by_hand.local),
            (ours.optimisers.momentum("distil"), by_hand.distil),
        ):
            kept = [theirs.state[weight]["momentum_buffer"] for weight in by_hand.model.parameters()]
            assert same(ours_of, dict(zip(names, kept, strict=True)))


def test_an_optimiser_of_ones_own_is_used_instead_of_momentum_and_weight_decay() -> None:
    own, other = (Client.new(replace(TRAINING, optimiser=Adam, momentum=momentum)) for momentum in (0.0, 0.9))
    own.play(1, 2)
    other.play(1, 2)
    assert same(weights(own.model), weights(other.model))


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        (SCHEDULES["StepLR"], [1, 1, 0.5, 0.5, 0.25, 0.25]),
        (SCHEDULES["CosineAnnealingLR"], [1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5, 0, 0.5 - 0.5**1.5]),
        (SCHEDULES["MultiStepLR"], [1, 0.1, 0.1, 0.01, 0.01, 0.01]),
        (SCHEDULES["LambdaLR"], [0.25, 0.5, 0.75, 1, 1, 1]),
    ],
    ids=[name for name in SCHEDULES if name != "none"],
)
def test_a_schedule_takes_one_step_in_each_round_in_which_its_stage_is_trained(
    schedule: MakeSchedule, rates: list[float]
) -> None:
    client = Client.new(replace(TRAINING, schedule=schedule))
    for trained in range(1, ROUNDS + 1):
        client.play(trained, trained)
        distilled = sum(len(taught.index) > 0 for taught in TAUGHT[:trained])
        for stage, steps, rate in (("local", trained, 0.1), ("distil", distilled, 0.05)):
            group = client.optimisers.optimiser(stage).param_groups[0]  # type: ignore[arg-type]
            assert group["lr"] == pytest.approx(rate * rates[steps]), f"{stage} after round {trained}"


def test_a_schedule_stands_still_where_there_are_no_epochs() -> None:
    client = Client.new(replace(TRAINING, schedule=partial(StepLR, step_size=1), local_epochs=0))
    client.play(1, 4)
    assert client.optimisers.optimiser("local").param_groups[0]["lr"] == 0.1
    assert client.optimisers.optimiser("distil").param_groups[0]["lr"] == pytest.approx(0.05 / 100)


def stored(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays as they come back from a file."""
    found: dict[str, Array] = load(save({name: np.array(array, order="C") for name, array in arrays.items()}))
    return found


@every_schedule
@every_optimiser
def test_a_new_model_with_what_was_saved_goes_on_bit_for_bit(
    optimiser: MakeOptimizer, schedule: MakeSchedule | None, saved_after: int = 2
) -> None:
    training = replace(TRAINING, optimiser=optimiser, schedule=schedule)
    whole, first, second = Client.new(training), Client.new(training), Client.new(training, seed=3)
    whole.play(1, ROUNDS)
    first.play(1, saved_after)
    second.play(1, 2)  # what it remembers of these rounds must be gone
    second.state.restore(stored(first.state.arrays()))
    second.play(saved_after + 1, ROUNDS)
    assert same(weights(second.model), weights(whole.model))
    one, other = (stored(each.state.arrays()) for each in (second, whole))
    assert one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("saved_after", [1, 3, 4, 5])
def test_it_is_all_the_same_after_which_round_it_was_saved(saved_after: int) -> None:
    for optimiser in (SGD, Adam):
        test_a_new_model_with_what_was_saved_goes_on_bit_for_bit(optimiser, SCHEDULES["MultiStepLR"], saved_after)


def test_what_was_saved_is_not_changed_by_the_training_that_follows() -> None:
    client = Client.new(replace(TRAINING, momentum=0.9))
    client.play(1, 2)
    saved = stored(client.state.arrays())
    before = copy.deepcopy(saved)
    client.state.restore(saved)
    client.play(3, 3)
    assert all(np.array_equal(saved[name], before[name]) for name in before)


def test_saving_changes_nothing() -> None:
    saving, other = (Client.new(replace(TRAINING, momentum=0.9, schedule=SCHEDULES["StepLR"])) for _ in range(2))
    for round in range(1, ROUNDS + 1):
        saving.play(round, round)
        saving.state.arrays()
        other.play(round, round)
    assert same(weights(saving.model), weights(other.model))


def test_plain_sgd_remembers_nothing() -> None:
    client = Client.new(TRAINING)
    client.play(1, ROUNDS)
    assert client.optimisers.arrays() == {}
    assert client.state.arrays().keys() == client.model.state_dict().keys()
    with_momentum = Client.new(replace(TRAINING, momentum=0.9))
    assert with_momentum.optimisers.arrays() == {}, "nor does any other before its first step"
    with_momentum.play(1, 1)
    with_momentum.state.restore(stored(client.state.arrays()))
    assert with_momentum.optimisers.arrays() == {}


def test_weights_can_be_told_from_what_optimisers_remember() -> None:
    client = Client.new(replace(TRAINING, optimiser=Adam, schedule=SCHEDULES["StepLR"]))
    client.play(1, 2)
    arrays = client.state.arrays()
    assert len(arrays) > len(client.model.state_dict())
    assert same(weights_of(arrays), weights(client.model)) and weights_of(arrays).keys() == weights(client.model).keys()


@every_optimiser
@pytest.mark.parametrize("how", ["restart", "parameters"])
def test_whoever_gets_other_weights_forgets_what_belonged_to_his_own(how: str, optimiser: MakeOptimizer) -> None:
    training = replace(TRAINING, optimiser=optimiser)
    used, new = Client.new(training), Client.new(training, seed=2)
    used.play(1, 3)
    used.play(4, 4, **{"restart": True} if how == "restart" else {"parameters": parameters_of(network(2))})
    new.play(4, 4)
    assert same(weights(used.model), weights(new.model))
    used.play(5, 5)
    new.play(5, 5)
    assert same(weights(used.model), weights(new.model))


def test_a_schedule_goes_on_where_weights_are_replaced() -> None:
    client = Client.new(replace(TRAINING, momentum=0.9, schedule=SCHEDULES["StepLR"]))
    before = client.optimisers.optimiser("local").param_groups[0]["lr"]
    for round in range(1, 4):
        client.play(round, round, restart=True)
    assert client.optimisers.optimiser("local").param_groups[0]["lr"] < before


def test_momentum_is_kept_from_round_to_round_where_weights_are() -> None:
    kept, forgotten = (Client.new(replace(TRAINING, momentum=0.9)) for _ in range(2))
    for each in (kept, forgotten):
        each.play(1, 1)
    forgotten.optimisers.reset()
    for each in (kept, forgotten):
        each.play(2, 2)
    assert not same(weights(kept.model), weights(forgotten.model))


def learned(server: ServerModel, *rounds: int) -> dict[str, Tensor]:
    for round in rounds:
        server.learn(teacher(np.arange(5 + round)), round)
    return weights_of(server.arrays())


@every_schedule
@pytest.mark.parametrize("optimiser", [partial(SGD, momentum=0.9), AdamW], ids=["momentum", "AdamW"])
def test_the_servers_model_goes_on_from_what_was_saved_and_forgets_where_it_is_loaded(
    optimiser: MakeOptimizer, schedule: MakeSchedule | None
) -> None:
    training = replace(TRAINING, optimiser=optimiser, schedule=schedule)
    whole, first, second, new = (ServerModel(network(), SAMPLES.inputs, None, training) for _ in range(4))
    expected = learned(whole, 1, 2, 3, 4)
    learned(first, 1, 2)
    second.restore(stored(first.finish(measure=False).result().arrays))
    assert same(learned(second, 3, 4), expected)
    for each in (whole, new):
        each.load(parameters_of(network(2)))
    if schedule is None:  # a schedule goes on
        assert same(learned(whole, 5), learned(new, 5))


class Remembers(SGD):
    """An optimiser whose state has what no file format knows."""

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"extra": {1, 2}}


class Plans(LRScheduler):
    """A schedule that keeps a function."""

    def __init__(self, optimiser: Optimizer) -> None:
        self.plan = [lambda epoch: epoch]
        super().__init__(optimiser)

    def get_lr(self) -> list[float | Tensor]:
        return [0.1 for _ in self.optimizer.param_groups]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"optimiser": Remembers}, r"a set \(local\.0\.extra\)"),
        ({"schedule": Plans}, r"a function \(local\.1\.plan\.0\)"),
    ],
    ids=["optimiser", "schedule"],
)
def test_what_cannot_be_saved_is_an_error_of_one_line_that_names_it_and_the_remedy(
    changes: dict[str, Any], what: str
) -> None:
    client = Client.new(replace(TRAINING, **changes))
    client.play(1, 1)
    with pytest.raises(ConfigError, match=rf"^optimizer or schedule remembers {what}, .*; use .* one worker$") as it:
        client.state.arrays()
    assert "\n" not in str(it.value)


@pytest.mark.parametrize("made", [lambda parameters, lr: None, lambda parameters, lr: network()])
def test_a_factory_that_makes_no_optimiser_is_a_type_error(made: Any) -> None:
    with pytest.raises(TypeError, match=r"^optimizer must make a torch\.optim\.Optimizer, got (NoneType|Sequential)$"):
        Client.new(replace(TRAINING, optimiser=made)).play(1, 1)


def test_weights_that_are_frozen_are_not_given_to_the_optimiser() -> None:
    model = network()
    next(model.parameters()).requires_grad_(False)
    before = next(model.parameters()).clone()
    client = Client(model, replace(TRAINING, momentum=0.9, weight_decay=0.1).optimisers(model), TRAINING)
    client.play(1, 3)
    assert torch.equal(next(model.parameters()), before)
    other = Client(copy.deepcopy(model), TRAINING.optimisers(model), TRAINING)
    assert len(client.optimisers.momentum("local")) == len(list(other.model.parameters())) - 1


class Spare(nn.Module):
    """A model with a weight that no score depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.spare = network(), nn.Parameter(torch.ones(3))

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.inner(inputs)
        return scores


@every_optimiser
def test_a_weight_that_no_score_depends_on_stays_as_it_is(optimiser: MakeOptimizer) -> None:
    model, training = Spare(), replace(TRAINING, optimiser=optimiser)
    client = Client(model, training.optimisers(model), training)
    client.play(1, 3)
    assert torch.equal(model.spare, torch.ones(3))
    assert all(weight.grad is None for weight in model.parameters())


def test_labels_of_one_sample_can_be_distilled() -> None:
    client = Client.new(replace(TRAINING, momentum=0.9))
    client.play(1, 1, teacher=Labels(np.array([4]), teacher(np.array([4])).value))
    assert set(client.optimisers.arrays()) > {"(text)"}
