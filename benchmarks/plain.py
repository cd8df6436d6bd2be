"""The implementation 'plain': SCARLET as published simulations of federated learning are usually written.

Each round has a new pool of spawned processes of one thread each. A client's model and cache are loaded from disk and
saved again. Images come one by one out of a DataLoader, through the steps of torchvision's transforms. The server loops
over the answers and then over the samples, in one thread too.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from benchmarks.timing import Timing, Unavailable
from benchmarks.workloads import WARM_UP
from scarlet.config import Config
from scarlet.data.samples import Part
from scarlet.data.sites import Augment
from scarlet.experiment.federation import Federation, prepare
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.models.registry import ModelFactory
from scarlet.protocol.stamps import Draws
from scarlet.training.train import Training

_EVALUATION_BATCH = 100
_Criterion = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class PlainRound:
    """The results of a round."""

    seconds: float
    hit_ratio: float
    server_accuracy: float
    client_accuracy: float


@dataclass(frozen=True, slots=True)
class _Downlink:
    round: int
    index: list[int]  # the samples of the round before; none in the first
    fresh: dict[int, Tensor]  # those of their labels that the clients do not hold
    request: list[int]  # the samples to label


@dataclass(frozen=True, slots=True)
class Answer:
    """A client's answer."""

    samples: Tensor  # i64[r]
    labels: Tensor  # f32[r, N]
    accuracy: float


class Images(Dataset[tuple[Tensor, Tensor]]):
    """Images with their targets, preprocessed one by one."""

    def __init__(self, images: Tensor, targets: Tensor, augment: Augment | None = None) -> None:
        self.images = images  # u8[n, H, W, C]
        self.targets = targets
        self.augment = augment  # None: without augmentation
        self.mean = self.deviation = torch.full((images.shape[-1], 1, 1), 0.5)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, position: int) -> tuple[Tensor, Tensor]:
        image = self.images[position].permute(2, 0, 1).contiguous().float().div(255)
        if self.augment is not None:
            image = image.flip(-1) if self.augment.flip and torch.rand(1) < 0.5 else image
            image = _cropped(image, self.augment.padding) if self.augment.padding else image
        return image.sub(self.mean).div(self.deviation), self.targets[position]


def _cropped(image: Tensor, padding: int) -> Tensor:
    _, height, width = image.shape
    down = int(torch.randint(0, 2 * padding + 1, (1,)))
    right = int(torch.randint(0, 2 * padding + 1, (1,)))
    return functional.pad(image, (padding,) * 4)[:, down : down + height, right : right + width]


class Learner:
    """Trains and tests a model."""

    def __init__(self, model: nn.Module, training: Training) -> None:
        assert isinstance(training.augment, Augment)
        self.model = model
        self.training = training
        self.augment = training.augment

    def fit(self, images: Tensor, classes: Tensor) -> None:
        """Local training with cross-entropy."""
        training = self.training
        self._train(Images(images, classes, self.augment), nn.CrossEntropyLoss(), training.local_epochs, training.lr)

    def distil(self, images: Tensor, labels: Tensor) -> None:
        """Training towards soft-labels with KL(teacher || model)."""
        criterion = nn.KLDivLoss(reduction="batchmean")

        def loss(scores: Tensor, target: Tensor) -> Tensor:
            found: Tensor = criterion(functional.log_softmax(scores, dim=1), target)
            return found

        training = self.training
        self._train(Images(images, labels, self.augment), loss, training.distil_epochs, training.distil_lr)

    def _train(self, images: Images, criterion: _Criterion, epochs: int, lr: float) -> None:
        loader = DataLoader(images, batch_size=self.training.batch_size, shuffle=True, num_workers=0)
        optimiser = torch.optim.SGD(self.model.parameters(), lr=lr)
        self.model.train()
        for _ in range(epochs):
            for batch, target in loader:
                optimiser.zero_grad()
                criterion(self.model(batch), target).backward()  # type: ignore[no-untyped-call]
                optimiser.step()

    @torch.no_grad()
    def predict(self, images: Tensor) -> Tensor:
        """Soft-labels, f32[n, N]."""
        self.model.eval()
        loader = DataLoader(Images(images, torch.zeros(len(images))), batch_size=_EVALUATION_BATCH)
        return torch.cat([functional.softmax(self.model(batch), dim=1) for batch, _ in loader])

    @torch.no_grad()
    def evaluate(self, images: Tensor, classes: Tensor) -> float:
        """Accuracy; the loss is computed too, as every implementation does."""
        self.model.eval()
        correct, loss = 0, 0.0
        for batch, target in DataLoader(Images(images, classes), batch_size=_EVALUATION_BATCH):
            scores = self.model(batch)
            loss += float(functional.cross_entropy(scores, target, reduction="sum"))
            correct += int((scores.argmax(dim=1) == target).sum())
        return correct / len(images)


