"""What `run` and `compare` share: their options, and where a run goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from typing_extensions import Doc

from scarlet.cli.options import Option, options_of
from scarlet.config import Config
from scarlet.errors import ConfigError
from scarlet.methods.registry import Entry


@dataclass(frozen=True, slots=True)
class Launch:
    """Options of the command line itself."""

    config: Annotated[Path | None, Doc("options from a TOML file or from an earlier run's config.json")] = None
    out: Annotated[Path | None, Doc("directory for the results; None: a new one under runs/")] = None
    json: Annotated[bool, Doc("print the summary as JSON, and nothing else")] = False


def run_options(methods: Sequence[Entry[Any]]) -> dict[str, Option]:
    """All options that a run of these methods understands."""
    return options_of(Launch, Config, *(method.config for method in methods))


def configs(methods: Sequence[Entry[Any]], given: Mapping[str, Any]) -> tuple[Config, list[object]]:
    """The shared config, and each method's own, from the options that were given."""
    shared = {field.name: given[field.name] for field in fields(Config) if field.name in given}
    own = [
        method.config(**{field.name: given[field.name] for field in fields(method.config) if field.name in given})
        for method in methods
    ]
    return Config(**shared), own


def check_device(name: str) -> None:
    """Raise ConfigError for a device that this machine does not have."""
    import torch

    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device {name!r} cannot be used ({reason}); use cpu") from None


def new_directory(given: Path | None, name: str) -> Path:
    """The directory asked for, or a new one named for the time."""
    return given if given is not None else Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
