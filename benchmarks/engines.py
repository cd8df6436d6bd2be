"""How many images a second a model trains on and looks at under each engine, and where the time of a step goes.

    python benchmarks/engines.py --models cnn,cnn32,resnet20 --repeats 5

One thread. The engines take turns, and the time is that of the processor. The share is that of the FLOPS at which one
core multiplies matrices, measured before each repeat. A last table says which operations the step of the engine that
`auto` would take consists of (torch.profiler).

    perf record -D 10000 python benchmarks/engines.py --models cnn32 --steady 30

only trains, under that engine, for 30 seconds, so that a profiler sees nothing else.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from scarlet.data.datasets import Augment
from scarlet.errors import ConfigError
from scarlet.models.registry import initial_weights, model_factory
from scarlet.protocol.types import EngineName
from scarlet.training.engine import Plan, choose
from scarlet.training.flops import step_flops
from scarlet.training.runtime import has_channels_last, keep_freed_memory
from scarlet.training.train import Samples, Training, evaluate, fit

ENGINES: tuple[EngineName, ...] = ("contiguous", "channels-last", "native", "compiled")
BATCH, SIDE = 50, 2048
IMAGES = {"cnn": 2_000, "cnn32": 1_000, "resnet20": 200}  # for each, about a quarter of a second
SMALL = Augment(padding=0, flip=False)
KINDS = {
    "convolution": "conv",
    "native chains": "_Trained",
    "batch norm": "batch_norm",
    "ReLU": "clamp_min|threshold|relu",
    "linear": "addmm|aten::mm",
    "copies and cuts": "copy_|index|contiguous|div_|sub_|cat|pad|flip",
}


def seconds(do: Callable[[], object]) -> float:
    started = time.process_time()
    do()
    return time.process_time() - started


def limit() -> float:
    """FLOPS of one core: the best of some products."""
    a, b = torch.rand(SIDE, SIDE), torch.rand(SIDE, SIDE)
    return 2 * SIDE**3 / min(seconds(lambda: a @ b) for _ in range(5))


class Case:
    """A model, and what it is trained on."""

    def __init__(self, name: str) -> None:
        shape = (1, 28, 28) if name == "cnn" else (3, 32, 32)
        rng, count = np.random.default_rng(0), IMAGES[name]
        images = torch.from_numpy(rng.integers(0, 256, (count, *shape), np.uint8))
        self.samples = Samples(images, torch.from_numpy(rng.integers(0, 10, count)))
        self._turned = replace(self.samples, images=images.contiguous(memory_format=torch.channels_last))
        self.how = Training(1, 1, 0.01, 0.01, BATCH, SMALL if name == "cnn" else Augment(padding=4, flip=True), 0)
        self.factory, self.plan = model_factory(name, 10, shape), Plan(shape)
        self.flops = step_flops(self.factory(), torch.zeros(1, *shape))

    def model(self, engine: EngineName) -> nn.Module:
        made = choose(engine, self.factory, self.plan).applied_to(self.factory)()
        made.load_state_dict(initial_weights(self.factory, 0))
        return made

    def models(self) -> dict[EngineName, nn.Module]:
        """One under each engine that takes it."""
        made = {}
        for engine in ENGINES:
            with suppress(ConfigError):
                made[engine] = self.model(engine)
        return made

    def train(self, model: nn.Module) -> None:
        fit(model, self._seen_by(model), self.how, np.random.default_rng(0))

    def look(self, model: nn.Module) -> None:
        evaluate(model, self._seen_by(model))

    def _seen_by(self, model: nn.Module) -> Samples:
        return self._turned if has_channels_last(model) else self.samples


def race(name: str, case: Case, repeats: int) -> None:
    models = case.models()
    for model in models.values():
        case.train(model)
        case.look(model)
    times: dict[str, list[tuple[float, float, float]]] = {engine: [] for engine in models}
    for _ in range(repeats):
        most = limit()
        for engine, model in models.items():
            train = seconds(lambda model=model: case.train(model))  # type: ignore[misc]
            look = seconds(lambda model=model: case.look(model))  # type: ignore[misc]
            times[engine].append((train, look, most))
    count = len(case.samples.labels)
    for ran, found in times.items():
        train, look = (statistics.median(column) for column in list(zip(*found, strict=True))[:2])
        share = statistics.median(case.flops * count / (train * most) for train, _, most in found)
        first = statistics.median(a[0] / b[0] for a, b in zip(times["contiguous"], found, strict=True))
        print(
            f"{name:10} {ran:14} trains {count / train:8,.0f} images/s ({first:.2f}x, {share:4.0%} of the limit), "
            f"looks at {count / look:8,.0f}"
        )


def consists_of(name: str, case: Case) -> None:
    model = case.model("auto")
    case.train(model)
    with profile(activities=[ProfilerActivity.CPU]) as found:
        case.train(model)
    spent = {event.key: event.self_cpu_time_total for event in found.key_averages()}
    total, left = sum(spent.values()), dict(spent)
    shares = {}
    for kind, words in KINDS.items():
        mine = [key for key in left if any(word in key for word in words.split("|"))]
        shares[kind] = sum(left.pop(key) for key in mine) / total
    shares["all else"] = sum(left.values()) / total
    print(f"{name:10} a step under auto: " + ", ".join(f"{kind} {share:.0%}" for kind, share in shares.items()))


def steady(case: Case, wanted: float) -> None:
    model, end = case.model("auto"), time.monotonic() + wanted
    while time.monotonic() < end:
        case.train(model)


def main() -> None:
    parser = argparse.ArgumentParser(description="Engines against each other.")
    parser.add_argument("--models", default="cnn,cnn32,resnet20")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steady", type=float, default=None, help="seconds to train and do nothing else")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    for name in options.models.split(","):
        case = Case(name)
        if options.steady is not None:
            steady(case, options.steady)
            continue
        race(name, case, options.repeats)
        consists_of(name, case)


if __name__ == "__main__":
    main()
