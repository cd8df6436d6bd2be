"""Training and use of one model: fit, distil, predict and evaluate, on tensors that stay on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from scarlet.arrays import Index, Labels, Values
from scarlet.data.augment import Batches, Views, some
from scarlet.data.sites import Augment, Scale
from scarlet.errors import MessageError
from scarlet.job import Job, Result
from scarlet.rng import stream
from scarlet.training.engines.compiled import forward
from scarlet.training.engines.memory_format import has_channels_last
from scarlet.training.optimisers import MakeOptimizer, MakeSchedule, Optimisers, Stage, sgd, trained_weights

Loss = Callable[[Tensor, Tensor], Tensor]  # (scores, labels) -> the mean over a batch

VALIDATION_LOSS = "validation_loss"  # of a client's metrics
CHUNK = 100  # inputs in one forward pass of a prediction; fixed, so that results do not depend on the caller


def scaled(inputs: Tensor) -> Tensor:
    """Bytes scaled to [-1, 1]; all else is returned as it is."""
    return inputs.float().div_(127.5).sub_(1) if inputs.dtype == torch.uint8 else inputs


@dataclass(frozen=True, slots=True)
class Training:
    """How a model is trained, and how its inputs are prepared."""

    local_epochs: int
    distil_epochs: int
    lr: float
    distil_lr: float
    batch_size: int
    augment: Augment | Scale  # a function changes a batch of training inputs before it is scaled
    seed: int
    scale: Scale = scaled
    momentum: float = 0.0
    weight_decay: float = 0.0
    optimiser: MakeOptimizer | None = None  # None: SGD with that momentum and weight decay
    schedule: MakeSchedule | None = None  # None: the learning rates do not change

    def optimisers(self, model: nn.Module) -> Optimisers:
        """New optimisers for a model."""
        make = self.optimiser or sgd(self.momentum, self.weight_decay)
        return Optimisers(model, {"local": self.lr, "distil": self.distil_lr}, make, self.schedule)


@dataclass(frozen=True, slots=True)
class Samples:
    """Inputs with their labels, on the device."""

    inputs: Tensor  # [n, ...]
    labels: Tensor  # i64[n], or soft-labels f32[n, N]


@dataclass(frozen=True, slots=True)
class Task:
    """A client's job in a round, with the client's name, model and data."""

    name: str
    job: Job
    model: nn.Module
    optimisers: Optimisers
    private: Samples
    test: Samples | None  # None: accuracy is not measured
    validation: Samples | None = None  # None: no loss is measured on it


def work(task: Task, public: Tensor, training: Training, initial: Mapping[str, Tensor]) -> Result:
    """A client's part of a round: distil, fit, evaluate if there is a test split, and predict the requested samples.

    `initial` is the weights that all models of its architecture started from.
    """
    model, job, optimisers = task.model, task.job, task.optimisers
    teacher = job.teacher
    metrics: dict[str, float] = {}
    load_given_parameters(task)
    if job.choose is not None and len(teacher.index):
        teacher = job.choose(teacher, predict(model, public, teacher.index, training.scale))
    restart_if_asked(task, initial)
    with layers_draw_from(client_stream(task, training, "layers")):
        if len(teacher.index):
            rng = client_stream(task, training, "distil")
            metrics["distil_loss"] = distil(optimisers, public, teacher, training, rng, job.distil_weight)
        metrics["fit_loss"] = fit(optimisers, task.private, training, client_stream(task, training, "fit"))
    if task.test is not None:
        metrics["accuracy"], metrics["loss"] = evaluate(model, task.test, training.scale)
    if task.validation is not None:
        metrics[VALIDATION_LOSS] = evaluate(model, task.validation, training.scale)[1]
    parameters = parameters_of(model) if job.send_parameters else None
    value = np.empty((0, teacher.value.shape[-1]), np.float32)  # a model need not take a batch of nothing
    if len(job.request):
        value = predict(model, public, job.request, training.scale)
    return Result(value, metrics, len(task.private.labels), parameters)


def load_given_parameters(task: Task) -> None:
    """Replace the weights by those that the job begins with, if it names any."""
    if task.job.parameters is not None:
        load_parameters(task.model, task.job.parameters)
        task.optimisers.reset()


def restart_if_asked(task: Task, initial: Mapping[str, Tensor]) -> None:
    """Go back to the initial weights, if the job says so."""
    if task.job.restart:
        task.model.load_state_dict(initial)
        task.optimisers.reset()


def client_stream(task: Task, training: Training, purpose: str) -> np.random.Generator:
    """The random stream of a client in a round for one purpose; it follows the client's name."""
    job = task.job
    return stream(training.seed, "client", client=task.name, round=job.round, attempt=job.attempt, purpose=purpose)


def parameters_of(model: nn.Module) -> Values:
    """All weights and buffers of a model in one row, f32[M], integer buffers such as batch counts among them."""
    parts = [value.detach().cpu().to(torch.float32).flatten() for value in model.state_dict().values()]
    return torch.cat(parts).numpy()


def load_parameters(model: nn.Module, parameters: Values) -> None:
    """The inverse of `parameters_of`; it raises MessageError for a row of another length."""
    state = model.state_dict()
    sizes = [value.numel() for value in state.values()]
    if len(parameters) != sum(sizes):
        raise MessageError(f"the weights are {len(parameters)} numbers, and this model has {sum(sizes)}", "wrong shape")
    parts = torch.split(torch.tensor(parameters), sizes)
    for value, part in zip(state.values(), parts, strict=True):
        value.copy_((part if value.is_floating_point() else part.round()).view(value.shape))


