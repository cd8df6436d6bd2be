"""Images per second in training and in prediction under each engine, and the operations of a training step.

    python -m benchmarks.engines --models cnn,cnn32,resnet20 --repeats 5

Everything runs on one thread; the engines take turns and processor time is measured. The share of peak is that of the
FLOPS at which one core multiplies matrices, measured before each repeat. The models of `batched` are those of 4 clients
that are trained together, on as many images in total. A last line gives the shares of the operations in a training step
under the engine that `auto` chooses (torch.profiler).

    perf record -D 10000 python -m benchmarks.engines --models cnn32 --steady 30

With --steady, the model is only trained, under the engine that `auto` chooses, for 30 seconds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from benchmarks.flops import step_flops
from scarlet.arrays import Labels
from scarlet.data.sites import Augment
from scarlet.job import Job
from scarlet.models.registry import initial_weights, model_factory
from scarlet.training.engines.batched import work_together
from scarlet.training.engines.choice import choose
from scarlet.training.engines.memory_format import in_format_of
from scarlet.training.engines.names import EngineName
from scarlet.training.freed_memory import keep_freed_memory
from scarlet.training.train import Samples, Task, Training, evaluate, fit

ENGINES: tuple[EngineName, ...] = ("contiguous", "channels-last", "compiled", "batched")
TOGETHER = 4  # clients, under `batched`
BATCH, SIDE = 50, 2048
IMAGES = {"cnn": 2_000, "cnn32": 1_000, "resnet20": 200}  # each takes about a quarter of a second
NO_AUGMENTATION = Augment(padding=0, flip=False)
NO_LABELS = Labels(np.empty(0, np.int64), np.empty((0, 1), np.float32))
OPERATIONS = {
    "convolution": "conv",
    "batch norm": "batch_norm",
    "ReLU": "clamp_min|threshold|relu",
    "linear": "addmm|aten::mm",
    "copies and indexing": "copy_|index|contiguous|div_|sub_|cat|pad|flip",
}


def seconds(do: Callable[[], object]) -> float:
    started = time.process_time()
    do()
    return time.process_time() - started


def peak() -> float:
    """FLOPS of one core, by the fastest of some products."""
    a, b = torch.rand(SIDE, SIDE), torch.rand(SIDE, SIDE)
    return 2 * SIDE**3 / min(seconds(lambda: a @ b) for _ in range(5))


@dataclass(frozen=True, slots=True)
class Steps:
    """One epoch of training, and one evaluation, under one engine."""

    train: Callable[[], object]
    predict: Callable[[], object]


class Case:
    """A model, and the images that it is trained on."""

    def __init__(self, name: str) -> None:
        self._shape = (1, 28, 28) if name == "cnn" else (3, 32, 32)
        rng, count = np.random.default_rng(0), IMAGES[name]
        images = torch.from_numpy(rng.integers(0, 256, (count, *self._shape), np.uint8))
        self._samples = Samples(images, torch.from_numpy(rng.integers(0, 10, count)))
        augment = NO_AUGMENTATION if name == "cnn" else Augment(padding=4, flip=True)
        self._training = Training(1, 1, 0.01, 0.01, BATCH, augment, 0)
        self._factory = model_factory(name, 10, self._shape)
        self._weights = initial_weights(self._factory, 0)
        self.images = count
        self.flops = step_flops(self._factory(), torch.zeros(1, *self._shape))

    def under(self, engine: EngineName) -> Steps:
        """Training and evaluation under an engine."""
        return self._together() if engine == "batched" else self._alone(self._model(engine))

    def _model(self, engine: EngineName) -> nn.Module:
        model = choose(engine, self._factory).applied_to(self._factory)()
        model.load_state_dict(self._weights)
        return model

    def _alone(self, model: nn.Module) -> Steps:
        optimisers = self._training.optimisers(model)
        samples = replace(self._samples, inputs=in_format_of(model, self._samples.inputs))
        return Steps(
            train=lambda: fit(optimisers, samples, self._training, np.random.default_rng(0)),
            predict=lambda: evaluate(model, samples),
        )

    def _together(self) -> Steps:
        images, labels = (torch.chunk(each, TOGETHER) for each in (self._samples.inputs, self._samples.labels))
        clients = [(self._model("batched"), Samples(*own)) for own in zip(images, labels, strict=True)]
        jobs = [Job(client, 1, 0, NO_LABELS, NO_LABELS.index) for client in range(TOGETHER)]

        def work(epochs: int, tests: bool) -> None:
            tasks = [
                Task(str(job.client), job, model, self._training.optimisers(model), own, own if tests else None)
                for (model, own), job in zip(clients, jobs, strict=True)
            ]
            training = replace(self._training, local_epochs=epochs)
            work_together(tasks, self._public(), training, self._weights)

        return Steps(train=lambda: work(1, tests=False), predict=lambda: work(0, tests=True))

    def _public(self) -> Tensor:
        return self._samples.inputs[:1]  # nothing is distilled or requested


def compare(name: str, case: Case, repeats: int) -> None:
    """Print the images per second under each engine."""
    engines = {engine: case.under(engine) for engine in ENGINES}
    for steps in engines.values():
        steps.train()
        steps.predict()
    times: dict[EngineName, list[tuple[float, float, float]]] = {engine: [] for engine in engines}
    for _ in range(repeats):
        flops = peak()
        for engine, steps in engines.items():
            times[engine].append((seconds(steps.train), seconds(steps.predict), flops))
    for engine, found in times.items():
        train, predict = (statistics.median(column) for column in list(zip(*found, strict=True))[:2])
        share = statistics.median(case.flops * case.images / (train * flops) for train, _, flops in found)
        speedup = statistics.median(a[0] / b[0] for a, b in zip(times["contiguous"], found, strict=True))
        print(
            f"{name:10} {engine:14} trains {case.images / train:8,.0f} images/s ({speedup:.2f}x, {share:4.0%} of "
            f"peak), predicts {case.images / predict:8,.0f}",
            flush=True,
        )


def profile_step(name: str, case: Case) -> None:
    """Print the shares of the operations in a training step."""
    steps = case.under("auto")
    steps.train()
    with profile(activities=[ProfilerActivity.CPU]) as found:
        steps.train()
    spent = {event.key: event.self_cpu_time_total for event in found.key_averages()}
    total, left = sum(spent.values()), dict(spent)
    shares = {}
    for operation, words in OPERATIONS.items():
        keys = [key for key in left if any(word in key for word in words.split("|"))]
        shares[operation] = sum(left.pop(key) for key in keys) / total
    shares["other"] = sum(left.values()) / total
    print(f"{name:10} a step under auto: " + ", ".join(f"{each} {share:.0%}" for each, share in shares.items()))


def train_for(case: Case, wanted: float) -> None:
    """Train for some seconds."""
    steps, end = case.under("auto"), time.monotonic() + wanted
    while time.monotonic() < end:
        steps.train()


def main() -> None:
    parser = argparse.ArgumentParser(description="The speed of each engine.")
    parser.add_argument("--models", default="cnn,cnn32,resnet20")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steady", type=float, default=None, help="only train, for this many seconds")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    for name in options.models.split(","):
        case = Case(name)
        if options.steady is not None:
            train_for(case, options.steady)
            continue
        compare(name, case, options.repeats)
        profile_step(name, case)


if __name__ == "__main__":
    main()
