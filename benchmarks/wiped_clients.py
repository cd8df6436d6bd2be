"""Does the return of clients that lost their model dent the server's accuracy, and for how long should they abstain?

    python benchmarks/wiped_clients.py --seeds 0,1,2

The embedded default. In each round every client loses its model and its cache with probability `--wipe`; then it learns
for some rounds in which it sends no soft-labels. The first line has no losses.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import fmean

from scipy import stats

import scarlet


def interval(values: Sequence[float]) -> str:
    """Mean, and its 95 % interval over seeds."""
    half = float(stats.sem(values) * stats.t.ppf(0.975, len(values) - 1)) if len(values) > 1 else 0.0
    return f"{fmean(values):.3f} ± {half:.3f}"


def main() -> None:
    """Run every setting under every seed and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--wipe", type=float, default=0.02)
    parser.add_argument("--abstain", default="0,1,3,6")
    given = parser.parse_args()
    seeds = [int(seed) for seed in given.seeds.split(",")]
    settings = [(0.0, 0), *((given.wipe, int(rounds)) for rounds in given.abstain.split(","))]
    calm: list[float] = []
    for wipe, abstain in settings:
        server, clients, silent = [], [], []
        for seed in seeds:
            config = scarlet.Config(wipe=wipe, abstain=abstain, seed=seed)
            summary = scarlet.run(scarlet.ScarletConfig(), config).summary
            server.append(float(str(summary["server_accuracy"])))
            clients.append(float(str(summary["client_accuracy"])))
            silent.append(float(str(summary["abstained"])))
        calm = calm or server
        apart = interval([own - other for own, other in zip(server, calm, strict=True)])
        print(
            f"wipe {wipe}, abstain {abstain}: server {interval(server)} ({apart} against no losses), "
            f"clients {interval(clients)}, answers without labels {fmean(silent):.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
