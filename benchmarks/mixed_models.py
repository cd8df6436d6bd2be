"""Does a small client gain from large ones? All clients small, all large, and half of each, under paired seeds.

    python benchmarks/mixed_models.py --seeds 0,1,2
    python benchmarks/mixed_models.py --seeds 0,1,2 --private cifar10 --data-dir DIR

The server has the large model in all three. Who is small in the mixture is drawn by the seed; the accuracy of the same
clients is shown where all are small, or all are large.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

from scipy import stats

import scarlet
from scarlet.records import LAST_ROUNDS

SMALL, LARGE = "cnn", "cnn32"
SETTINGS = {"all small": SMALL, "half and half": f"{LARGE},{SMALL}", "all large": LARGE}
CIFAR: dict[str, Any] = {
    "clients": 10,
    "samples_per_client": 500,
    "public_size": 2000,
    "public_per_round": 200,
    "rounds": 50,
    "local_epochs": 1,
    "distil_epochs": 2,
    "eval_every": 5,
}


def accuracies(directory: Path) -> dict[int, float]:
    """The mean accuracy of each client over the last rounds in which it was measured."""
    found: dict[int, list[float]] = defaultdict(list)
    with (directory / "clients.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            found[int(row["client"])].append(float(row["accuracy"]))
    return {client: fmean(values[-LAST_ROUNDS:]) for client, values in found.items()}


def models(directory: Path) -> dict[int, str]:
    """The model of each client."""
    with (directory / "clients.csv").open(newline="") as file:
        return {int(row["client"]): row["model"] for row in csv.DictReader(file)}


def interval(values: list[float]) -> str:
    """Mean, and its 95 % interval over seeds."""
    mean = fmean(values)
    if len(values) < 2:
        return f"{mean:.3f}"
    half = float(stats.sem(values) * stats.t.ppf(0.975, len(values) - 1))
    return f"{mean:.3f} ± {half:.3f}"


def main() -> None:
    """Run the nine runs and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--private", default="mnist5k")
    parser.add_argument("--data-dir", type=Path)
    given = parser.parse_args()
    shared = CIFAR if given.private == "cifar10" else {}
    rows: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in SETTINGS}
    for seed in map(int, given.seeds.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            for name, model in SETTINGS.items():
                config = scarlet.Config(
                    private=given.private, data_dir=given.data_dir, model=model, server_model=LARGE, seed=seed, **shared
                )
                result = scarlet.run(scarlet.ScarletConfig(), config, out=Path(folder) / name)
                rows[name]["server"].append(float(str(result.summary["server_accuracy"])))
                rows[name]["clients"].append(float(str(result.summary["client_accuracy"])))
                rows[name]["MB"].append(int(str(result.summary["cumulative_bytes"])) / 1e6)
            kinds = models(Path(folder) / "half and half")
            for name in SETTINGS:
                own = accuracies(Path(folder) / name)
                for label, kind in (("the small half", SMALL), ("the large half", LARGE)):
                    rows[name][label].append(fmean(own[client] for client in own if kinds[client] == kind))
        print(f"seed {seed}: " + ", ".join(f"{name} {rows[name]['server'][-1]:.3f}" for name in SETTINGS), flush=True)
    print(f"\n{given.private}, {LARGE} on the server, small: {SMALL}, large: {LARGE}; mean ± 95 % over seeds")
    for name, columns in rows.items():
        print(f"{name:<14}" + "  ".join(f"{column} {interval(values)}" for column, values in columns.items()))
    for half, alone in (("the small half", "all small"), ("the large half", "all large")):
        pairs = zip(rows["half and half"][half], rows[alone][half], strict=True)
        print(f"{half}, mixed minus {alone}: {interval([mixed - other for mixed, other in pairs])}")


if __name__ == "__main__":
    main()
