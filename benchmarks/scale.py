"""The time and memory of a round as the number of clients grows while the number of participants stays the same.

    python -m benchmarks.scale --data-dir DIR

CIFAR-10 with CIFAR-100 as the public dataset; 10 of 10 to 10,000 clients participate in a round, and 100 of 1,000. At
most 20 clients are in memory, so most participants are loaded from disk. Each run is a process of its own, with a
checkpoint after every round; the settings take turns within each repeat. Processor seconds, of the run and its workers,
depend less on other processes than wall time. Memory is the sum of the peaks (VmHWM) of the run and its workers; mapped
files and libraries, which they share, are counted in each process, and are also given apart.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import scarlet

SETTINGS = ((10, 10), (100, 10), (1_000, 10), (10_000, 10), (1_000, 100))  # clients, participants


class Usage:
    """A watcher that keeps the time at which each round was recorded, and the peak memory after the last."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.times: list[float] = []
        self.busy: list[float] = []
        self.peak = self.shared = 0

    def start(self, config: object, federation: object, expected: object) -> None: ...

    def round(self, record: object, ledger: object, clients: object) -> None:
        self.times.append(time.perf_counter())
        workers = [child.pid for child in multiprocessing.active_children() if child.name.startswith("scarlet-")]
        processes = [os.getpid(), *workers]
        self.busy.append(sum(_processor_seconds(Path(f"/proc/{pid}/stat").read_text()) for pid in processes))
        status = [Path(f"/proc/{pid}/status").read_text() for pid in processes]
        self.peak = sum(_kilobytes(text, "VmHWM") for text in status)
        self.shared = sum(_kilobytes(text, "RssFile") for text in status)

    def finish(self, result: object) -> None: ...


def _processor_seconds(stat: str) -> float:
    ticks = stat.rpartition(")")[2].split()
    return (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")


def _kilobytes(status: str, name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1])


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of one run."""

    seconds: list[float]  # of each round but the first
    busy: list[float]  # processor seconds of each of these rounds
    until_first: float  # seconds until the end of the first round, loading included
    peak_mb: float
    shared_mb: float  # the part in mapped files, which processes share


def measure(clients: int, asked: int, data_dir: Path, rounds: int, in_memory: int) -> Measured:
    """Run in this process."""
    usage = Usage()
    config = scarlet.Config(
        private="cifar10",
        data_dir=data_dir,
        model="cnn32",
        clients=clients,
        participation=asked / clients,
        samples_per_client=100,
        share_images=True,
        public_size=2_000,
        public_per_round=200,
        local_epochs=1,
        distil_epochs=1,
        rounds=rounds,
        eval_every=rounds,
        clients_in_memory=in_memory,
        workers=2,
    )
    with tempfile.TemporaryDirectory() as folder:
        scarlet.run(scarlet.ScarletConfig(), config, out=Path(folder) / "run", watchers=[usage])
    # Accuracy is evaluated in the last round only, which is left out.
    return Measured(
        [after - before for before, after in pairwise(usage.times[:-1])],
        [after - before for before, after in pairwise(usage.busy[:-1])],
        usage.times[0] - usage.started,
        usage.peak / 1e3,
        usage.shared / 1e3,
    )


def apart(clients: int, asked: int, arguments: Sequence[str]) -> Measured:
    """Run in a process of its own."""
    command = [sys.executable, __file__, "--one", str(clients), str(asked), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def plot(rows: Sequence[tuple[int, int, float, float, float]], path: Path) -> None:
    """Plot rows of clients, participants, seconds, processor seconds and megabytes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.4), layout="constrained")
    units = ("seconds a round", "processor seconds a round", "peak memory, MB")
    for axes, column, unit in zip(figure.subplots(1, 3), (2, 3, 4), units, strict=True):
        for asked, colour in ((10, "#b3202c"), (100, "#1f5a8a")):
            points = [(row[0], row[column]) for row in rows if row[1] == asked]
            axes.plot(*zip(*points, strict=True), "o-", color=colour, label=f"{asked} participate")
            for x, y in points:
                axes.annotate(f"{y:.3g}" if column < 4 else f"{y:.0f}", (x, y), (0, 6), textcoords="offset points")
        axes.set(xscale="log", xlabel="clients", ylabel=unit)
        axes.set_ylim(0, 1.2 * max(row[column] for row in rows))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#e4e4e4", linewidth=0.5)
    figure.axes[0].legend(frameon=False, loc="upper left")
    figure.savefig(path, format="svg", metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description="The cost of a round for many clients of which few participate.")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--in-memory", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".svg"))
    parser.add_argument("--one", type=int, nargs=2, metavar=("CLIENTS", "ASKED"), help="one run, in this process")
    given = parser.parse_args()
    if given.one:
        clients, asked = given.one
        measured = measure(clients, asked, given.data_dir, given.rounds, given.in_memory)
        print(json.dumps({name: getattr(measured, name) for name in Measured.__dataclass_fields__}))
        return
    passed = ["--data-dir", str(given.data_dir), "--rounds", str(given.rounds), "--in-memory", str(given.in_memory)]
    runs: dict[tuple[int, int], list[Measured]] = {setting: [] for setting in SETTINGS}
    for _ in range(given.repeats):
        for setting, found in runs.items():
            found.append(apart(*setting, passed))
    rows = []
    print("clients  participants  s a round (quartiles)   processor  first round  peak MB (of which shared)")
    for (clients, asked), found in runs.items():
        low, seconds, high = statistics.quantiles([one for run in found for one in run.seconds], n=4)
        busy = statistics.median(one for run in found for one in run.busy)
        first = statistics.median(run.until_first for run in found)
        peak = statistics.median(run.peak_mb for run in found)
        shared = statistics.median(run.shared_mb for run in found)
        rows.append((clients, asked, seconds, busy, peak))
        print(
            f"{clients:7}  {asked:12}  {seconds:.3f} ({low:.3f} to {high:.3f})  {busy:9.2f}  {first:9.1f} s"
            f"  {peak:7.0f} ({shared:.0f})"
        )
    plot(rows, given.out)


if __name__ == "__main__":
    main()
