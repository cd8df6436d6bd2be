"""The server step's share of a round: the server decodes, checks, aggregates and commits the clients' answers.

    python -m benchmarks.server_share --data-dir DIR

Two workers compute on the same two cores at the same time, so the step takes longer than in `--work server`. The step
includes the clients' reports. The server's model learns in a thread of its own and is not part of the step. Without
--data-dir only the embedded default is run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import scarlet
from benchmarks.comparisons import CODECS
from scarlet.protocol.server import Server

STEP = ("take", "close_round")
spent = dict.fromkeys(STEP, 0.0)  # seconds


def timed(name: str) -> Callable[..., Any]:
    inner = getattr(Server, name)

    @wraps(inner)
    def outer(*arguments: Any, **options: Any) -> Any:
        started = time.perf_counter()
        try:
            return inner(*arguments, **options)
        finally:
            spent[name] += time.perf_counter() - started

    return outer


def workloads(data_dir: Path | None) -> dict[str, scarlet.Config]:
    found = {"embedded default, 10 clients": scarlet.Config(rounds=6, workers=2)}
    if data_dir is not None:
        cnn32 = scarlet.Config(
            private="cifar10",
            data_dir=data_dir,
            model="cnn32",
            clients=100,
            samples_per_client=100,
            public_size=10_000,
            public_per_round=1_000,
            local_epochs=5,
            distil_epochs=5,
            rounds=2,
            workers=2,
        )
        found["cnn32, 100 clients x 1,000 x 10, 5 + 5 epochs"] = cnn32
        found["cnn32, 100 clients x 1,000 x 10, 1 + 1 epochs"] = replace(cnn32, local_epochs=1, distil_epochs=1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="The server step's share of a round.")
    parser.add_argument("--data-dir", type=Path)
    options = parser.parse_args()
    for name in spent:
        setattr(Server, name, timed(name))
    for about, config in workloads(options.data_dir).items():
        for codec in CODECS:
            spent.update(dict.fromkeys(spent, 0.0))
            result = scarlet.run(scarlet.ScarletConfig(), replace(config, codec=codec))
            seconds = sum(round.seconds for round in result.records)
            step = sum(spent.values())
            each = 1e3 * step / config.rounds
            print(
                f"{about}, {codec}: {each:.1f} ms of {seconds / config.rounds:.2f} s, {step / seconds:.2%}", flush=True
            )


if __name__ == "__main__":
    main()
