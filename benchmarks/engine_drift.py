"""How far engines drift apart: the largest difference of a weight after one round, and the accuracy at the end.

Training multiplies rounding errors from step to step; that it is nothing else is seen where one client's training is
done in double precision.

    python benchmarks/engine_drift.py --data-dir DIR --seeds 0,1,2

The same seed under each engine. Without --data-dir only the embedded default is run. The spread of the seeds says which
difference in accuracy would mean something.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import scarlet
from scarlet.experiment.problem import prepare
from scarlet.models.registry import initial_weights
from scarlet.protocol.persist import Array
from scarlet.protocol.types import EngineName
from scarlet.training.train import Samples, fit
from scarlet.transport.local import LocalTransport

ENGINES: tuple[EngineName, ...] = ("contiguous", "channels-last", "native", "compiled", "batched")
IN_DOUBLES: tuple[EngineName, ...] = ("channels-last", "compiled")  # native leaves doubles to torch; its tests compare
CIFAR = scarlet.Config(
    private="cifar10", samples_per_client=500, public_size=2_000, public_per_round=200, local_epochs=1, distil_epochs=1
)


class Remembering(LocalTransport):
    """Keeps what its clients remember in the end."""

    in_the_end: Mapping[int, Mapping[str, Array]] = {}

    def close(self) -> None:
        if self._workers or self._host is not None:
            self.in_the_end = self.states(range(10))
        super().close()


def weights_after_a_round(config: scarlet.Config) -> dict[tuple[int, str], Array]:
    """For each client and name its weights, without what batch norm keeps."""
    made: list[Remembering] = []

    def carrier(*arguments: Any, **options: Any) -> LocalTransport:
        made.append(Remembering(*arguments, **options))
        return made[0]

    scarlet.run(scarlet.ScarletConfig(), replace(config, rounds=1, eval_every=1), carrier=carrier)
    return {
        (client, name): array
        for client, arrays in made[0].in_the_end.items()
        for name, array in arrays.items()
        if name.startswith("model.") and array.dtype == np.float32 and "running" not in name
    }


def weights_in_doubles(config: scarlet.Config, engine: EngineName) -> Array:
    """What local training makes of a client's model in double precision."""
    problem = prepare(replace(config, engine=engine))
    data, own = problem.data.private, problem.private[0]
    model = problem.factory()
    model.load_state_dict(initial_weights(problem.factory, config.seed))
    images = torch.from_numpy(data.train_images[own]).double() / 127.5 - 1
    private = Samples(images, torch.from_numpy(data.train_labels[own]))
    fit(model.double(), private, problem.training, np.random.default_rng(0))
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
            found = scarlet.run(scarlet.ScarletConfig(), ran).rounds[-1].server_accuracy
            assert found is not None
            ends.setdefault(engine, []).append(found)
        accuracies = " ".join(f"{value:.4f}" for value in ends[engine])
        print(f"{name:10} {engine:14} largest difference of a weight {apart:.1e}, accuracy {accuracies}", flush=True)
    if len(seeds) > 1 and "contiguous" in ends:
        print(f"{name:10} standard deviation over the seeds, contiguous: {statistics.stdev(ends['contiguous']):.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Engines against each other, bit for bit and in the end.")
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
        report("resnet20", small, 5, seeds[:1], [each for each in engines if each != "native"])  # it would be refused


if __name__ == "__main__":
    main()