@dataclass(frozen=True, slots=True)
class _ClientFiles:
    """The folder of the clients' data, models and caches, and how workers make and train models."""

    folder: Path
    factory: ModelFactory
    training: Training

    def data(self, name: str) -> Path:
        return self.folder / f"{name}.pt"


_public = torch.empty(0)  # the public images of a worker process


def _start_worker(files: _ClientFiles) -> None:
    global _public
    torch.set_num_threads(1)
    _public = torch.load(files.data("public"))


def _client(client: int, files: _ClientFiles, downlink: _Downlink) -> Answer:
    """A client's part of a round."""
    torch.manual_seed(hash((files.training.seed, client, downlink.round)))
    private, test = torch.load(files.data(f"private-{client}")), torch.load(files.data(f"test-{client}"))
    cache: dict[int, Tensor] = torch.load(files.data(f"cache-{client}"))
    model = files.factory()
    model.load_state_dict(torch.load(files.data(f"model-{client}")))
    learner = Learner(model, files.training)

    cache.update(downlink.fresh)
    if downlink.index:
        learner.distil(_public[downlink.index], torch.stack([cache[sample] for sample in downlink.index]))
    learner.fit(*private)
    samples = torch.tensor(downlink.request, dtype=torch.int64)
    labels = learner.predict(_public[samples]) if downlink.request else torch.empty(0)
    accuracy = learner.evaluate(*test)

    torch.save(model.state_dict(), files.data(f"model-{client}"))
    torch.save(cache, files.data(f"cache-{client}"))
    return Answer(samples, labels, accuracy)


class Cache:
    """The server's cache: for each sample its label and the round in which it was stored."""

    def __init__(self, duration: int) -> None:
        self.duration = duration
        self.entries: dict[int, tuple[Tensor, int]] = {}

    def request(self, index: Sequence[int], round: int) -> list[int]:
        """The samples that are missing or expired."""
        return [sample for sample in index if not self._serves(sample, round)]

    def update(self, labels: Mapping[int, Tensor], round: int) -> None:
        """Store the labels of some samples."""
        for sample, label in labels.items():
            self.entries[sample] = label, round

    def labels(self, index: Sequence[int]) -> Tensor:
        """The stored labels of some samples, f32[n, N]."""
        return torch.stack([self.entries[sample][0] for sample in index])

    def _serves(self, sample: int, round: int) -> bool:
        return sample in self.entries and round - self.entries[sample][1] <= self.duration


def fixed_beta(options: ScarletConfig) -> float:
    """The exponent of a run; this implementation chooses none by itself."""
    if options.beta == "auto":
        raise Unavailable("plain has no --beta auto; give it a number")
    return options.beta


def aggregate(answers: Sequence[Answer], beta: float) -> dict[int, Tensor]:
    """For each sample the mean of the labels that clients gave it, sharpened by Enhanced ERA."""
    given: dict[int, list[Tensor]] = defaultdict(list)
    for answer in answers:
        for sample, label in zip(answer.samples, answer.labels, strict=True):
            given[int(sample)].append(label)
    labels = {}
    for sample, its in given.items():
        labels[sample] = sharpened_mean(its, beta)
    return labels


