"""Clients that are trained together become what each becomes alone."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import StepLR

from scarlet.arrays import Index, Labels, Values
from scarlet.data.sites import Augment, Scale
from scarlet.errors import ConfigError
from scarlet.job import Job, Result
from scarlet.models.cnn import cnn, cnn32
from scarlet.models.resnet import ResNet
from scarlet.training.engines.batched import check_stackable, clients_at_once, work_together
from scarlet.training.optimisers import Stage
from scarlet.training.tensors import TorchState
from scarlet.training.train import Samples, Task, Training, parameters_of, work

CLASSES, PUBLIC, SIDE = 4, 30, 16
TRAINING = Training(
    local_epochs=2,
    distil_epochs=2,
    lr=0.05,
    distil_lr=0.03,
    batch_size=8,
    augment=Augment(padding=0, flip=False),
    seed=5,
)
NOBODY = Labels(np.empty(0, np.int64), np.empty((0, CLASSES), np.float32))
EVERYTHING = np.arange(PUBLIC)


@pytest.fixture(autouse=True)
def in_doubles() -> Iterator[None]:
    """In single precision a ReLU that rounding tips over is soon seen in the weights; in double there is none."""
    torch.set_default_dtype(torch.float64)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def in_singles(in_doubles: None) -> None:
    """As in a run."""
    torch.set_default_dtype(torch.float32)


def tiny() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * SIDE**2, CLASSES)
    )


MODELS = {
    "cnn": lambda: cnn(CLASSES, (3, SIDE, SIDE)),
    "cnn32": lambda: cnn32(CLASSES, (3, SIDE, SIDE)),
    "resnet": lambda: ResNet(CLASSES, 3, (4, 8), 1, projection=False),
    "projecting resnet": lambda: ResNet(CLASSES, 3, (4, 8), 1, projection=True),
}


def images(count: int, seed: int) -> Tensor:
    """Bytes in single precision, as in a run; scaled already in double."""
    made = torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (count, 3, SIDE, SIDE), np.uint8))
    return made if torch.get_default_dtype() == torch.float32 else made.double() / 127.5 - 1


def samples(count: int, seed: int) -> Samples:
    return Samples(images(count, seed), torch.arange(count) * 7 % CLASSES)


def teacher(index: Index, seed: int) -> Labels:
    return Labels(index, np.random.default_rng(seed).dirichlet(np.ones(CLASSES), len(index)).astype(np.float32))


def task(
    client: int, model: nn.Module, private: int, taught: Labels = NOBODY, request: Index = EVERYTHING, test: int = 10
) -> Task:
    """A client that has a model of its own, so that one that learns by another's batch is found out."""
    with torch.random.fork_rng():
        torch.manual_seed(client)
        own = copy.deepcopy(model)
        for weight in own.parameters():
            weight.data += 0.02 * torch.randn_like(weight)
    job = Job(client, 3, 0, taught, request)
    tested = samples(test, 100 + client) if test else None
    return Task(str(client), job, own, TRAINING.optimisers(own), samples(private, client), tested)


def ragged(model: nn.Module) -> list[Task]:
    """Clients that differ in all that clients may differ in."""
    return [
        task(0, model, 20, teacher(np.arange(0, 30, 2), 0), request=np.arange(5)),
        task(1, model, 24, teacher(np.arange(12), 1), test=3),
        task(4, model, 5, request=np.array([2, 9, 29])),
        task(2, model, 20, teacher(np.arange(1, 30), 2), test=0),
        task(3, model, 17, teacher(np.array([7]), 3), request=np.empty(0, np.int64)),
    ]


def with_model(task: Task, model: nn.Module, training: Training) -> Task:
    """The task of a client with another model, and with new optimisers."""
    return replace(task, model=model, optimisers=training.optimisers(model))


