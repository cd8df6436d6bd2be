"""Differences between engines: the largest difference of a weight after one round, and the final accuracy.

    python -m benchmarks.engine_drift --data-dir DIR --seeds 0,1,2

Training amplifies rounding errors from step to step. One client is also trained in double precision, to show that
engines differ in nothing but rounding. Each engine runs with the same seeds; their standard deviation is the scale for
differences in accuracy. Without --data-dir only the embedded default is run.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import scarlet
from scarlet.arrays import Array, Values
from scarlet.experiment.federation import prepare
from scarlet.methods.scarlet import scarlet as build
from scarlet.training.engines.names import EngineName
from scarlet.training.train import Samples, fit
from scarlet.transport.local import LocalTransport

ENGINES: tuple[EngineName, ...] = ("contiguous", "channels-last", "compiled", "batched")
IN_DOUBLES: tuple[EngineName, ...] = ("channels-last", "compiled")
CIFAR = scarlet.Config(
    private="cifar10", samples_per_client=500, public_size=2_000, public_per_round=200, local_epochs=1, distil_epochs=1
)


class KeepsStates(LocalTransport):
    """A transport that keeps the final states of its clients."""

    final: Mapping[int, Mapping[str, Array]] = {}

    def close(self) -> None:
        if self._workers or self._runner is not None:
            self.final = self.states(range(10))
        super().close()


def weights_after_a_round(config: scarlet.Config) -> dict[tuple[int, str], Values]:
    """The weights of each client by name, without the running statistics of batch norm."""
    made: list[KeepsStates] = []

    def transport(*arguments: Any, **options: Any) -> LocalTransport:
        made.append(KeepsStates(*arguments, **options))
        return made[0]

    scarlet.run(scarlet.ScarletConfig(), replace(config, rounds=1, eval_every=1), transport=transport)
    return {
        (client, name): array.astype(np.float32)
        for client, arrays in made[0].final.items()
        for name, array in arrays.items()
        if name.startswith("model.") and array.dtype == np.float32 and "running" not in name
    }


def weights_in_doubles(config: scarlet.Config, engine: EngineName) -> npt.NDArray[np.float64]:
    """The weights of a client after local training in double precision."""
    federation = prepare(replace(config, engine=engine))
    own = federation.data.train[0].arrays()
    model = federation.architectures[federation.server].factory()
    model.load_state_dict(federation.weights[federation.server])
    images = torch.from_numpy(own.inputs).double() / 127.5 - 1
    private = Samples(images, torch.from_numpy(own.labels))
    training = federation.training(build(scarlet.ScarletConfig()))
    fit(training.optimisers(model.double()), private, training, np.random.default_rng(0))
    return torch.cat([weight.detach().flatten() for weight in model.parameters()]).numpy()


def report(name: str, config: scarlet.Config, rounds: int, seeds: list[int], engines: list[EngineName]) -> None:
    for engine in (each for each in engines if each in IN_DOUBLES):
        apart = np.abs(weights_in_doubles(config, engine) - weights_in_doubles(config, ENGINES[0])).max()
        print(f"{name:10} {engine:14} in double precision {apart:.1e}", flush=True)
    first = weights_after_a_round(replace(config, engine=ENGINES[0]))
    ends: dict[str, list[float]] = {}
    for engine in engines:
        weights = weights_after_a_round(replace(config, engine=engine))
        apart = max(float(np.abs(weights[key] - first[key]).max()) for key in first)
        for seed in seeds:
            ran = replace(config, engine=engine, rounds=rounds, seed=seed, eval_every=rounds)
            found = scarlet.run(scarlet.ScarletConfig(), ran).records[-1].server_accuracy
            assert found is not None
            ends.setdefault(engine, []).append(found)
        accuracies = " ".join(f"{value:.4f}" for value in ends[engine])
        print(f"{name:10} {engine:14} largest difference of a weight {apart:.1e}, accuracy {accuracies}", flush=True)
    if len(seeds) > 1 and "contiguous" in ends:
        print(f"{name:10} standard deviation over the seeds, contiguous: {statistics.stdev(ends['contiguous']):.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Differences between engines in weights and accuracy.")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--engines", default=",".join(ENGINES))
    options = parser.parse_args()
    torch.set_num_threads(1)
    seeds = [int(seed) for seed in options.seeds.split(",")]
    engines: list[EngineName] = [each for each in ENGINES if each in options.engines.split(",")]
    report("cnn", scarlet.Config(), options.rounds, seeds, engines)
    if options.data_dir is not None:
        report("cnn32", replace(CIFAR, data_dir=options.data_dir, model="cnn32"), options.rounds, seeds, engines)
        small = replace(
            CIFAR, data_dir=options.data_dir, model="resnet20", samples_per_client=100, public_per_round=100
        )
        report("resnet20", small, 5, seeds[:1], engines)


if __name__ == "__main__":
    main()