def sharpened_mean(labels: list[Tensor], beta: float) -> Tensor:
    """The mean of a sample's labels, by Enhanced ERA."""
    raised = torch.stack(labels).mean(dim=0) ** beta
    return raised / raised.sum()


class Plain:
    """The simulation; the states of its clients are in a folder."""

    def __init__(self, federation: Federation, options: ScarletConfig, folder: Path) -> None:
        method = scarlet(options)
        training, factory = federation.training(method), federation.architectures[federation.server].factory
        self._federation = federation
        self._options = options
        self._files = _ClientFiles(folder, factory, training)
        self._draws = Draws(federation.agreement, method.select, method.downlink.policy)
        self._cache = Cache(options.cache_duration)
        self._test = _loaded(federation.data.held_out)
        self._public = _as_distributed(federation.data.public)
        weights = federation.weights[federation.server]
        model = factory()
        model.load_state_dict(weights)
        self._learner = Learner(model, training)
        self._taught: list[int] = []
        self._fresh: dict[int, Tensor] = {}
        self._save(weights)

    def rounds(self, count: int) -> Iterator[PlainRound]:
        """Run some rounds."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            for round in range(1, count + 1):
                yield self._round(round)
        finally:
            torch.set_num_threads(threads)

    def _round(self, round: int) -> PlainRound:
        started = time.perf_counter()
        index = self._draws.index(round, 0).tolist()
        request = self._cache.request(index, round)
        answers = self._clients(_Downlink(round, self._taught, self._fresh, request))
        self._taught, self._fresh = index, aggregate(answers, fixed_beta(self._options))
        self._cache.update(self._fresh, round)
        self._learner.distil(self._public[index], self._cache.labels(index))
        accuracy = self._learner.evaluate(*self._test)
        return PlainRound(
            time.perf_counter() - started,
            1 - len(request) / len(index),
            accuracy,
            float(np.mean([answer.accuracy for answer in answers])),
        )

    def _clients(self, downlink: _Downlink) -> list[Answer]:
        workers = self._federation.config.workers or 2
        with get_context("spawn").Pool(workers, initializer=_start_worker, initargs=(self._files,)) as pool:
            work = partial(_client, files=self._files, downlink=downlink)
            return pool.map(work, range(len(self._federation.data.train)), chunksize=1)

    def _save(self, weights: Mapping[str, Tensor]) -> None:
        """Give each client its data, its initial model and an empty cache."""
        data, files = self._federation.data, self._files
        torch.save(self._public, files.data("public"))
        for client, (train, test) in enumerate(zip(data.train, data.test, strict=True)):
            for name, part in (("private", train), ("test", test)):
                torch.save(_loaded(part), files.data(f"{name}-{client}"))
            torch.save(weights, files.data(f"model-{client}"))
            torch.save({}, files.data(f"cache-{client}"))


def _loaded(part: Part | None) -> tuple[Tensor, Tensor]:
    """The images of a part with their classes."""
    assert part is not None
    images, labels = part.arrays()
    return _as_distributed(images), torch.from_numpy(labels)


def _as_distributed(images: npt.NDArray[Any]) -> Tensor:
    """u8[n, H, W, C]: the channels of a pixel are adjacent, as in image files and torchvision's datasets."""
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 2, 3, 1)))


def plain(options: ScarletConfig, config: Config) -> list[Timing]:
    """Run SCARLET, and time its rounds after the warm-up."""
    with TemporaryDirectory(prefix="scarlet-benchmark-") as folder:
        rounds = list(Plain(prepare(replace(config, engine="contiguous")), options, Path(folder)).rounds(config.rounds))
    return [Timing(each.seconds) for each in rounds[WARM_UP:]]
