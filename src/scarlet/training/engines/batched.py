"""Many clients trained at once: their models are stacked, so that one operation is a step of all of them.

Up to rounding, the result is that of training client after client. For convolutional models on a CPU this engine is the
slower one; it has not been tried on a GPU.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn import functional

from scarlet.arrays import Index, Labels, Values
from scarlet.data.sites import Augment, Scale
from scarlet.errors import ConfigError
from scarlet.job import Job, Result
from scarlet.training import train
from scarlet.training.optimisers import Optimisers, Stage
from scarlet.training.train import VALIDATION_LOSS, Loss, Samples, Task, Training, client_stream, parameters_of

_BUDGET = 4e9  # bytes of memory for a training step of all clients of a stack

_NO_LABELS = Labels(np.empty(0, np.int64), np.empty((0, 1), np.float32))


def work_together(
    tasks: Sequence[Task], public: Tensor, training: Training, initial: Mapping[str, Tensor]
) -> list[Result]:
    """`train.work` for each of the tasks, up to rounding; their models must have one architecture."""
    for task in tasks:
        train.load_given_parameters(task)
    teachers = _chosen_teachers(tasks, public, training)
    for task in tasks:
        train.restart_if_asked(task, initial)
    stack = _Stack([task.optimisers for task in tasks], training)
    distilled = _distil(stack, teachers, tasks, public, training)
    fitted = _fit(stack, tasks, training)
    measured = _evaluate(stack, [task.test for task in tasks], training.scale)
    held_out = _evaluate(stack, [task.validation for task in tasks], training.scale)
    validated = [{VALIDATION_LOSS: each["loss"]} if each else {} for each in held_out]
    metrics = [a | b | c | d for a, b, c, d in zip(distilled, fitted, measured, validated, strict=True)]
    classes = teachers[0].value.shape[-1]
    values = _predict(stack, public, [task.job.request for task in tasks], classes, training.scale)
    stack.unstack()
    parameters = [parameters_of(task.model) if task.job.send_parameters else None for task in tasks]
    counts = [len(task.private.labels) for task in tasks]
    return [Result(*parts) for parts in zip(values, metrics, counts, parameters, strict=True)]


def check_stackable(factory: Callable[[], nn.Module], inputs: Tensor, training: Training) -> None:
    """Raise ConfigError for what cannot be trained in a stack; `inputs` are a few, as the data has them."""
    if training.optimiser is not None:
        raise ConfigError("engine must not be batched with an optimizer of your own; use auto, or SGD with momentum")
    if training.schedule is not None:
        raise ConfigError("engine must not be batched with a schedule of your own; use auto")
    if not isinstance(training.augment, Augment):
        raise ConfigError("engine must not be batched with an augment function of your own; use auto")
    if (obstacle := _obstacle_to_stacking(factory, inputs, training)) is not None:
        raise ConfigError(f"engine must not be batched for a model that cannot be stacked ({obstacle}); use auto")


def _obstacle_to_stacking(factory: Callable[[], nn.Module], inputs: Tensor, training: Training) -> str | None:
    """Why models cannot be stacked; None if they can.

    Two models are trained one step together, and each must become what it becomes alone.
    """
    samples = Samples(inputs, torch.zeros(len(inputs), dtype=torch.int64))
    # Much weight decay shows in a weight that no score depends on: it decays in a stack, and alone it does not.
    decay = 10.0 if training.weight_decay else 0.0
    training = Training(1, 0, 0.01, 0.01, len(inputs), Augment(), 0, training.scale, weight_decay=decay)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        alone = factory()
        models = [copy.deepcopy(alone), copy.deepcopy(alone)]
        jobs = [Job(client, 1, 0, _NO_LABELS, _NO_LABELS.index) for client in range(2)]
        tasks = [
            Task(str(job.client), job, model, training.optimisers(model), samples, None)
            for job, model in zip(jobs, models, strict=True)
        ]
        train.fit(training.optimisers(alone), samples, training, client_stream(tasks[1], training, "fit"))
    try:
        stack = _Stack([task.optimisers for task in tasks], training)
        _fit(stack, tasks, training)
    except Exception as error:  # a user's model may raise anything
        return str(error).split("\n")[0].split(". ")[0]
    stack.unstack()
    if not np.allclose(parameters_of(models[1]), parameters_of(alone), rtol=1e-2, atol=1e-4):
        return "a model that is trained in a stack differs from one that is trained alone"
    return None


def clients_at_once(factory: Callable[[], nn.Module], inputs: Tensor, training: Training) -> int:
    """How many clients' training steps fit into the memory budget; at least one. `inputs` are a few of the data."""
    model = factory().train()
    weights = {weight.untyped_storage().data_ptr(): weight.nbytes for weight in model.parameters()}
    saved: dict[int, int] = {}  # bytes by address of what autograd saves for the backward pass

    def save(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.random.fork_rng(devices=[]), torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        scores = model(training.scale(inputs))
    kept = sum(size for address, size in saved.items() if address not in weights)
    return max(1, int(_BUDGET // (kept * training.batch_size / len(scores) + 2 * sum(weights.values()))))


def _chosen_teachers(tasks: Sequence[Task], public: Tensor, training: Training) -> list[Labels]:
    """The labels that each client distils: those that it chooses where the teacher has several for a sample."""
    jobs = [task.job for task in tasks]
    teachers = [job.teacher for job in jobs]
    compared = [job.teacher.index if job.choose is not None else _NO_LABELS.index for job in jobs]
    if not any(map(len, compared)):
        return teachers
    stack, classes = _Stack([task.optimisers for task in tasks], training), teachers[0].value.shape[-1]
    own = _predict(stack, public, compared, classes, training.scale)
    return [
        job.choose(job.teacher, values) if job.choose is not None and len(values) else job.teacher
        for job, values in zip(jobs, own, strict=True)
    ]


def _distil(
    stack: _Stack, teachers: Sequence[Labels], tasks: Sequence[Task], public: Tensor, training: Training
) -> list[dict[str, float]]:
    """Train the clients that have a teacher on its soft-labels; return the mean losses of the last epoch."""
    taught = [teacher.value for teacher in teachers if len(teacher.index)]
    if not taught:
        return [{} for _ in teachers]
    (weight,) = {task.job.distil_weight for task in tasks}  # one method has one weight
    targets = torch.from_numpy(np.concatenate(taught)).to(public.device)
    pool = _Pool.of_public(public, [teacher.index for teacher in teachers], targets)
    rngs = [client_stream(task, training, "distil") for task in tasks]
    means = _train(stack, "distil", pool, train.divergence(weight), training.distil_epochs, training, rngs)
    return [{"distil_loss": mean} if count else {} for mean, count in zip(means, pool.counts, strict=True)]


def _fit(stack: _Stack, tasks: Sequence[Task], training: Training) -> list[dict[str, float]]:
    """Train on labelled samples; return the mean losses of the last epoch."""
    rngs = [client_stream(task, training, "fit") for task in tasks]
    pool = _Pool.of_samples([task.private for task in tasks])
    means = _train(stack, "local", pool, functional.cross_entropy, training.local_epochs, training, rngs)
    return [{"fit_loss": mean} for mean in means]


def _evaluate(stack: _Stack, tests: Sequence[Samples | None], scale: Scale) -> list[dict[str, float]]:
    """Accuracy and mean cross-entropy of the clients that have a test split."""
    if all(test is None for test in tests):
        return [{} for _ in tests]
    pool = _Pool.of_samples(tests)
    scores = torch.split(stack.scores(pool, scale), pool.counts)
    found = [
        torch.stack([value.double() for value in train.accuracy_and_loss(own, test.labels)])
        for own, test in zip(scores, tests, strict=True)
        if test is not None
    ]
    measured = iter(torch.stack(found).tolist())
    return [{} if test is None else dict(zip(("accuracy", "loss"), next(measured), strict=True)) for test in tests]


def _predict(stack: _Stack, public: Tensor, indices: Sequence[Index], classes: int, scale: Scale) -> list[Values]:
    """Each client's soft-labels of its own choice of public samples."""
    if not any(map(len, indices)):
        return [np.empty((0, classes), np.float32) for _ in indices]
    pool = _Pool.of_public(public, indices, torch.empty(0))
    values = functional.softmax(stack.scores(pool, scale), dim=1).cpu()
    return [own.numpy() for own in torch.split(values, pool.counts)]


def _train(
    stack: _Stack,
    stage: Stage,
    pool: _Pool,
    loss: Loss,
    epochs: int,
    training: Training,
    rngs: Sequence[Generator],
) -> list[float]:
    """SGD; return the mean loss of each client's last epoch."""
    device, ready = pool.inputs.device, train.prepared(pool.inputs, training)
    batches = list(pool.batches(training.batch_size))
    means = [math.nan] * len(rngs)
    for _ in range(epochs):
        order = pool.shuffled(rngs)
        sums = torch.zeros(len(rngs), device=device)
        for batch in batches:
            chosen, length = order[batch.places], batch.places.shape[1]
            moves = np.concatenate([ready.batches.moves(length, rngs[member]) for member in batch.members], axis=1)
            inputs = _by_client(ready.scale(ready.batches.moved(pool.rows[chosen.ravel()], moves)), chosen)
            targets = pool.targets[torch.from_numpy(chosen).to(device)]
            sums[batch.where] += length * stack.step(stage, batch.where, inputs, targets, loss)
        means = [total / max(1, count) for total, count in zip(sums.tolist(), pool.counts, strict=True)]
    return means


def _by_client(inputs: Tensor, places: Index) -> Tensor:
    """The inputs of several clients, [members, n, ...]."""
    return inputs.view(*places.shape, *inputs.shape[1:])


@dataclass(frozen=True, slots=True)
class _Batch:
    """The next batches of all clients whose next batch has the same length."""

    members: list[int]
    where: Tensor | slice  # the members as an index into the stack; a slice if they are all of its clients
    places: Index  # i64[members, n]: their samples in the pool


@dataclass(frozen=True, slots=True)
class _Pool:
    """The samples of several clients, one client's after another's."""

    counts: list[int]  # samples of each client; 0 is allowed
    inputs: Tensor
    rows: Index  # i64[samples]: the input of each sample
    targets: Tensor  # [samples, ...], or empty for predictions

    @classmethod
    def of_public(cls, public: Tensor, indices: Sequence[Index], targets: Tensor) -> _Pool:
        used, rows = np.unique(np.concatenate(indices), return_inverse=True)
        inputs = public.index_select(0, torch.from_numpy(used).to(public.device))
        return cls([len(index) for index in indices], inputs, rows, targets)

    @classmethod
    def of_samples(cls, samples: Sequence[Samples | None]) -> _Pool:
        given = [each for each in samples if each is not None]
        counts = [0 if each is None else len(each.labels) for each in samples]
        inputs, targets = torch.cat([each.inputs for each in given]), torch.cat([each.labels for each in given])
        return cls(counts, inputs, np.arange(len(targets)), targets)

    def batches(self, size: int) -> Iterator[_Batch]:
        """Step by step, the batches that each client would have alone, those of one length together."""
        counts, device = np.array(self.counts), self.inputs.device
        firsts = np.cumsum(counts) - counts
        for begun in range(0, max(self.counts), size):
            left = counts - begun
            lengths = np.clip(left, 0, size)
            if size > 1:  # a final batch of one image is merged into the previous batch, as in `ends_of_batches`
                lengths[left == size + 1] = size + 1
                lengths[(left == 1) & (begun > 0)] = 0
            for length in np.unique(lengths[lengths > 0]):
                members = np.flatnonzero(lengths == length)
                where = slice(None) if len(members) == len(counts) else torch.from_numpy(members).to(device)
                yield _Batch(members.tolist(), where, (firsts[members] + begun)[:, np.newaxis] + np.arange(length))

    def shuffled(self, rngs: Sequence[Generator]) -> Index:
        """i64[samples]: the samples of each client in a random order of its own."""
        firsts = np.cumsum(self.counts) - self.counts
        orders = [first + rng.permutation(n) for first, rng, n in zip(firsts, rngs, self.counts, strict=True)]
        return np.concatenate(orders)


class _Stack:
    """Models of one architecture, with their weights and buffers copied into one tensor for each name."""

    def __init__(self, optimisers: Sequence[Optimisers], training: Training) -> None:
        models = [each.model for each in optimisers]
        self._model = models[0]  # runs with the weights of all
        self._own = [dict(chain(model.named_parameters(), model.named_buffers())) for model in models]
        self._trained = {name for name, weight in self._model.named_parameters() if weight.requires_grad}
        self._stacked = _stacked(self._own)
        self._rates: dict[Stage, float] = {"local": training.lr, "distil": training.distil_lr}
        self._factor, self._decay = training.momentum, training.weight_decay
        stages: tuple[Stage, ...] = ("local", "distil") if training.momentum else ()
        self._own_momentum = {stage: [each.momentum(stage) for each in optimisers] for stage in stages}
        self._momentum = {stage: _stacked(own) for stage, own in self._own_momentum.items()}

    def step(self, stage: Stage, where: Tensor | slice, inputs: Tensor, targets: Tensor, loss: Loss) -> Tensor:
        """One SGD step of some of the models, each on its own batch; return their losses before it, f32[models]."""

        def loss_of(weights: dict[str, Tensor], others: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
            return loss(functional_call(self._model, (weights, others), (inputs,)), targets)

        self._model.train()
        state = {name: value[where] for name, value in self._stacked.items()}
        weights = {name: value for name, value in state.items() if name in self._trained}
        others = {name: value for name, value in state.items() if name not in self._trained}
        gradients, losses = vmap(grad_and_value(loss_of))(weights, others, inputs, targets)
        for name, gradient in gradients.items():
            weights[name].sub_(self._direction(stage, where, name, weights[name], gradient), alpha=self._rates[stage])
        if isinstance(where, Tensor):
            for name, value in state.items():
                self._stacked[name][where] = value
        return losses  # type: ignore[no-any-return]

    def _direction(self, stage: Stage, where: Tensor | slice, name: str, weight: Tensor, gradient: Tensor) -> Tensor:
        """The gradient with weight decay and momentum, as in torch.optim.SGD."""
        if self._decay:
            gradient = gradient.add(weight, alpha=self._decay)
        if not self._factor:
            return gradient
        momentum = self._momentum[stage][name]
        momentum[where] = momentum[where] * self._factor + gradient
        return momentum[where]

    @torch.inference_mode()
    def scores(self, pool: _Pool, scale: Scale) -> Tensor:
        """The scores of each client's model for its own samples, f32[samples, N], in eval mode."""
        self._model.eval()
        predict = vmap(lambda state, inputs: functional_call(self._model, state, (inputs,)))
        places, found = [], []
        for batch in pool.batches(train.CHUNK):
            rows = torch.from_numpy(pool.rows[batch.places.ravel()]).to(pool.inputs.device)
            inputs = _by_client(scale(pool.inputs.index_select(0, rows)), batch.places)
            state = {name: value[batch.where] for name, value in self._stacked.items()}
            places.append(batch.places.ravel())
            found.append(predict(state, inputs).flatten(end_dim=1))
        return torch.cat(found)[torch.from_numpy(np.argsort(np.concatenate(places))).to(pool.inputs.device)]

    @torch.no_grad()
    def unstack(self) -> None:
        """Copy the stacked weights, buffers and momentum back to their models and optimisers."""
        _copy_back(self._stacked, self._own)
        for stage, momentum in self._momentum.items():
            _copy_back(momentum, self._own_momentum[stage])


def _stacked(own: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([each[name].detach() for each in own]) for name in own[0]}


def _copy_back(stacked: Mapping[str, Tensor], own: Sequence[Mapping[str, Tensor]]) -> None:
    for name, values in stacked.items():
        for each, value in zip(own, values, strict=True):
            each[name].copy_(value)
