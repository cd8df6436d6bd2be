"""The comparison of two source trees: its order, its ratios, and what it measures of processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks import two_trees
from benchmarks.two_trees import SERVER_STEP, Measured, MeasurementError, Tree, Usage, compare, execute, table

HERE = Tree(Path(sys.executable), Path(__file__).parents[2])


def test_trees_alternate_and_the_first_changes_from_repeat_to_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = Tree(Path("before"), None), Tree(Path("after"), None)
    order: list[str] = []

    def measure(tree: Tree) -> Measured:
        order.append(str(tree.python))
        return {"s": float(len(order))}

    def measurements(rounds: int) -> list[Callable[[Tree], Measured]]:
        return [measure]

    monkeypatch.setattr(two_trees, "measurements", measurements)
    assert compare(before, after, rounds=3, repeats=3) == {"s": [(1, 2), (4, 3), (5, 6)]}
    assert order == ["before", "after", "after", "before", "before", "after"]


def test_a_ratio_is_the_median_of_the_ratios_of_the_repeats() -> None:
    last = table({"s": [(1, 2), (10, 5), (100, 110)]}).splitlines()[-1]
    assert last == "| s | 10.0 | 5.00 | 1.100 (0.500 to 2.000) |"


def test_the_server_step_runs_in_this_tree() -> None:
    seconds = json.loads(execute(HERE, ["-c", SERVER_STEP, "reference", "2"]).output)
    assert len(seconds) == 2 and min(seconds) > 0


def test_a_process_that_fails_is_reported_by_the_last_line_of_its_errors() -> None:
    with pytest.raises(MeasurementError, match=r"-c 'raise KeyError': KeyError$"):
        execute(HERE, ["-c", "raise KeyError"])


def test_the_memory_of_descendants_counts() -> None:
    hold = "import sys; held = bytearray(64 << 20); print('ready', flush=True); sys.stdin.read()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hold!r}])"
    process = subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    usage = Usage(process.pid)
    usage.stop()
    usage.sample()
    process.communicate()
    assert len(usage.peak_kb) == 2
    assert sum(peak > 64 << 10 for peak in usage.peak_kb.values()) == 1
