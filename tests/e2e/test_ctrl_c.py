"""Ctrl-C ends the program cleanly, with what was done so far."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.test_commands import LIMIT, TINY


def group(leader: int) -> list[str]:
    """The processes of a group that still run, by their command."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, _, pgrp = (entry / "stat").read_text().rpartition(") ")[2].split()[:3]
            command = (entry / "cmdline").read_text().replace("\0", " ")
        except (OSError, ValueError):  # it ended while we looked
            continue
        if int(pgrp) == leader and state != "Z":
            found.append(command)
    return found


def until(done: Callable[[], bool]) -> bool:
    """Whether it came true, sooner or later."""
    end = time.monotonic() + LIMIT
    while not (true := done()) and time.monotonic() < end:
        time.sleep(0.02)
    return true


@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["to the process", "to its group, as a terminal does"])
def test_ctrl_c_ends_a_run_cleanly_with_what_was_done_so_far(send: Callable[[int, int], None], tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [str(Path(sysconfig.get_path("scripts")) / "scarlet"), "run", "scarlet", *TINY]
    command += ["--rounds", "500", "--local-epochs", "10", "--workers", "2", "--out", str(out)]
    metrics = out / "metrics.jsonl"
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background may ignore it
    ) as process:
        try:
            until(lambda: process.poll() is not None or (metrics.exists() and metrics.read_text().count("\n") >= 2))
            assert process.poll() is None, f"it ended too soon: {process.communicate()[1]}"
            assert len(group(process.pid)) >= 3, "the process and its two workers"
            send(process.pid, signal.SIGINT)
            said, complaint = process.communicate(timeout=LIMIT)
        finally:
            if process.poll() is None:
                process.kill()
    assert process.returncode == 130 and complaint == ""
    assert "interrupted" in said
    assert until(lambda: group(process.pid) == []), group(process.pid)
    rounds = [json.loads(line) for line in metrics.read_text().splitlines()]
    summary = json.loads((out / "summary.json").read_text())
    assert summary["interrupted"] is True and 2 <= summary["rounds"] == len(rounds) < 500
    assert summary["cumulative_bytes"] == rounds[-1]["cumulative_bytes"]
    assert (out / "report.html").stat().st_size > 0 and (out / "server.safetensors").exists()
