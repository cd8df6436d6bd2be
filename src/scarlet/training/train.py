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
from scarlet.data.augment import Views, some
from scarlet.data.datasets import Augment
from scarlet.errors import MessageError
from scarlet.job import Job, Result
from scarlet.rng import stream
from scarlet.training.engines.compiled import forward
from scarlet.training.engines.memory_format import has_channels_last

Loss = Callable[[Tensor, Tensor], Tensor]  # (scores, labels) -> the mean over a batch

CHUNK = 100  # images in one forward pass of a prediction; fixed, so that results do not depend on the caller


@dataclass(frozen=True, slots=True)
class Training:
    """The hyperparameters of training, the same on all clients and on the server."""

    local_epochs: int
    distil_epochs: int
    lr: float
    distil_lr: float
    batch_size: int
    augment: Augment
    seed: int


@dataclass(frozen=True, slots=True)
class Samples:
    """Images with their labels, on the device."""

    images: Tensor  # u8[n, C, H, W], or float already scaled
    labels: Tensor  # i64[n], or soft-labels f32[n, N]


@dataclass(frozen=True, slots=True)
class Task:
    """A client's job in a round, with the client's model and data."""

    model: nn.Module
    job: Job
    private: Samples
    test: Samples | None  # None: accuracy is not measured


def work(task: Task, public: Tensor, training: Training, initial: Mapping[str, Tensor]) -> Result:
    """A client's part of a round: distil, fit, evaluate if there is a test split, and predict the requested samples.

    `initial` is the weights that all models started from.
    """
    model, job = task.model, task.job
    teacher = job.teacher
    metrics: dict[str, float] = {}
    if job.parameters is not None:
        load_parameters(model, job.parameters)
    if job.choose is not None and len(teacher.index):
        teacher = job.choose(teacher, predict(model, public, teacher.index))
    if job.restart:
        model.load_state_dict(initial)
    with layers_draw_from(client_stream(job, training, "layers")):
        if len(teacher.index):
            rng = client_stream(job, training, "distil")
            metrics["distil_loss"] = distil(model, public, teacher, training, rng, job.distil_weight)
        metrics["fit_loss"] = fit(model, task.private, training, client_stream(job, training, "fit"))
    if task.test is not None:
        metrics["accuracy"], metrics["loss"] = evaluate(model, task.test)
    parameters = parameters_of(model) if job.send_parameters else None
    return Result(predict(model, public, job.request), metrics, len(task.private.labels), parameters)


def client_stream(job: Job, training: Training, purpose: str) -> np.random.Generator:
    """The random stream of a client in a round for one purpose."""
    return stream(training.seed, "client", client=job.client, round=job.round, attempt=job.attempt, purpose=purpose)


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


def fit(model: nn.Module, samples: Samples, training: Training, rng: np.random.Generator) -> float:
    """Train on labelled samples with cross-entropy; return the mean loss of the last epoch."""
    return _train(model, samples, functional.cross_entropy, training.local_epochs, training.lr, training, rng)


def distil(
    model: nn.Module, public: Tensor, teacher: Labels, training: Training, rng: np.random.Generator, weight: float = 1.0
) -> float:
    """Train on the loss weight x KL(teacher || model); return its mean over the last epoch."""
    taught = Samples(some(public, teacher.index), torch.tensor(teacher.value, device=public.device))
    return _train(model, taught, divergence(weight), training.distil_epochs, training.distil_lr, training, rng)


@torch.inference_mode()
def predict(model: nn.Module, public: Tensor, index: Index) -> Values:
    """The model's soft-labels of public samples, without augmentation, in eval mode."""
    model.eval()
    scores = _scores(model, some(public, index))
    return torch.cat([functional.softmax(each, dim=1).cpu() for each in scores]).numpy()


@torch.inference_mode()
def evaluate(model: nn.Module, samples: Samples) -> tuple[float, float]:
    """Accuracy and mean cross-entropy, in eval mode."""
    model.eval()
    scores = torch.cat(list(_scores(model, samples.images)))
    accuracy, loss = accuracy_and_loss(scores, samples.labels)
    return float(accuracy), float(loss)


def divergence(weight: float) -> Loss:
    """The loss weight x KL(soft-label || softmax(scores))."""
    return lambda scores, soft_labels: (
        weight * functional.kl_div(functional.log_softmax(scores, dim=1), soft_labels, reduction="batchmean")
    )


def accuracy_and_loss(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Accuracy and mean cross-entropy of scores, still on their device."""
    return (scores.argmax(dim=1) == labels).double().mean(), functional.cross_entropy(scores, labels)


def _train(
    model: nn.Module, samples: Samples, loss: Loss, epochs: int, lr: float, training: Training, rng: np.random.Generator
) -> float:
    """Plain SGD; return the mean loss of the last epoch."""
    model.train()
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    device, count = samples.images.device, len(samples.images)
    views = views_of(samples.images, training, channels_last=has_channels_last(model))
    mean_loss = float("nan")
    for _ in range(epochs):
        batches = np.split(rng.permutation(count), ends_of_batches(count, training.batch_size))
        total = torch.zeros((), device=device)
        for batch, view in zip(batches, views.batches(batches, rng), strict=True):
            scores = forward(model, scaled(view), training.batch_size)
            batch_loss = loss(scores, samples.labels.index_select(0, torch.from_numpy(batch).to(device)))
            gradients = torch.autograd.grad(batch_loss, weights, allow_unused=True)
            with torch.no_grad():
                for weight, gradient in zip(weights, gradients, strict=True):
                    if gradient is not None:
                        weight.sub_(gradient, alpha=lr)
            total += batch_loss.detach() * len(batch)
        mean_loss = float(total) / count
    return mean_loss


def ends_of_batches(count: int, size: int) -> range:
    """Where each batch but the last ends; the last may be shorter.

    A final batch of one image is merged into the previous batch, because batch norm cannot train on one image.
    """
    return range(size, count - (size > 1), size)


def _scores(model: nn.Module, images: Tensor) -> Iterator[Tensor]:
    for chunk in torch.split(images, CHUNK):
        yield forward(model, scaled(chunk), CHUNK)


def views_of(images: Tensor, training: Training, *, channels_last: bool = False) -> Views:
    """The images, from which augmented batches are taken; without augmentation they are scaled once, beforehand."""
    augment = training.augment
    plain = not (augment.padding or augment.flip)
    return Views(scaled(images) if plain else images, augment, channels_last=channels_last)


def scaled(images: Tensor) -> Tensor:
    """Bytes scaled to [-1, 1]; floats are returned as they are."""
    return images.float().div_(127.5).sub_(1) if images.dtype == torch.uint8 else images
