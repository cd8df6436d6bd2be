"""Kill -9 a real run again and again, at random instants, and see that the outcome is that of a run left alone.

    python -m tests.e2e.kills --kills 100

Every run is killed several times, the parent or one of its workers, while it starts or somewhere in one of its rounds,
and resumed each time. At its end its metrics (all but the seconds), its ledger and the digest of all weights must be
those of the run that nobody disturbed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

_POLL = 0.002  # seconds


def outcome(directory: Path) -> tuple[object, ...]:
    """All that must not depend on how often a run was cut off, nor on the number of workers."""
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    local = "seconds", "uplink_transport_bytes", "downlink_transport_bytes"
    metrics = [{key: value for key, value in json.loads(line).items() if key not in local} for line in lines]
    summary = json.loads((directory / "summary.json").read_text())
    tables = [(directory / name).read_text() for name in ("ledger.csv", "clients.csv")]
    return metrics, summary["weights_digest"], tables


def disturb(directory: Path, options: list[str], now: Callable[[], bool], rng: random.Random) -> str:
    """Start or resume the run, and kill its parent or a worker when it is time; '' if it came to its end before."""
    process = subprocess.Popen(_command(directory, options), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not now():
        if process.poll() is not None:
            return ""
        time.sleep(_POLL)
    workers = _workers_of(process.pid)
    victim = rng.choice(workers) if workers and rng.random() < 0.3 else process.pid
    try:
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:
        process.wait()
        return ""
    process.wait()
    return "parent" if victim == process.pid else "worker"


def finish(directory: Path, options: list[str]) -> None:
    """Let the run come to its end."""
    subprocess.run(_command(directory, options), stdout=subprocess.DEVNULL, check=True)


def rounds_done(directory: Path) -> int:
    """How many rounds a run has written down."""
    path = directory / "metrics.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


class Instant:
    """Comes when a run has written so many rounds, and some polls later."""

    def __init__(self, directory: Path, rounds: int, polls: int) -> None:
        self._directory, self._rounds, self._polls = directory, rounds, polls

    def __call__(self) -> bool:
        self._polls -= rounds_done(self._directory) >= self._rounds
        return self._polls < 0


def _command(directory: Path, options: list[str]) -> list[str]:
    begun = (directory / "config.json").exists()
    words = ["resume", str(directory)] if begun else ["run", "scarlet", "--out", str(directory), *options]
    return [sys.executable, "-m", "scarlet", *words]


def _workers_of(parent: int) -> list[int]:
    """The worker processes: children of the fork server, which is a child of the parent."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = entry.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        children.setdefault(int(after_name[1]), []).append(int(entry.parent.name))
    return [worker for child in children.get(parent, []) for worker in children.get(child, [])]


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill a real run at random instants, and compare.")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--kills-a-run", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--options", default="", help="options of the run, such as '--momentum 0.9 --model cnn,mlp'")
    given = parser.parse_args()
    rng, options = random.Random(given.seed), ["--rounds", str(given.rounds), *shlex.split(given.options)]
    killed = {"parent": 0, "worker": 0, "": 0}
    runs = same = 0
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole"
        finish(whole, options)
        a_round = json.loads((whole / "summary.json").read_text())["seconds"] / given.rounds
        while killed["parent"] + killed["worker"] < given.kills:
            directory = Path(folder) / f"run{runs}"
            for _ in range(given.kills_a_run):
                rounds = rounds_done(directory) + rng.randint(0, given.rounds // given.kills_a_run)
                instant = Instant(directory, rounds, int(rng.uniform(0, a_round) / _POLL))
                killed[disturb(directory, options, instant, rng)] += 1
            finish(directory, options)
            runs += 1
            same += outcome(directory) == outcome(whole)
            parents, workers = killed["parent"], killed["worker"]
            print(f"{parents} parents and {workers} workers killed, {runs} runs, {same} identical", flush=True)
    return 0 if same == runs else 1


if __name__ == "__main__":
    sys.exit(main())
