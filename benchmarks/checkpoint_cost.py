"""What a checkpoint after every round costs, as a share of a round on the embedded default.

    python benchmarks/checkpoint_cost.py --repeats 3 --rounds 40

Runs with and without checkpoints alternate, because the machine's speed changes from minute to minute.
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

    def seconds_a_round(self) -> float:
        """The median from the end of a round to the end of the next: whatever is between them is in it."""
        return statistics.median(b - a for a, b in zip(self.times, self.times[1:], strict=False))


def measure(every: int, rounds: int) -> float:
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        config = scarlet.Config(rounds=rounds, checkpoint_every=every)
        scarlet.run(scarlet.ScarletConfig(), config, out=Path(folder) / "run", watchers=[clock])
    return clock.seconds_a_round()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args()
    ratios = []
    for repeat in range(given.repeats):
        without, with_checkpoint = measure(0, given.rounds), measure(1, given.rounds)
        ratios.append(with_checkpoint / without)
        print(
            f"{repeat}: {without:.4f} s a round without, {with_checkpoint:.4f} s with, ratio {ratios[-1]:.4f}",
            flush=True,
        )
    print(f"median ratio {statistics.median(ratios):.4f}")


if __name__ == "__main__":
    main()
