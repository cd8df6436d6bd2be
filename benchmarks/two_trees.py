"""Compare the speed and memory of two source trees, before and after a change, interleaved in one run.

    python benchmarks/two_trees.py --before OLD/.venv/bin/python --after .venv/bin/python --repeats 5

Each measurement is taken with both trees, one directly after the other, and the tree that goes first alternates from
repeat to repeat. The measurements are:

- runs on the embedded data with 2 workers (SCARLET with both codecs, SCARLET without checkpoints, FedAvg): the median
  seconds of a round without the first two, processor seconds of the whole run, and peak memory;
- the server step for 100 clients and 1,000 of 10,000 public samples, with both codecs: processor milliseconds;
- the start-up of `scarlet --help` and `scarlet run --help`.

Processor seconds depend less on other processes of the machine than wall time.

A ratio is after / before, the median of the repeats' ratios with the lowest and the highest. Peak memory is the sum of
the peaks (VmHWM) of all processes of a run, so pages that they share are counted in each of them. --before-tree and
--after-tree import the package from DIR/src instead of the installed one. The script needs Linux, and no packages.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

WARM_UP = 2  # rounds
STARTS = 5  # of a command, in each repeat
STEPS = {"reference": 30, "compact": 7}  # of the server, in each repeat
TIMEOUT = 600  # seconds of one process
SAMPLING = 0.2  # seconds between two samples of the processes of a run

RUNS = {
    "scarlet, reference": "scarlet --codec reference --checkpoint-every 1",
    "scarlet, compact": "scarlet --codec compact --checkpoint-every 1",
    "scarlet, compact, no checkpoints": "scarlet --codec compact --checkpoint-every 0",
    "fedavg": "fedavg --codec compact --checkpoint-every 1",
}
STARTED = {"scarlet --help": ["--help"], "scarlet run --help": ["run", "--help"]}

# Prints the seconds of each step. It runs in the interpreter of a tree; trees before protocol/ have core/ instead.
SERVER_STEP = """
import json, sys, time
import numpy as np
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.wire.ledger import Ledger

name, steps = sys.argv[1], int(sys.argv[2])
method = scarlet(ScarletConfig())
size = dict(clients=100, public_size=10_000, public_per_round=1_000, classes=10, seed=0)
try:
    from scarlet.arrays import Labels
    from scarlet.protocol.agreement import Agreement
    from scarlet.protocol.codec import Context
    from scarlet.protocol.codec_registry import codec
    from scarlet.protocol.server import Server
    from scarlet.protocol.uplink.labels import Answer

    agreement = Agreement(**size)
    wire = codec(name, method, agreement)
    context_of = lambda server: Context(server.request)
except ImportError:
    from scarlet.core.federation import Federation
    from scarlet.core.schedule import Known, Rules
    from scarlet.core.server import Server
    from scarlet.core.types import Labels, Uplink as Answer
    from scarlet.wire.codecs import codec

    agreement = Federation(**size)
    wire = codec(name, classes=10)
    context_of = lambda server: Known(Rules(method, agreement), server.request)

given = np.random.default_rng(0).dirichlet(np.full(10, 0.1), size=(100, 1_000)).astype(np.float32)
seconds, messages = [], None
for _ in range(steps + 1):
    server = Server(method, agreement, wire, Ledger())
    server.open_round()
    if messages is None:
        context = context_of(server)
        answers = [Answer(1, 0, client, Labels(server.request, value)) for client, value in enumerate(given)]
        messages = [wire.encode(answer, context) for answer in answers]
    started = time.process_time()
    for client, message in enumerate(messages):
        server.take(client, message)
    closed = server.close_round()
    seconds.append(time.process_time() - started)
    assert closed is not None and closed.answers == 100, server.rejections
print(json.dumps(seconds[1:]))
"""


class MeasurementError(Exception):
    """A process of a tree failed."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A source tree, by the interpreter that it is installed for."""

    python: Path
    source: Path | None  # imported from here; None: the installed package

    def environment(self) -> dict[str, str]:
        """The environment of the tree's processes."""
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        if self.source is not None:
            variables["PYTHONPATH"] = str(self.source.resolve() / "src")
        return variables


@dataclass(frozen=True, slots=True)
class Finished:
    """A process that has ended, with its descendants."""

    output: str
    seconds: float
    processor_seconds: float
    peak_mb: float = 0.0


def execute(tree: Tree, arguments: Sequence[str], *, sampled: bool = False) -> Finished:
    """Run the tree's interpreter; `sampled` measures processor time and memory of its descendants too."""
    command = [str(tree.python), *arguments]
    with tempfile.TemporaryDirectory(prefix="two-trees-") as folder:
        started, before = time.perf_counter(), _processor_seconds_of_children()
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=tree.environment(),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        usage = Usage(process.pid) if sampled else None
        try:
            output, errors = process.communicate(timeout=TIMEOUT)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise MeasurementError(f"{_shown(command)} took more than {TIMEOUT} s") from None
            raise
        finally:
            if usage is not None:
                usage.stop()
        seconds = time.perf_counter() - started
    if process.returncode:
        last = [line for line in errors.splitlines() if line.strip()][-1:] or [f"exit code {process.returncode}"]
        raise MeasurementError(f"{_shown(command)}: {last[0]}")
    if usage is None:
        return Finished(output, seconds, _processor_seconds_of_children() - before)
    return Finished(output, seconds, sum(usage.processor_seconds.values()), sum(usage.peak_kb.values()) / 1e3)


