"""The processes that a command starts: none outlives it, whichever way it ends."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, TypeAlias

from scarlet.errors import ConfigError, ScarletError
from scarlet.experiment.locked import locked

# No outbound traffic: no telemetry, no look for updates, no packages fetched for an app.
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
_MARK = "SCARLET_FLOWER_COMMAND"  # in the environment of every process of a command, whoever its parent is
_GRACE = 8.0  # seconds for a process to end by itself
_PR_SET_PDEATHSIG = 1
_Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None


class FlowerError(ScarletError):
    """Something that a command has started does not work."""


def environment(mark: str, flower_home: Path) -> dict[str, str]:
    """The environment of everything that a command starts."""
    beside = str(Path(sys.executable).parent)  # flower-superexec is started by name, by SuperLink and SuperNode
    path = os.pathsep.join([beside, os.environ.get("PATH", os.defpath)])
    own = {_MARK: mark, "FLWR_HOME": str(flower_home), "PATH": path, "PYTHONUNBUFFERED": "1"}
    return {**os.environ, **QUIET, **own}


def program(name: str) -> str:
    """The path of one of Flower's programs, which are beside the interpreter."""
    beside = Path(sys.executable).parent / name
    if not beside.is_file():
        raise ConfigError(f"{name} must be beside {sys.executable}, and is not; pip install 'scarlet-fl[flower]'")
    return str(beside)


def find_nginx() -> str | None:
    """The path of nginx, which Debian keeps off the users' PATH."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


class Processes:
    """What a command has started, to be ended with it."""

    def __init__(self, mark: str, env: Mapping[str, str]) -> None:
        self._mark = mark
        self._env = env
        self._started: list[tuple[subprocess.Popen[str], bool]] = []

    def start(self, command: Sequence[str], log: Path | None = None, *, slow: bool = False) -> subprocess.Popen[str]:
        """Start a process; what it prints goes to the end of a file, or, without one, to a pipe.

        A slow one does not end in order in good time, and has nothing to lose by being killed.
        """
        print(f"$ {shlex.join(command)}", flush=True)
        out = subprocess.PIPE if log is None else log.open("a")
        try:
            process = subprocess.Popen(
                command,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,  # Ctrl-C is for the command, which ends its processes in order
                preexec_fn=_end_with(os.getpid(), signal.SIGKILL if slow else signal.SIGTERM),
            )
        finally:
            if not isinstance(out, int):
                out.close()
        self._started.append((process, slow))
        return process

    def show(self, process: subprocess.Popen[str], see: Callable[[str], None]) -> int:
        """Print what a process prints, and let it be seen, until the process ends; its exit code."""
        # A SuperNode's SuperExec holds the pipe open until it sees that its parent is gone, and a parent that has ended
        # is not gone before somebody has waited for it: reading the pipe to its end first would never end.
        reader = threading.Thread(target=_read, args=(process.stdout, see), daemon=True)
        reader.start()
        code = process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        reader.join(_GRACE)
        return code

    @property
    def codes(self) -> list[int]:
        """The exit codes of those that have ended, in the order of their start."""
        return [process.returncode for process, _ in self._started if process.returncode is not None]

    def run(self, command: Sequence[str]) -> tuple[int, str]:
        """Run a process to its end; its exit code, and what it printed."""
        process = self.start(command)
        printed, _ = process.communicate()
        return process.returncode, printed

    def end(self) -> None:
        """End all of them, the last one first, and whatever they have started; return when none is left."""
        ignored = dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), signal.SIG_IGN)
        with _handled(ignored):  # a second Ctrl-C does not keep the first from ending everything
            for process, slow in reversed(self._started):
                _end(process, 1.0 if slow else _GRACE)
            end_left_over(self._mark)
            for process, _ in self._started:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # nginx's worker, if its master was killed
                process.wait()


def _read(pipe: IO[str], see: Callable[[str], None]) -> None:
    for line in pipe:
        with suppress(BrokenPipeError):  # who reads our output has had enough, and the process must not wait for that
            print(line, end="", flush=True)
        see(line)


def _end(process: subprocess.Popen[str], grace: float) -> None:
    # A SuperLink that streams a log waits for the stream's end at the first signal; SIGINT as the second ends it.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(grace)


def end_left_over(mark: str) -> None:
    """End every process that carries the mark, and return when none is left; only Linux tells which they are."""
    # A SuperExec ends some seconds after its SuperLink or SuperNode, and has no parent by then.
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in marked(mark):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        until = time.monotonic() + _GRACE
        while marked(mark) and time.monotonic() < until:
            time.sleep(0.05)


def marked(mark: str) -> list[int]:
    """The processes that carry a mark, in the order of their numbers."""
    wanted = f"{_MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another user's, or gone by now
            # A process that has ended and that nobody has waited for yet has an empty environment.
            if wanted in (folder / "environ").read_bytes().split(b"\0") and int(folder.name) != os.getpid():
                found.append(int(folder.name))
    return sorted(found)


@contextmanager
def private(directory: Path, option: str) -> Iterator[None]:
    """Keep a directory for one command; nobody else may look into it, because keys and a database are there."""
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o700)
    with locked(directory, option):
        yield


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, also where a shell's `&` has switched it off, SIGTERM and SIGHUP SystemExit.

    So that `finally` is run.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    with _handled({signal.SIGINT: signal.default_int_handler, signal.SIGTERM: leave, signal.SIGHUP: leave}):
        yield


@contextmanager
def _handled(handlers: Mapping[signal.Signals, _Handler]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_with(parent: int, number: signal.Signals) -> Callable[[], None] | None:
    """What a new process does first: it asks the kernel for a signal at its parent's death, even by kill -9."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, number)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Flower's processes end themselves by it; it may be ignored here
        if os.getppid() != parent:  # it has died in between
            os._exit(1)

    return ask