def check(tasks: Sequence[Task], training: Training = TRAINING, tolerance: float = 1e-9) -> list[Result]:
    """Both ways must agree in weights, buffers, answers and metrics, and every client must have moved."""
    tasks = [replace(each, optimisers=training.optimisers(each.model)) for each in tasks]
    initial, public = copy.deepcopy(tasks[0].model.state_dict()), images(PUBLIC, 99)
    before = [parameters_of(each.model) for each in tasks]
    copies = [with_model(each, copy.deepcopy(each.model), training) for each in tasks]
    expected = [work(each, public, training, initial) for each in copies]
    results = work_together(tasks, public, training, initial)
    for each, alone, was in zip(tasks, copies, before, strict=True):
        assert np.abs(parameters_of(each.model) - was).max() > 1e-3, "a client has not been trained"
        for name, value in alone.model.state_dict().items():
            torch.testing.assert_close(each.model.state_dict()[name], value, atol=tolerance, rtol=tolerance, msg=name)
    for result, other in zip(results, expected, strict=True):
        assert list(result.metrics) == list(other.metrics)
        assert result.metrics == pytest.approx(dict(other.metrics), abs=tolerance)
        assert result.value.shape == other.value.shape
        # An answer to an empty request is of single precision, whatever the model's is.
        assert result.value.dtype == other.value.dtype or not len(other.value)
        np.testing.assert_allclose(result.value, other.value, atol=tolerance)
        assert result.samples == other.samples
        assert (result.parameters is None) == (other.parameters is None)
    return results


@pytest.mark.parametrize("name", MODELS)
def test_clients_of_all_sizes_teachers_and_requests_become_what_each_becomes_alone(name: str) -> None:
    check(ragged(MODELS[name]()))


@pytest.mark.usefixtures("in_singles")
@pytest.mark.parametrize("augmentation", [Augment(padding=0, flip=False), Augment(padding=2, flip=True)])
def test_bytes_are_scaled_and_augmented_as_for_a_client_alone(augmentation: Augment) -> None:
    results = check(ragged(MODELS["cnn"]()), replace(TRAINING, augment=augmentation), tolerance=1e-5)
    assert all(result.value.dtype == np.float32 for result in results)


def test_clients_that_are_alike_in_all_sizes_become_what_each_becomes_alone() -> None:
    check([task(client, tiny(), 20, teacher(np.arange(18), client)) for client in range(3)])


def test_one_client_alone_can_be_stacked() -> None:
    check([task(7, tiny(), 20, teacher(np.arange(18), 1))])


def test_images_are_augmented_by_each_clients_own_draws() -> None:
    check(ragged(tiny()), replace(TRAINING, augment=Augment(padding=2, flip=True)))


def test_batch_norm_counts_the_batches_of_its_own_client_only() -> None:
    tasks = ragged(tiny())
    check(tasks)
    counts = [int(each.model.state_dict()["1.num_batches_tracked"]) for each in tasks]
    assert counts == [2 * (2 + 3), 2 * (2 + 3), 2 * 1, 2 * (4 + 3), 2 * (1 + 2)]  # epochs x (distilled + fitted)


def test_a_final_batch_of_one_image_is_merged_into_the_previous_batch() -> None:
    flat = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE**2, 6), nn.BatchNorm1d(6), nn.Linear(6, CLASSES))
    check([task(client, flat, private, teacher(np.arange(9), client)) for client, private in enumerate((17, 9, 16))])


def test_nobody_has_a_teacher_in_the_first_round() -> None:
    results = check([task(client, tiny(), 20) for client in range(2)])
    assert all("distil_loss" not in result.metrics for result in results)


def test_nobody_is_asked_for_anything_or_measured() -> None:
    results = check([task(client, tiny(), 20, request=np.empty(0, np.int64), test=0) for client in range(2)])
    assert all(list(result.metrics) == ["fit_loss"] for result in results)


def with_jobs(tasks: Sequence[Task], **changes: Any) -> list[Task]:
    """The tasks with those fields of their jobs changed."""
    return [replace(each, job=replace(each.job, **changes)) for each in tasks]


