"""What `run` and `compare` share: their options, and where a run goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from typing_extensions import Doc

from scarlet.cli.options import Option, flag, options_of
from scarlet.config import Config
from scarlet.errors import ConfigError
from scarlet.methods.caching import Caching
from scarlet.methods.registry import METHODS, Entry, check_method
from scarlet.presets import PRESETS, apply


@dataclass(frozen=True, slots=True)
class Launch:
    """Options of the command line itself."""

    preset: Annotated[
        str | None,
        Doc("a setting by name, see 'scarlet presets'; --config wins over it, and the command line over both"),
    ] = None
    config: Annotated[Path | None, Doc("options from a TOML file or from an earlier run's config.json")] = None
    out: Annotated[Path | None, Doc("directory for the results; None: a new one under runs/")] = None
    json: Annotated[bool, Doc("print the summary as JSON, and nothing else")] = False


def run_options(methods: Sequence[Entry[Any]]) -> dict[str, Option]:
    """All options that a run of these methods understands."""
    return options_of(Launch, Config, *(method.config for method in methods))


def whose(methods: Sequence[Entry[Any]], name: str) -> str | None:
    """Why these methods do not have an option, if others have it."""
    having = [each.name for each in METHODS.values() if name in _names(each.config)]
    if not having:
        return None
    lacking = " or ".join(method.name for method in methods)
    if name in _names(Caching) and all(_sends_no_labels(method) for method in methods):
        sends = "sends" if len(methods) == 1 else "send"
        return (
            f"is for methods that send soft-labels ({', '.join(having)}), not for {lacking}, which {sends} none; "
            "leave it out, or choose one of those"
        )
    other = having[0] if len(having) == 1 else "one of those"
    return f"is for {', '.join(having)}, and not for {lacking}; leave it out, or choose {other}"


def configs(methods: Sequence[Entry[Any]], given: Mapping[str, Any]) -> tuple[Config, list[object]]:
    """The shared config, and each method's own, from the options that were given and the preset that they name."""
    config, own = apply(given.get("preset"), given, methods)
    for method, options in zip(methods, own, strict=True):
        check_method(method.build(options), config.asked)  # before data is loaded, which may take long
    return config, own


@contextmanager
def preset_explained(methods: Sequence[Entry[Any]], given: Mapping[str, Any]) -> Iterator[None]:
    """Where an error is about a value that nobody typed, because the preset has it, say so, and how to change it."""
    try:
        yield
    except ConfigError as error:
        name = str(error).split(" ")[0]  # an error begins with the option that it is about
        if name in given or given.get("preset") not in PRESETS:
            raise
        preset = PRESETS[given["preset"]]
        own = [preset.methods.get(method.name, {}) for method in methods]
        values = [options[name] for options in (preset.shared, *own) if name in options]
        if not values:
            raise
        remedy = _other_value(run_options(methods)[name], values[0])
        raise ConfigError(f"{error}; preset {preset.name} sets {name} to {values[0]}: add {remedy}") from None


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


def _names(kind: Any) -> list[str]:
    return [field.name for field in fields(kind)]


def _sends_no_labels(method: Entry[Any]) -> bool:
    return not method.build(method.config()).uses_public


def _other_value(option: Option, value: object) -> str:
    """What to type to have another value: in full, where there is only one."""
    kind = get_args(option.hint)[0]
    others = [choice for choice in get_args(kind) if choice != value] if get_origin(kind) is Literal else []
    return f"{flag(option.name)} {others[0]}" if len(others) == 1 else f"{flag(option.name)} with another value"