@contextmanager
def layers_draw_from(rng: np.random.Generator) -> Iterator[None]:
    """Seed torch's generators, which layers such as dropout use, from a named stream; restore the CPU's afterwards."""
    seed = int(rng.integers(2**63))
    with torch.random.fork_rng(devices=[]):
        if torch.accelerator.is_available():
            torch.manual_seed(seed)
        else:  # the same, without the half millisecond that torch.manual_seed spends on absent devices
            torch.default_generator.manual_seed(seed)
        yield


def fit(optimisers: Optimisers, samples: Samples, training: Training, rng: np.random.Generator) -> float:
    """Train on labelled samples with cross-entropy; return the mean loss of the last epoch."""
    return _train(optimisers, "local", samples, functional.cross_entropy, training.local_epochs, training, rng)


def distil(
    optimisers: Optimisers,
    public: Tensor,
    teacher: Labels,
    training: Training,
    rng: np.random.Generator,
    weight: float = 1.0,
) -> float:
    """Train on the loss weight x KL(teacher || model); return its mean over the last epoch."""
    taught = Samples(some(public, teacher.index), torch.tensor(teacher.value, device=public.device))
    return _train(optimisers, "distil", taught, divergence(weight), training.distil_epochs, training, rng)


@torch.inference_mode()
def predict(model: nn.Module, public: Tensor, index: Index, scale: Scale = scaled) -> Values:
    """The model's soft-labels of public samples, without augmentation, in eval mode."""
    model.eval()
    scores = _scores(model, some(public, index), scale)
    return torch.cat([functional.softmax(each, dim=1).cpu() for each in scores]).numpy()


@torch.inference_mode()
def evaluate(model: nn.Module, samples: Samples, scale: Scale = scaled) -> tuple[float, float]:
    """Accuracy and mean cross-entropy, in eval mode."""
    model.eval()
    scores = torch.cat(list(_scores(model, samples.inputs, scale)))
    accuracy, loss = accuracy_and_loss(scores, samples.labels)
    return float(accuracy), float(loss)


@torch.inference_mode()
def distillation_loss(model: nn.Module, public: Tensor, labels: Labels, scale: Scale = scaled) -> float:
    """The mean KL(soft-label || model) over public samples, in eval mode."""
    model.eval()
    scores = torch.cat(list(_scores(model, some(public, labels.index), scale)))
    return float(divergence(1.0)(scores, torch.tensor(labels.value, device=scores.device)))


def divergence(weight: float) -> Loss:
    """The loss weight x KL(soft-label || softmax(scores))."""
    return lambda scores, soft_labels: (
        weight * functional.kl_div(functional.log_softmax(scores, dim=1), soft_labels, reduction="batchmean")
    )


def accuracy_and_loss(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Accuracy and mean cross-entropy of scores, still on their device."""
    return (scores.argmax(dim=1) == labels).double().mean(), functional.cross_entropy(scores, labels)


def _train(
    optimisers: Optimisers,
    stage: Stage,
    samples: Samples,
    loss: Loss,
    epochs: int,
    training: Training,
    rng: np.random.Generator,
) -> float:
    """Gradient descent; return the mean loss of the last epoch."""
    model = optimisers.model
    model.train()
    weights, update = trained_weights(model), optimisers.update(stage)
    device, count = samples.inputs.device, len(samples.inputs)
    ready = prepared(samples.inputs, training, channels_last=has_channels_last(model))
    mean_loss = float("nan")
    for _ in range(epochs):
        batches = np.split(rng.permutation(count), ends_of_batches(count, training.batch_size))
        total = torch.zeros((), device=device)
        for batch, inputs in zip(batches, ready.batches.batches(batches, rng), strict=True):
            scores = forward(model, ready.scale(inputs), training.batch_size)
            batch_loss = loss(scores, samples.labels.index_select(0, torch.from_numpy(batch).to(device)))
            update(torch.autograd.grad(batch_loss, weights, allow_unused=True))
            total += batch_loss.detach() * len(batch)
        mean_loss = float(total) / count
    if epochs:
        optimisers.end(stage)
    return mean_loss


def ends_of_batches(count: int, size: int) -> range:
    """Where each batch but the last ends; the last may be shorter.

    A final batch of one image is merged into the previous batch, because batch norm cannot train on one image.
    """
    return range(size, count - (size > 1), size)


def _scores(model: nn.Module, inputs: Tensor, scale: Scale) -> Iterator[Tensor]:
    for chunk in torch.split(inputs, CHUNK):
        yield forward(model, scale(chunk.clone()), CHUNK)  # a scale function or a model may write to its input


@dataclass(frozen=True, slots=True)
class Prepared:
    """Training inputs, of which batches are taken, and what is still to be done to a batch."""

    batches: Views | Batches
    scale: Scale


def prepared(inputs: Tensor, training: Training, *, channels_last: bool = False) -> Prepared:
    """The training inputs; what is not augmented is scaled once, beforehand."""
    augment = training.augment
    if not isinstance(augment, Augment):
        return Prepared(Batches(inputs, augment), training.scale)
    plain = not (augment.padding or augment.flip) and training.scale is scaled  # one of the user's takes batches
    if plain:
        inputs = scaled(inputs)
    images = inputs.dim() == 4
    batches = Views(inputs, augment, channels_last=channels_last) if images else Batches(inputs)
    return Prepared(batches, _unchanged if plain else training.scale)


def _unchanged(inputs: Tensor) -> Tensor:
    return inputs
