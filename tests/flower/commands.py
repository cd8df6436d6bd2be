"""`scarlet flower ...` in a process of its own, as an operator starts it, and what a test asks of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from scarlet.flower.processes import marked

APP = Path(__file__).with_name("little_app")
LIMIT = 60.0  # seconds, after which something is taken for stuck


class Command:
    """A command that runs, with its output in a file."""

    def __init__(self, log: Path, *arguments: object) -> None:
        self.log = log
        with log.open("w") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "scarlet", "flower", *map(str, arguments)], stdout=out, stderr=subprocess.STDOUT
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        return self.log.read_text()

    def wait_for(self, text: str, limit: float = LIMIT) -> None:
        """Return when the output has a text."""
        wait_until(lambda: text in self.output or self._process.poll() is not None, f"{text!r} in {self.log}", limit)
        assert text in self.output, self.output

    def end(self, number: signal.Signals) -> int:
        """Send it a signal, and return its exit code."""
        self._process.send_signal(number)
        return self.wait()

    def wait(self, limit: float = LIMIT) -> int:
        return self._process.wait(limit)

    def clear(self) -> None:
        """End it if it still runs; it ends what it has started."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()


def run(log: Path, *arguments: object) -> tuple[int, str]:
    """A command to its end; its exit code and its output."""
    command = Command(log, *arguments)
    try:
        return command.wait(), command.output
    finally:
        command.clear()


def wait_until(true: Callable[[], bool], what: str, limit: float = LIMIT) -> None:
    """Return as soon as something is true."""
    until = time.monotonic() + limit
    while not true():
        assert time.monotonic() < until, f"still not there: {what}"
        time.sleep(0.05)


def processes_of(*folders: Path) -> list[int]:
    """The processes that commands with these directories have started and not ended."""
    return [pid for folder in folders for pid in marked(str(folder))]


def children_of(pid: int) -> list[int]:
    """The processes whose parent is a process."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"\nPPid:\t{pid}\n" in (folder / "status").read_text():
                found.append(int(folder.name))
    return found


def is_alive(pid: int) -> bool:
    with suppress(OSError):
        os.kill(pid, 0)
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    return False


def write_data(folder: Path) -> tuple[Path, Path]:
    """The data of a site, and the public dataset."""
    data, public = folder / "data.npz", folder / "public.npz"
    np.savez(data, train_x=np.zeros((20, 1, 8, 8), np.uint8), train_y=np.arange(20) % 4)
    np.savez(public, x=np.zeros((30, 1, 8, 8), np.uint8))
    return data, public