def nearest(teachers: Labels, own: Values) -> Labels:
    """For each sample the teacher that is nearest to the client's own soft-label."""
    distance = ((teachers.value - own[:, np.newaxis]) ** 2).sum(axis=2)
    return Labels(teachers.index, teachers.value[np.arange(len(own)), distance.argmin(axis=1)])


def several(index: Index) -> Labels:
    """Three teachers for each sample."""
    return Labels(index, np.random.default_rng(0).dirichlet(np.ones(CLASSES), (len(index), 3)).astype(np.float32))


def test_each_client_chooses_its_own_teachers_by_its_models_soft_labels() -> None:
    teachers = several(np.arange(12))
    tasks = [task(0, tiny(), 20, teachers), task(1, tiny(), 20), task(2, tiny(), 20, teachers)]
    check(with_jobs(tasks, choose=nearest))


def test_a_client_is_asked_to_choose_only_where_it_has_several_teachers() -> None:
    asked: list[int] = []

    def choose(teachers: Labels, own: Values) -> Labels:
        asked.append(len(own))
        return nearest(teachers, own)

    tasks = [task(0, tiny(), 20, teacher(np.arange(9), 0)), task(1, tiny(), 20, several(np.arange(12)))]
    check([tasks[0], *with_jobs(tasks[1:], choose=choose), *with_jobs([task(2, tiny(), 20)], choose=choose)])
    assert asked == [12, 12], "once alone and once in the stack"


def test_a_restart_forgets_all_but_the_initial_weights() -> None:
    check(with_jobs(ragged(tiny()), restart=True, distil_weight=3.0))


def test_clients_of_one_stack_may_differ_in_whether_they_restart() -> None:
    tasks = ragged(tiny())
    check([*with_jobs(tasks[:2], restart=True), *tasks[2:]])


def test_clients_begin_with_the_weights_that_they_are_sent_and_send_back_what_became_of_them() -> None:
    sent = [parameters_of(tiny()) for _ in range(2)]
    tasks = [
        replace(each, job=replace(each.job, parameters=parameters))
        for each, parameters in zip([task(0, tiny(), 20), task(1, tiny(), 13)], sent, strict=True)
    ]
    results = check(with_jobs(tasks, send_parameters=True))
    for each, result in zip(tasks, results, strict=True):
        assert result.parameters is not None
        np.testing.assert_array_equal(result.parameters, parameters_of(each.model))


def test_weights_that_are_frozen_stay_as_they_are() -> None:
    model = tiny()
    next(model.parameters()).requires_grad_(False)
    tasks = [task(client, model, 20) for client in range(2)]
    before = [next(each.model.parameters()).clone() for each in tasks]
    check(tasks)
    for each, weight in zip(tasks, before, strict=True):
        assert torch.equal(next(each.model.parameters()), weight)


def test_no_epochs_leave_all_as_it_is() -> None:
    tasks = ragged(tiny())
    before = [parameters_of(each.model) for each in tasks]
    still = replace(TRAINING, local_epochs=0, distil_epochs=0)
    results = work_together(tasks, images(PUBLIC, 99), still, {})
    for each, was in zip(tasks, before, strict=True):
        np.testing.assert_array_equal(parameters_of(each.model), was)
    assert all(math.isnan(result.metrics["fit_loss"]) for result in results)


def test_many_images_are_predicted_and_measured_in_chunks() -> None:
    many = np.random.default_rng(0).integers(0, PUBLIC, 250)
    check([task(0, tiny(), 20, request=many, test=230), task(1, tiny(), 20, request=many[:120], test=100)])


class Rebinds(nn.Module):
    """Counts its batches in a buffer that it replaces instead of changing."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = tiny()
        self.count: Tensor
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count = self.count + 1
        scores: Tensor = self.inner(x)
        return scores


class Decides(nn.Module):
    """Has control flow that depends on its data."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = tiny()

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.inner(x if x.mean() > 0 else -x)
        return scores


