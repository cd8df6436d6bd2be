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
from scarlet.data.datasets import Augment
from scarlet.job import Job, Result
from scarlet.training import train
from scarlet.training.train import Loss, Samples, Task, Training, client_stream, parameters_of, scaled

_BUDGET = 4e9  # bytes of memory for a training step of all clients of a stack

_NO_LABELS = Labels(np.empty(0, np.int64), np.empty((0, 1), np.float32))


def work_together(
    tasks: Sequence[Task], public: Tensor, training: Training, initial: Mapping[str, Tensor]
) -> list[Result]:
    """`train.work` for each of the tasks, up to rounding; their models must have one architecture."""
    models, jobs = [task.model for task in tasks], [task.job for task in tasks]
    for model, job in zip(models, jobs, strict=True):
        if job.parameters is not None:
            train.load_parameters(model, job.parameters)
    teachers = _chosen_teachers(models, jobs, public)
    for model, job in zip(models, jobs, strict=True):
        if job.restart:
            model.load_state_dict(initial)
    stack = _Stack(models)
    distilled = _distil(stack, teachers, jobs, public, training)
    fitted = _fit(stack, [task.private for task in tasks], jobs, training)
    measured = _evaluate(stack, [task.test for task in tasks])
    metrics = [one | two | three for one, two, three in zip(distilled, fitted, measured, strict=True)]
    values = _predict(stack, public, [job.request for job in jobs])
    stack.unstack()
    parameters = [parameters_of(task.model) if task.job.send_parameters else None for task in tasks]
    counts = [len(task.private.labels) for task in tasks]
    return [Result(*parts) for parts in zip(values, metrics, counts, parameters, strict=True)]


