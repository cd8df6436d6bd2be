"""What a checkpoint costs, as a share of a round on the embedded default.

    python benchmarks/checkpoint_cost.py --rounds 120

A run writes a checkpoint after every second round. A round that follows one (it waits for the clients' states, and
shares the machine with the thread that writes them) is compared with its neighbours that do not, so that a machine
whose speed changes from minute to minute cannot decide the outcome.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import scarlet


class Clock:
    """A watcher that notes when each round was over."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def start(self, config: object, problem: object, expected: object) -> None: ...

    def round(self, record: object, ledger: object) -> None:
        self.times.append(time.perf_counter())

    def finish(self, result: object, weights: object) -> None: ...


def main() -> None:
    parser = argparse.ArgumentParser(description="The cost of a checkpoint.")
    parser.add_argument("--rounds", type=int, default=120)
    rounds = parser.parse_args().rounds
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        config = scarlet.Config(rounds=rounds, checkpoint_every=2)
        scarlet.run(scarlet.ScarletConfig(), config, out=Path(folder) / "run", watchers=[clock])
    length = [after - before for before, after in zip(clock.times, clock.times[1:], strict=False)]
    # length[i] is round i + 2; it follows a checkpoint if round i + 1 is even. The first rounds warm up.
    ratios = [2 * length[i] / (length[i - 1] + length[i + 1]) for i in range(5, len(length) - 1, 2)]
    quartiles = statistics.quantiles(ratios, n=4)
    print(f"{statistics.median(length):.3f} s a round; with a checkpoint {quartiles[1]:.3f} times its neighbours")
    print(f"quartiles {quartiles[0]:.3f} to {quartiles[2]:.3f}, n = {len(ratios)}")


if __name__ == "__main__":
    main()
