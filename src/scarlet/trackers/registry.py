"""The trackers by name; a library is loaded when its tracker is opened."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from scarlet.errors import ConfigError, unknown
from scarlet.trackers.tracker import Numbers, Place, Tracker

NO_TRACKER = "none"


@dataclass(frozen=True, slots=True)
class Entry:
    """A tracker: the class `Run` of scarlet.trackers.NAME."""

    needs: tuple[str, ...]  # packages, which the extra of the tracker's name installs
    leaves: str  # file or folder in the directory of a run, or of a comparison
    environment: Mapping[str, str] = field(default_factory=dict)  # where the user has not set it


TRACKERS = {
    "tensorboard": Entry(("tensorboard",), "tensorboard"),
    "mlflow": Entry(
        ("mlflow", "sqlalchemy", "alembic", "cryptography"), "mlflow.db", {"MLFLOW_DISABLE_TELEMETRY": "true"}
    ),
    "wandb": Entry(("wandb",), "wandb", {"WANDB_ERROR_REPORTING": "false"}),
}


def chosen(track: str | Iterable[str]) -> tuple[str, ...]:
    """The names of the trackers asked for; ConfigError for one that is unknown or not installed."""
    names = track.split(",") if isinstance(track, str) else track
    names = tuple(dict.fromkeys(name.strip() for name in names))
    if names == (NO_TRACKER,):
        return ()
    for name in names:
        if name not in TRACKERS:
            raise unknown("tracker", name, TRACKERS)
        for package in TRACKERS[name].needs:
            if not _installed(package):
                raise ConfigError(f"track {name} needs the package {package}; install scarlet-fl[{name}]")
    return names


def found_in(directory: Path) -> tuple[str, ...]:
    """The trackers that recorded a run, or runs of a comparison, in a directory."""
    return tuple(
        name
        for name, entry in TRACKERS.items()
        if (directory / entry.leaves).exists() or any(directory.glob(f"*/{entry.leaves}"))
    )


def open_tracker(name: str, place: Place, options: Mapping[str, object], before: Sequence[Numbers]) -> Tracker:
    """A run in the tracker of that name."""
    for variable, value in TRACKERS[name].environment.items():
        os.environ.setdefault(variable, value)  # mlflow reads it when it is imported, wandb in a process of its own
    opened: Tracker = import_module(f"scarlet.trackers.{name}").Run(place, options, before)
    return opened


def _installed(package: str) -> bool:
    try:
        spec = find_spec(package)
    except ValueError:  # a module without a spec
        return False
    # A folder such as ./wandb, which wandb leaves where it runs, is a package too, but one without a file.
    return spec is not None and spec.origin is not None