def obstacle_to_stacking(factory: Callable[[], nn.Module], image_shape: tuple[int, ...]) -> str | None:
    """Why models for images [C, H, W] cannot be stacked; None if they can.

    Two models are trained one step together, and each must become what it becomes alone.
    """
    images = np.random.default_rng(0).integers(0, 256, (4, *image_shape), np.uint8)
    samples = Samples(torch.from_numpy(images), torch.zeros(4, dtype=torch.int64))
    training = Training(1, 0, 0.01, 0.01, 4, Augment(padding=0, flip=False), seed=0)
    jobs = [Job(client, 1, 0, _NO_LABELS, _NO_LABELS.index) for client in range(2)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        alone = factory()
        models = [copy.deepcopy(alone), copy.deepcopy(alone)]
        train.fit(alone, samples, training, client_stream(jobs[1], training, "fit"))
    try:
        stack = _Stack(models)
        _fit(stack, [samples, samples], jobs, training)
    except Exception as error:  # a user's model may raise anything
        return str(error).split("\n")[0].split(". ")[0]
    stack.unstack()
    if not np.allclose(parameters_of(models[1]), parameters_of(alone), rtol=1e-2, atol=1e-4):
        return "a model that is trained in a stack differs from one that is trained alone"
    return None


def clients_at_once(factory: Callable[[], nn.Module], image_shape: tuple[int, ...], batch_size: int) -> int:
    """How many clients' training steps fit into the memory budget; at least one."""
    model = factory().train()
    weights = {weight.untyped_storage().data_ptr(): weight.nbytes for weight in model.parameters()}
    saved: dict[int, int] = {}  # bytes by address of what autograd saves for the backward pass

    def save(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.random.fork_rng(devices=[]), torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        scores = model(torch.zeros(2, *image_shape))
    activations = sum(size for address, size in saved.items() if address not in weights) * batch_size / len(scores)
    return max(1, int(_BUDGET // (activations + 2 * sum(weights.values()))))


def _chosen_teachers(models: Sequence[nn.Module], jobs: Sequence[Job], public: Tensor) -> list[Labels]:
    """The labels that each client distils: those that it chooses where the teacher has several for a sample."""
    teachers = [job.teacher for job in jobs]
    compared = [job.teacher.index if job.choose is not None else _NO_LABELS.index for job in jobs]
    if not any(map(len, compared)):
        return teachers
    own = _predict(_Stack(models), public, compared)
    return [
        job.choose(job.teacher, values) if job.choose is not None and len(values) else job.teacher
        for job, values in zip(jobs, own, strict=True)
    ]


def _distil(
    stack: _Stack, teachers: Sequence[Labels], jobs: Sequence[Job], public: Tensor, training: Training
) -> list[dict[str, float]]:
    """Train the clients that have a teacher on its soft-labels; return the mean losses of the last epoch."""
    taught = [teacher.value for teacher in teachers if len(teacher.index)]
    if not taught:
        return [{} for _ in teachers]
    (weight,) = {job.distil_weight for job in jobs}  # one method has one weight
    targets = torch.from_numpy(np.concatenate(taught)).to(public.device)
    pool = _Pool.of_public(public, [teacher.index for teacher in teachers], targets)
    rngs = [client_stream(job, training, "distil") for job in jobs]
    loss = train.divergence(weight)
    means = _train(stack, pool, loss, training.distil_epochs, training.distil_lr, training, rngs)
    return [{"distil_loss": mean} if count else {} for mean, count in zip(means, pool.counts, strict=True)]


def _fit(stack: _Stack, privates: Sequence[Samples], jobs: Sequence[Job], training: Training) -> list[dict[str, float]]:
    """Train on labelled samples; return the mean losses of the last epoch."""
    rngs = [client_stream(job, training, "fit") for job in jobs]
    pool = _Pool.of_samples(privates)
    means = _train(stack, pool, functional.cross_entropy, training.local_epochs, training.lr, training, rngs)
    return [{"fit_loss": mean} for mean in means]


def _evaluate(stack: _Stack, tests: Sequence[Samples | None]) -> list[dict[str, float]]:
    """Accuracy and mean cross-entropy of the clients that have a test split."""
    if all(test is None for test in tests):
        return [{} for _ in tests]
    pool = _Pool.of_samples(tests)
    scores = torch.split(stack.scores(pool), pool.counts)
    found = [
        torch.stack([value.double() for value in train.accuracy_and_loss(own, test.labels)])
        for own, test in zip(scores, tests, strict=True)
        if test is not None
    ]
    measured = iter(torch.stack(found).tolist())
    return [{} if test is None else dict(zip(("accuracy", "loss"), next(measured), strict=True)) for test in tests]


def _predict(stack: _Stack, public: Tensor, indices: Sequence[Index]) -> list[Values]:
    """Each client's soft-labels of its own choice of public samples."""
    pool = _Pool.of_public(public, indices, torch.empty(0))
    values = functional.softmax(stack.scores(pool), dim=1).cpu()
    return [own.numpy() for own in torch.split(values, pool.counts)]


def _train(
    stack: _Stack, pool: _Pool, loss: Loss, epochs: int, lr: float, training: Training, rngs: Sequence[Generator]
) -> list[float]:
    """Plain SGD; return the mean loss of each client's last epoch."""
    device, views = pool.images.device, train.views_of(pool.images, training)
    batches = list(pool.batches(training.batch_size))
    means = [math.nan] * len(rngs)
    for _ in range(epochs):
        order = pool.shuffled(rngs)
        sums = torch.zeros(len(rngs), device=device)
        for batch in batches:
            chosen, length = order[batch.places], batch.places.shape[1]
            moves = np.concatenate([views.moves(length, rngs[member]) for member in batch.members], axis=1)
            images = _by_client(scaled(views.moved(pool.rows[chosen.ravel()], moves)), chosen)
            targets = pool.targets[torch.from_numpy(chosen).to(device)]
            sums[batch.where] += length * stack.step(batch.where, images, targets, loss, lr)
        means = [total / max(1, count) for total, count in zip(sums.tolist(), pool.counts, strict=True)]
    return means


def _by_client(images: Tensor, places: Index) -> Tensor:
    """The images of several clients, [members, n, C, H, W]."""
    return images.view(*places.shape, *images.shape[1:])


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
    images: Tensor
    rows: Index  # i64[samples]: the image of each sample
    targets: Tensor  # [samples, ...], or empty for predictions

    @classmethod
    def of_public(cls, public: Tensor, indices: Sequence[Index], targets: Tensor) -> _Pool:
        used, rows = np.unique(np.concatenate(indices), return_inverse=True)
        images = public.index_select(0, torch.from_numpy(used).to(public.device))
        return cls([len(index) for index in indices], images, rows, targets)

    @classmethod
    def of_samples(cls, samples: Sequence[Samples | None]) -> _Pool:
        given = [each for each in samples if each is not None]
        counts = [0 if each is None else len(each.labels) for each in samples]
        images, targets = torch.cat([each.images for each in given]), torch.cat([each.labels for each in given])
        return cls(counts, images, np.arange(len(targets)), targets)

    def batches(self, size: int) -> Iterator[_Batch]:
        """Step by step, the batches that each client would have alone, those of one length together."""
        counts, device = np.array(self.counts), self.images.device
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

    def __init__(self, models: Sequence[nn.Module]) -> None:
        self._model = models[0]  # runs with the weights of all
        self._own = [dict(chain(model.named_parameters(), model.named_buffers())) for model in models]
        self._trained = {name for name, weight in self._model.named_parameters() if weight.requires_grad}
        self._stacked = {name: torch.stack([own[name].detach() for own in self._own]) for name in self._own[0]}

    def step(self, where: Tensor | slice, images: Tensor, targets: Tensor, loss: Loss, lr: float) -> Tensor:
        """One SGD step of some of the models, each on its own batch; return their losses before it, f32[models]."""

        def loss_of(weights: dict[str, Tensor], others: dict[str, Tensor], images: Tensor, targets: Tensor) -> Tensor:
            return loss(functional_call(self._model, (weights, others), (images,)), targets)

        self._model.train()
        state = self._at(where)
        weights = {name: value for name, value in state.items() if name in self._trained}
        others = {name: value for name, value in state.items() if name not in self._trained}
        gradients, losses = vmap(grad_and_value(loss_of))(weights, others, images, targets)
        for name, gradient in gradients.items():
            weights[name].sub_(gradient, alpha=lr)
        if isinstance(where, Tensor):
            for name, value in state.items():
                self._stacked[name][where] = value
        return losses  # type: ignore[no-any-return]

    @torch.inference_mode()
    def scores(self, pool: _Pool) -> Tensor:
        """The scores of each client's model for its own samples, f32[samples, N], in eval mode."""
        self._model.eval()
        predict = vmap(lambda state, images: functional_call(self._model, state, (images,)))
        places, found = [], []
        for batch in pool.batches(train.CHUNK):
            rows = torch.from_numpy(pool.rows[batch.places.ravel()]).to(pool.images.device)
            images = _by_client(scaled(pool.images.index_select(0, rows)), batch.places)
            places.append(batch.places.ravel())
            found.append(predict(self._at(batch.where), images).flatten(end_dim=1))
        if not found:
            return self._model(scaled(pool.images[:0]))  # type: ignore[no-any-return]
        return torch.cat(found)[torch.from_numpy(np.argsort(np.concatenate(places))).to(pool.images.device)]

    @torch.no_grad()
    def unstack(self) -> None:
        """Copy the stacked weights and buffers back to their models."""
        for name, values in self._stacked.items():
            for own, value in zip(self._own, values, strict=True):
                own[name].copy_(value)

    def _at(self, where: Tensor | slice) -> dict[str, Tensor]:
        return {name: value[where] for name, value in self._stacked.items()}
