"""The contestant 'flower': DS-FL on Flower's simulation runtime (Ray), in an environment of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.laps import Lap, Withdrawn
from benchmarks.works import WARM_UP
from scarlet.config import Config

PACKAGES = ("torch==2.13.0", "flwr[simulation]==1.41.0")
_SOURCE = Path(__file__).parents[3]  # pyproject.toml and constraints.txt are here, unless this is an installed copy
_ALONE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # without it Ray listens on all addresses, on Linux as well
}
_FLOWERS_OWN = ("rich", "packaging")  # flwr wants older ones than our constraints name
_INSTALL_SECONDS, _RUN_SECONDS = 1800, 600  # a simulation whose runtime crashes does not end by itself


class FlowerError(Withdrawn):
    """Flower could not be installed or run."""


def default_environment() -> Path:
    """Where the environment is made, unless told otherwise."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "scarlet" / "flower-env"


def environment(folder: Path) -> Path:
    """The Python of an environment with Flower and this project; it is made if it is not there."""
    python = folder / "bin" / "python"
    mark = folder / "scarlet-installed"
    if mark.exists():
        return python
    if not (_SOURCE / "pyproject.toml").exists():
        raise FlowerError("flower needs this project's source, and this is an installed copy")
    _call([sys.executable, "-m", "venv", folder], _INSTALL_SECONDS, "cannot be installed")
    constraints = folder / "constraints.txt"
    constraints.write_text(_without((_SOURCE / "constraints.txt").read_text(), _FLOWERS_OWN))
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", constraints)
    _call((*pip, *PACKAGES, _SOURCE), _INSTALL_SECONDS, "cannot be installed")
    mark.touch()
    return python


def check(python: Path) -> None:
    """FlowerError if an environment has no Flower in it that can be loaded."""
    _call([python, "-c", "import benchmarks.flower_app"], _RUN_SECONDS, "cannot be run")


def flower(python: Path, config: Config) -> list[Lap]:
    """Run DS-FL, and time its rounds after the warm-up."""
    with TemporaryDirectory(prefix="scarlet-bench-") as folder:
        job, out = Path(folder) / "job.json", Path(folder) / "rounds.json"
        job.write_text(json.dumps({"config": asdict(replace(config, data_dir=None)), "out": str(out)}))
        # Imported, and not run as a script: Ray would send a script's functions, and what they cache, by value.
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
    return [Lap(each["seconds"], each["compute"]) for each in rounds[WARM_UP:]]


def _without(constraints: str, names: Sequence[str]) -> str:
    return "".join(line for line in constraints.splitlines(True) if re.split(r"[=<>]", line)[0] not in names)


def _call(command: Sequence[str | Path], seconds: float, wrong: str, home: str | None = None) -> None:
    """Run a command; FlowerError with the last line that it printed if it fails."""
    # The source goes first, so that an environment that is used again runs what is here now.
    surroundings = os.environ | _ALONE | {"PYTHONPATH": str(_SOURCE / "src")}
    if home is not None:
        surroundings["FLWR_HOME"] = home
    try:
        done = subprocess.run(
            list(map(str, command)), env=surroundings, capture_output=True, text=True, timeout=seconds, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FlowerError(f"flower {wrong}: {error}") from None
    if done.returncode:
        said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise FlowerError(f"flower {wrong}: {said[-1] if said else f'exit code {done.returncode}'}")