def _processor_seconds_of_children() -> float:
    """Processor seconds of the children that have ended; a worker that its parent did not wait for is missing."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _shown(command: Sequence[str]) -> str:
    return shlex.join(word if "\n" not in word else "..." for word in command)


class Usage:
    """Samples the processor time and the peak memory of a process and its descendants until it is stopped."""

    def __init__(self, root: int) -> None:
        self.processor_seconds: dict[int, float] = {}
        self.peak_kb: dict[int, int] = {}
        self._root = root
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_stopped)
        self._thread.start()

    def stop(self) -> None:
        """End the sampling."""
        self._stopped.set()
        self._thread.join()

    def _sample_until_stopped(self) -> None:
        while not self._stopped.wait(SAMPLING):
            self.sample()

    def sample(self) -> None:
        """Take a sample now."""
        # A process whose parent has died still belongs to the session of the root.
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                stat = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(stat[3]) != self._root:
                    continue
                status = (folder / "status").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            pid = int(folder.name)
            self.processor_seconds[pid] = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
            peak = re.search(r"VmHWM:\s+(\d+) kB", status)
            if peak is not None:  # a process that is about to end has no memory
                self.peak_kb[pid] = max(int(peak[1]), self.peak_kb.get(pid, 0))


Measured = dict[str, float]


def measure_run(tree: Tree, name: str, words: str, rounds: int) -> Measured:
    """Seconds a round, processor seconds and memory of a run."""
    with tempfile.TemporaryDirectory(prefix="two-trees-") as folder:
        out = Path(folder) / "run"
        options = f"--engine contiguous --workers 2 --rounds {rounds} --json"
        arguments = ["-m", "scarlet", "run", *words.split(), *options.split(), "--out", str(out)]
        finished = execute(tree, arguments, sampled=True)
        records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    seconds = [record["seconds"] for record in records]
    return {
        f"{name}: s a round": median(seconds[WARM_UP:]),
        f"{name}: processor s": finished.processor_seconds,
        f"{name}: s in total": finished.seconds,
        f"{name}: peak MB": finished.peak_mb,
    }


def measure_step(tree: Tree, codec: str, steps: int) -> Measured:
    """Processor milliseconds of the server step."""
    finished = execute(tree, ["-c", SERVER_STEP, codec, str(steps)])
    return {f"server step, {codec}: processor ms": 1e3 * median(json.loads(finished.output))}


def measure_start(tree: Tree, name: str, arguments: Sequence[str]) -> Measured:
    """Seconds and processor seconds of a command that only prints its help."""
    finished = [execute(tree, ["-m", "scarlet", *arguments]) for _ in range(STARTS)]
    return {
        f"{name}: s": median(each.seconds for each in finished),
        f"{name}: processor s": median(each.processor_seconds for each in finished),
    }


def measurements(rounds: int) -> list[Callable[[Tree], Measured]]:
    """All measurements of a repeat."""
    return [
        *(lambda tree, name=name, words=words: measure_run(tree, name, words, rounds) for name, words in RUNS.items()),
        *(lambda tree, codec=codec, steps=steps: measure_step(tree, codec, steps) for codec, steps in STEPS.items()),
        *(lambda tree, name=name, words=words: measure_start(tree, name, words) for name, words in STARTED.items()),
    ]


def compare(before: Tree, after: Tree, rounds: int, repeats: int) -> dict[str, list[tuple[float, float]]]:
    """For each figure, what it was before and after in each repeat."""
    found: dict[str, list[tuple[float, float]]] = {}
    for repeat in range(repeats):
        for measure in measurements(rounds):
            if repeat % 2 == 0:
                old, new = measure(before), measure(after)
            else:
                new, old = measure(after), measure(before)
            for name, value in old.items():
                found.setdefault(name, []).append((value, new[name]))
            print(".", end="", file=sys.stderr, flush=True)
        print(f" repeat {repeat + 1} of {repeats}", file=sys.stderr, flush=True)
    return found


def table(found: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """The medians before and after, and the ratios, as a Markdown table."""
    lines = ["| measurement | before | after | ratio (lowest to highest) |", "|---|---|---|---|"]
    for name, pairs in found.items():
        ratios = [after / before for before, after in pairs]
        first, second = (median(column) for column in zip(*pairs, strict=True))
        spread = f"{median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        lines.append(f"| {name} | {_digits(first)} | {_digits(second)} | {spread} |")
    return "\n".join(lines)


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}".rstrip(".")


def main() -> int:
    """Compare two trees; the exit code is 1 if a process of one fails."""
    parser = argparse.ArgumentParser(description="The speed and memory of two source trees, interleaved.")
    parser.add_argument("--before", type=Path, required=True, metavar="PY", help="interpreter of the tree before")
    parser.add_argument("--after", type=Path, required=True, metavar="PY", help="interpreter of the tree after")
    parser.add_argument("--before-tree", type=Path, metavar="DIR", help="import DIR/src (default: what is installed)")
    parser.add_argument("--after-tree", type=Path, metavar="DIR", help="import DIR/src (default: what is installed)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=15, help="of each run; the first two are not measured")
    given = parser.parse_args()
    if given.rounds <= WARM_UP:
        parser.error(f"--rounds must be more than {WARM_UP}, got {given.rounds}")
    if given.repeats < 1:
        parser.error(f"--repeats must be 1 or more, got {given.repeats}")
    # Absolute, but not resolved: the interpreter of a virtual environment is a symbolic link.
    before = Tree(given.before.absolute(), given.before_tree)
    after = Tree(given.after.absolute(), given.after_tree)
    try:
        print(table(compare(before, after, given.rounds, given.repeats)))
    except MeasurementError as error:
        print(f"two_trees: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