@pytest.mark.usefixtures("in_singles")
@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda: nn.Sequential(nn.Dropout(0.5), tiny()), "random"),
        (Decides, "data-dependent control flow"),
        (Rebinds, "differs from one that is trained alone"),
    ],
)
def test_models_that_cannot_be_stacked_are_found_out(model: type[nn.Module], reason: str) -> None:
    with pytest.raises(ConfigError, match=rf"^engine must not be batched .*\(.*{reason}.*\); use auto$") as refused:
        check_stackable(model, images(4, 0), TRAINING)
    assert "\n" not in str(refused.value)


@pytest.mark.usefixtures("in_singles")
@pytest.mark.parametrize("name", MODELS)
def test_our_own_models_can_be_stacked(name: str) -> None:
    check_stackable(MODELS[name], images(4, 0), TRAINING)


@pytest.mark.usefixtures("in_singles")
def test_fewer_clients_are_trained_at_once_the_more_a_step_of_one_holds() -> None:
    def at_once(side: int, batch_size: int) -> int:
        few = torch.zeros(4, 3, side, side, dtype=torch.uint8)
        return clients_at_once(MODELS["resnet"], few, replace(TRAINING, batch_size=batch_size))

    counts = [at_once(side, 50) for side in (8, 16, 32)]
    # Activations grow with the area, beside what the weights take.
    assert counts[0] > 3.5 * counts[1] > 3.5 * 3.5 * counts[2] > 0
    assert at_once(32, 10**9) == 1


HEAVY = replace(TRAINING, momentum=0.9, weight_decay=0.02)


def in_round(tasks: Sequence[Task], round: int) -> list[Task]:
    return with_jobs(tasks, round=round)


def play(model: nn.Module, training: Training, rounds: int, together: bool) -> list[Task]:
    """Clients after some rounds, in each of which one of them has nothing to distil and another in every second."""
    tasks = [with_model(each, each.model, training) for each in ragged(model)]
    initial, public = copy.deepcopy(tasks[0].model.state_dict()), images(PUBLIC, 99)
    for round in range(1, rounds + 1):
        asked = in_round(tasks, round)
        if round % 2 == 0:
            asked[0] = replace(asked[0], job=replace(asked[0].job, teacher=NOBODY))
        if together:
            work_together(asked, public, training, initial)
        else:
            for each in asked:
                work(each, public, training, initial)
    return tasks


def momentum(task: Task) -> dict[str, Tensor]:
    """The momentum of both stages, by the name of the weight."""
    stages: tuple[Stage, ...] = ("local", "distil")
    return {f"{stage} {name}": value for stage in stages for name, value in task.optimisers.momentum(stage).items()}


def close(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], atol=1e-9, rtol=1e-9, msg=name)


@pytest.mark.parametrize(("factor", "decay"), [(0.9, 0.0), (0.0, 0.02), (0.9, 0.02)])
def test_momentum_and_weight_decay_are_those_of_a_client_alone_round_after_round(factor: float, decay: float) -> None:
    training = replace(TRAINING, momentum=factor, weight_decay=decay)
    model = tiny()
    together, alone = (play(model, training, 3, way) for way in (True, False))
    plain = play(model, TRAINING, 3, True)
    for one, other, without in zip(together, alone, plain, strict=True):
        close(one.model.state_dict(), other.model.state_dict())
        assert np.abs(parameters_of(one.model) - parameters_of(without.model)).max() > 1e-3
        if factor:
            close(momentum(one), momentum(other))
            assert all(value.any() for name, value in momentum(one).items() if name.startswith("local"))


def test_a_client_that_has_nothing_to_distil_has_no_momentum_of_distillation() -> None:
    taught, *_ = together = play(tiny(), HEAVY, 2, True)
    (nothing,) = [each for each in together if not len(each.job.teacher.index)]
    assert not any(value.any() for value in nothing.optimisers.momentum("distil").values())
    assert all(value.any() for value in taught.optimisers.momentum("distil").values())


