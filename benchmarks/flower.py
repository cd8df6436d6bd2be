"""The implementation 'flower': DS-FL on Flower's simulation runtime (Ray), in a virtual environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.timing import Timing, Unavailable
from benchmarks.workloads import WARM_UP
from scarlet.config import Config

PACKAGES = ("torch==2.13.0", "flwr[simulation]==1.41.0")
_SOURCE = Path(__file__).parents[1]
_ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # without it Ray listens on all addresses, on Linux as well
}
_INSTALL_SECONDS, _RUN_SECONDS = 1800, 600  # a simulation does not end by itself when its runtime crashes


class FlowerError(Unavailable):
    """Flower could not be installed or run."""


def default_environment() -> Path:
    """The default folder of the environment."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "scarlet" / "flower-env"


def environment(folder: Path) -> Path:
    """The interpreter of an environment with Flower and this project; the environment is made if it is missing."""
    python = folder / "bin" / "python"
    mark = folder / "scarlet-installed"
    if mark.exists():
        return python
    _call([sys.executable, "-m", "venv", folder], _INSTALL_SECONDS, "cannot be installed")
    constraints = _SOURCE / "constraints.txt"
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", constraints)
    _call((*pip, *PACKAGES, _SOURCE), _INSTALL_SECONDS, "cannot be installed")
    mark.touch()
    return python


def check(python: Path) -> None:
    """Raise FlowerError if Flower cannot be imported in an environment."""
    _call([python, "-c", "import benchmarks.flower_app"], _RUN_SECONDS, "cannot be run")


def flower(python: Path, config: Config) -> list[Timing]:
    """Run DS-FL, and time its rounds after the warm-up."""
    with TemporaryDirectory(prefix="scarlet-benchmark-") as folder:
        job, out = Path(folder) / "job.json", Path(folder) / "rounds.json"
        job.write_text(json.dumps({"config": asdict(replace(config, data_dir=None)), "out": str(out)}))
        # Imported, not run as a script: Ray would pickle a script's functions, and their caches, by value.
        _call(
            [python, "-c", f"from benchmarks.flower_app import main; main({str(job)!r})"],
            _RUN_SECONDS,
            "cannot be run",
            folder,
        )
        if not out.exists():
            raise FlowerError("flower cannot be run: it ended without a result")
        rounds = json.loads(out.read_text())
    missing = [each["answers"] for each in rounds if each["answers"] < config.clients]
    if missing:
        raise FlowerError(f"flower lost clients: {missing[0]} of {config.clients} answered a round")
    return [Timing(each["seconds"], each["compute"]) for each in rounds[WARM_UP:]]


def _call(command: Sequence[str | Path], seconds: float, wrong: str, home: str | None = None) -> None:
    """Run a command; FlowerError with the last line that it printed if it fails."""
    # The source goes first, so that an environment that was made earlier runs the code of today.
    path = os.pathsep.join(map(str, (_SOURCE / "src", _SOURCE)))
    variables = os.environ | _ENVIRONMENT | {"PYTHONPATH": path}
    if home is not None:
        variables["FLWR_HOME"] = home
    try:
        done = subprocess.run(
            list(map(str, command)), env=variables, capture_output=True, text=True, timeout=seconds, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FlowerError(f"flower {wrong}: {error}") from None
    if done.returncode:
        said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise FlowerError(f"flower {wrong}: {said[-1] if said else f'exit code {done.returncode}'}")
