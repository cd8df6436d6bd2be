"""Where `--stop-when converged` would have ended runs that went on, and from where on their accuracy was flat.

python -m benchmarks.convergence RUN...    # directories of runs with every round evaluated and something held out
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import fmean, median

import numpy as np

from scarlet.experiment.run_directory import read_run
from scarlet.paper.ablations import plateau, stop_of
from scarlet.records import LAST_ROUNDS

LENGTHS = (150, 200, 250)  # rounds after which runs are cut, to see whether they were flat from the same round on
NEAR = 0.15
HEADS = (
    *("run", "ends after", "server there", "all rounds", "best ten", "flat from", "clients flat from"),
    f"flat if cut after {', '.join(map(str, LENGTHS))}",
)


def main(directories: list[Path]) -> None:
    """Print a line a run, and what they have in common."""
    print(f"| {' | '.join(HEADS)} |")
    print("|---" * len(HEADS) + "|")
    gains: list[float] = []
    parts: list[float] = []
    found: list[tuple[int, int]] = []  # where each run ends, and from where on it is flat
    shares: dict[int, list[float]] = {length: [] for length in LENGTHS}
    for directory in directories:
        records = read_run(directory).records
        measured = np.array([record.server_accuracy for record in records], np.float64)
        means = np.convolve(measured, np.full(LAST_ROUNDS, 1 / LAST_ROUNDS), "valid")
        flat, end = plateau(records, "server_accuracy") or 0, stop_of(records) or len(records)
        cut = {length: plateau(records[:length], "server_accuracy") or 0 for length in LENGTHS}
        for length, each in cut.items():
            shares[length].append(each / length)
        there, last = means[end - LAST_ROUNDS], means[-1]
        gains.append(there - last)
        parts.append(end / len(records))
        found.append((end, flat))
        cuts, clients = ", ".join(map(str, cut.values())), plateau(records, "client_accuracy")
        row = f"{there:.3f} | {last:.3f} | {means.max():.3f} | {flat} | {clients} | {cuts}"
        print(f"| {directory.name} | {end} | {row} |")
    always = max(range(50, 301, 10), key=lambda end: _near([(end, flat) for _, flat in found]))
    print(f"ends after {fmean(parts):.0%} of the rounds; against all rounds {100 * fmean(gains):+.1f} points,")
    print(f"at worst {100 * min(gains):+.1f}; {_near(found)} of {len(found)} within {NEAR:.0%} of where they are flat,")
    print(f"and {_near([(always, flat) for _, flat in found])} if all ended after round {always}, whatever the losses")
    print("flat from, as a share of the length:", {length: f"{median(each):.0%}" for length, each in shares.items()})


def _near(found: list[tuple[int, int]]) -> int:
    """How many runs end near the round from which they are flat."""
    return sum(abs(end - flat) <= NEAR * flat for end, flat in found)


if __name__ == "__main__":
    main([Path(each) for each in sys.argv[1:]])
