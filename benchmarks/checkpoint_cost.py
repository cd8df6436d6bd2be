"""The cost of a checkpoint, relative to a round of the embedded default.

    python -m benchmarks.checkpoint_cost --rounds 120

A run writes a checkpoint after every second round. A round that follows a checkpoint waits for the clients' states, and
shares the machine with the thread that writes them. It is compared with the rounds before and after it, which do not,
so the outcome does not depend on slow changes of the machine's speed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import scarlet


class RoundEnds:
    """A watcher that keeps the time at which each round ended."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def start(self, config: object, federation: object, expected: object) -> None: ...

    def round(self, record: object, ledger: object, clients: object) -> None:
        self.times.append(time.perf_counter())

    def finish(self, result: object) -> None: ...


def main() -> None:
    parser = argparse.ArgumentParser(description="The cost of a checkpoint.")
    parser.add_argument("--rounds", type=int, default=120)
    rounds = parser.parse_args().rounds
    ends = RoundEnds()
    with tempfile.TemporaryDirectory() as folder:
        config = scarlet.Config(rounds=rounds, checkpoint_every=2)
        scarlet.run(scarlet.ScarletConfig(), config, out=Path(folder) / "run", watchers=[ends])
    length = [after - before for before, after in zip(ends.times, ends.times[1:], strict=False)]
    # length[i] is round i + 2; it follows a checkpoint if round i + 1 is even. The first rounds are a warm-up.
    ratios = [2 * length[i] / (length[i - 1] + length[i + 1]) for i in range(5, len(length) - 1, 2)]
    quartiles = statistics.quantiles(ratios, n=4)
    print(f"{statistics.median(length):.3f} s a round; {quartiles[1]:.3f} times as long with a checkpoint")
    print(f"quartiles {quartiles[0]:.3f} to {quartiles[2]:.3f}, n = {len(ratios)}")


if __name__ == "__main__":
    main()