def test_what_is_remembered_after_training_in_a_stack_can_be_saved_and_gone_on_with_alone() -> None:
    public = images(PUBLIC, 99)
    for stacked in play(tiny(), HEAVY, 2, True):
        model = tiny()
        other = with_model(stacked, model, HEAVY)
        saved = TorchState(stacked.model, stacked.optimisers).arrays()
        TorchState(model, other.optimisers).restore({name: array.copy() for name, array in saved.items()})
        (first,), (second,) = in_round([stacked], 3), in_round([other], 3)
        work_together([first], public, HEAVY, {})
        work(second, public, HEAVY, {})
        close(first.model.state_dict(), second.model.state_dict())
        close(momentum(first), momentum(second))


def test_whoever_gets_other_weights_forgets_his_momentum_and_the_others_keep_theirs() -> None:
    start, initial, sent = tiny(), tiny().state_dict(), parameters_of(tiny())
    public, found = images(PUBLIC, 99), []
    for together in (True, False):
        tasks = in_round(play(start, HEAVY, 2, together), 3)
        tasks[0] = replace(tasks[0], job=replace(tasks[0].job, restart=True))
        tasks[1] = replace(tasks[1], job=replace(tasks[1].job, parameters=sent))
        if together:
            work_together(tasks, public, HEAVY, initial)
        else:
            for each in tasks:
                work(each, public, HEAVY, initial)
        found.append(tasks)
    for one, other in zip(*found, strict=True):
        close(one.model.state_dict(), other.model.state_dict())
        close(momentum(one), momentum(other))


class MeanToken(nn.Module):
    """The scores of the mean of the tokens' embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(40, 8), nn.Linear(8, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.head(self.tokens(inputs).mean(dim=1))
        return scores


def flat(*shape: int) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 6), nn.Tanh(), nn.Linear(6, CLASSES))


def numbers(*shape: int) -> Callable[[int, int], Tensor]:
    return lambda count, seed: torch.from_numpy(np.random.default_rng(seed).normal(size=(count, *shape)))


def tokens(count: int, seed: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 40, (count, 7)))


@pytest.mark.parametrize("scale", [lambda inputs: inputs, lambda inputs: inputs.flip(1)], ids=["as it is", "scaled"])
@pytest.mark.parametrize(
    ("model", "inputs"),
    [(flat(5), numbers(5)), (flat(7, 5), numbers(7, 5)), (MeanToken, tokens)],
    ids=["rows", "sequences", "tokens"],
)
def test_inputs_that_are_not_images_can_be_stacked(
    model: Callable[[], nn.Module], inputs: Callable[[int, int], Tensor], scale: Scale, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.training.engines.test_batched.images", inputs)
    training = replace(HEAVY, scale=scale)
    check_stackable(model, inputs(4, 0), training)
    assert clients_at_once(model, inputs(4, 0), training) > 1000
    check(ragged(model()), training)


class Spare(nn.Module):
    """A model with a weight that no score depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.spare = tiny(), nn.Parameter(torch.ones(3))

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.inner(inputs)
        return scores


def test_weight_decay_of_a_weight_that_no_score_depends_on_is_found_out() -> None:
    check_stackable(Spare, images(4, 0), TRAINING)
    check(ragged(Spare()))
    with pytest.raises(ConfigError, match=r"differs from one that is trained alone"):
        check_stackable(Spare, images(4, 0), replace(TRAINING, weight_decay=1e-4))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"optimiser": torch.optim.Adam}, "an optimizer of your own; use auto, or SGD with momentum"),
        ({"schedule": lambda optimiser: StepLR(optimiser, 1)}, "a schedule of your own; use auto"),
        ({"augment": torch.clone}, "an augment function of your own; use auto"),
    ],
    ids=["optimizer", "schedule", "augment"],
)
def test_what_cannot_be_stacked_is_refused_by_its_name(changes: dict[str, Any], what: str) -> None:
    check_stackable(tiny, images(4, 0), HEAVY)
    with pytest.raises(ConfigError, match=f"^engine must not be batched with {what}$") as refused:
        check_stackable(tiny, images(4, 0), replace(HEAVY, **changes))
    assert "\n" not in str(refused.value)
