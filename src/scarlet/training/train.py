"""What is done with one model: fit, distil, predict and evaluate, on tensors that stay in memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from scarlet.data.augment import Views, some
from scarlet.data.datasets import Augment
from scarlet.errors import MessageError
from scarlet.protocol.method import Method
from scarlet.protocol.types import Index, Job, Labels, Result, Values
from scarlet.rng import stream
from scarlet.training.runtime import forward, has_channels_last

CHUNK = 100  # images in one forward pass of a prediction; fixed, so that results do not depend on who asks

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Clock:
    """Adds up the processor's seconds in the functions that it is put on, nested calls once.

    Those of the calling thread: where models are run in one thread, that is all, and no other process adds to it.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._thread = threading.local()

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        @wraps(function)
        def timed(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            if getattr(self._thread, "busy", False):
                return function(*args, **kwargs)
            started, self._thread.busy = time.thread_time(), True
            try:
                return function(*args, **kwargs)
            finally:
                self._thread.busy = False
                self.seconds += time.thread_time() - started

        return timed


clock = Clock()


@dataclass(frozen=True, slots=True)
class Training:
    """How models are trained, on clients and on the server alike."""

    local_epochs: int
    distil_epochs: int
    lr: float
    distil_lr: float
    batch_size: int
    augment: Augment
    seed: int


@dataclass(frozen=True, slots=True)
class Samples:
    """Images with their classes, resident on the device."""

    images: Tensor  # u8[n, C, H, W], or float already scaled
    labels: Tensor  # i64[n]


def work(
    model: nn.Module,
    job: Job,
    private: Samples,
    test: Samples | None,
    public: Tensor,
    how: Training,
    method: Method,
    start: Mapping[str, Tensor],
) -> Result:
    """A client's part of a round: distil, fit, predict on the requested samples and, if asked, evaluate.

    `start` is the weights that all models began with.
    """
    metrics: dict[str, float] = {}
    teacher = job.teacher
    if job.parameters is not None:
        load_parameters(model, job.parameters)
    if method.adopt is not None and len(teacher.index) and not method.personal:
        teacher = method.adopt(teacher, predict(model, public, teacher.index))
    if method.restart:
        model.load_state_dict(start)
    with layers_draw_from(draws_of(job, how, "layers")):
        if len(teacher.index):
            loss = distil(model, public, teacher, how, draws_of(job, how, "distil"), method.distil_weight)
            metrics["distil_loss"] = loss
        metrics["fit_loss"] = fit(model, private, how, draws_of(job, how, "fit"))
    if test is not None:
        metrics["accuracy"], metrics["loss"] = evaluate(model, test)
    parameters = parameters_of(model) if method.exchange == "weights" else None
    return Result(predict(model, public, job.request), metrics, len(private.labels), parameters)


def draws_of(job: Job, how: Training, purpose: str) -> np.random.Generator:
    """The stream of what a client draws in a round for some purpose."""
    return stream(how.seed, "client", client=job.client, round=job.round, attempt=job.attempt, purpose=purpose)


def parameters_of(model: nn.Module) -> Values:
    """All weights and buffers of a model in one row, f32[M]; whole numbers, such as counts of batches, among them."""
    parts = [value.detach().cpu().to(torch.float32).flatten() for value in model.state_dict().values()]
    return torch.cat(parts).numpy()


def load_parameters(model: nn.Module, parameters: Values) -> None:
    """The reverse of `parameters_of`; MessageError if the row is of another model."""
    state = model.state_dict()
    sizes = [value.numel() for value in state.values()]
    if len(parameters) != sum(sizes):
        raise MessageError(f"the weights are {len(parameters)} numbers, and this model has {sum(sizes)}", "wrong shape")
    parts = torch.split(torch.tensor(parameters), sizes)
    for value, part in zip(state.values(), parts, strict=True):
        value.copy_((part if value.is_floating_point() else part.round()).view(value.shape))


@contextmanager
def layers_draw_from(rng: np.random.Generator) -> Iterator[None]:
    """Let layers that draw by themselves, such as dropout, draw from a named stream, and not from what came before."""
    seed = int(rng.integers(2**63))
    with torch.random.fork_rng(devices=[]):
        if torch.accelerator.is_available():
            torch.manual_seed(seed)
        else:  # the same; the other takes half a millisecond to tell devices that are not there
            torch.default_generator.manual_seed(seed)
        yield


@clock
def fit(model: nn.Module, samples: Samples, how: Training, rng: np.random.Generator) -> float:
    """Train on labelled samples with cross-entropy; the mean loss of the last epoch."""
    labels = samples.labels

    def loss_of(scores: Tensor, batch: Tensor) -> Tensor:
        return functional.cross_entropy(scores, labels.index_select(0, batch))

    return _train(model, samples.images, loss_of, how, how.local_epochs, how.lr, rng)


@clock
def distil(
    model: nn.Module,
    public: Tensor,
    teacher: Labels,
    how: Training,
    rng: np.random.Generator,
    weight: float = 1.0,
) -> float:
    """Train towards soft-labels with `weight` KL(teacher || model), Kullback and Leibler's; the last epoch's mean."""
    target = torch.tensor(teacher.value, device=public.device)

    def loss_of(scores: Tensor, batch: Tensor) -> Tensor:
        return weight * divergence(scores, target.index_select(0, batch))

    return _train(model, some(public, teacher.index), loss_of, how, how.distil_epochs, how.distil_lr, rng)


@clock
@torch.inference_mode()
def predict(model: nn.Module, public: Tensor, index: Index) -> Values:
    """Soft-labels of public samples, from the plain images in eval mode."""
    model.eval()
    scores = _scores(model, some(public, index))
    return torch.cat([functional.softmax(each, dim=1).cpu() for each in scores]).numpy()


@clock
@torch.inference_mode()
def evaluate(model: nn.Module, samples: Samples) -> tuple[float, float]:
    """Accuracy and mean cross-entropy."""
    model.eval()
    scores = torch.cat(list(_scores(model, samples.images)))
    accuracy, loss = judged(scores, samples.labels)
    return float(accuracy), float(loss)


def divergence(scores: Tensor, target: Tensor) -> Tensor:
    """KL(target || softmax(scores)), the mean of a batch."""
    return functional.kl_div(functional.log_softmax(scores, dim=1), target, reduction="batchmean")


def judged(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Accuracy and mean cross-entropy of scores, still on their device."""
    return (scores.argmax(dim=1) == labels).double().mean(), functional.cross_entropy(scores, labels)


def _train(
    model: nn.Module,
    images: Tensor,
    loss_of: Callable[[Tensor, Tensor], Tensor],
    how: Training,
    epochs: int,
    lr: float,
    rng: np.random.Generator,
) -> float:
    """Plain stochastic gradient descent on the loss of (scores, which images they are of); its last epoch's mean."""
    model.train()
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    device, count = images.device, len(images)
    views = views_of(images, how, channels_last=has_channels_last(model))
    mean_loss = float("nan")
    for _ in range(epochs):
        batches = np.split(rng.permutation(count), ends_of_batches(count, how.batch_size))
        total = torch.zeros((), device=device)
        for batch, view in zip(batches, views.batches(batches, rng), strict=True):
            scores = forward(model, scaled(view), how.batch_size)
            loss = loss_of(scores, torch.from_numpy(batch).to(device))
            gradients = torch.autograd.grad(loss, weights, allow_unused=True)
            with torch.no_grad():
                for weight, gradient in zip(weights, gradients, strict=True):
                    if gradient is not None:
                        weight.sub_(gradient, alpha=lr)
            total += loss.detach() * len(batch)
        mean_loss = float(total) / count
    return mean_loss


def ends_of_batches(count: int, size: int) -> range:
    """Where batches of so many images end, but for the last, which may be shorter.

    An image that would be left alone goes into the batch before it, because batch norm cannot do with one.
    """
    return range(size, count - (size > 1), size)


def _scores(model: nn.Module, images: Tensor) -> Iterator[Tensor]:
    for chunk in torch.split(images, CHUNK):
        yield forward(model, scaled(chunk), CHUNK)


def views_of(images: Tensor, how: Training, *, channels_last: bool = False) -> Views:
    """The images, from which batches are taken; as floats already where nothing is done to each of these first."""
    as_they_are = not (how.augment.padding or how.augment.flip)
    return Views(scaled(images) if as_they_are else images, how.augment, channels_last=channels_last)


def scaled(images: Tensor) -> Tensor:
    """Bytes to the range [-1, 1]; what is float already is left alone."""
    return images.float().div_(127.5).sub_(1) if images.dtype == torch.uint8 else images
