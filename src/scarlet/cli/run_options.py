"""What `run` and `compare` share: their options in groups, and the checks before a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import Annotated, Any

from typing_extensions import Doc

from scarlet.cli.options import AsJson, Option, flag, help_text, options_of
from scarlet.config import Config
from scarlet.errors import ConfigError
from scarlet.experiment.config_json import choices_of
from scarlet.methods.caching import Caching
from scarlet.methods.registry import METHODS, Entry, check_method
from scarlet.presets import PRESETS, apply
from scarlet.trackers.registry import NO_TRACKER

# The groups of the help, in its order; `method` has the method's own options.
GROUPS = {
    "options": ("preset", "config"),
    "data": (
        *("private", "public", "data_dir", "alpha", "samples_per_client", "share_images", "test_per_client"),
        *("image_size", "public_size", "public_per_round"),
    ),
    "federation": (
        *("clients", "rounds", "participation", "min_answers", "deadline", "codec", "uplink_bits", "downlink_bits"),
    ),
    "training": (
        *("model", "model_shares", "server_model", "local_epochs", "distil_epochs", "lr", "distil_lr", "momentum"),
        *("weight_decay", "batch_size", "eval_every", "private_validation", "public_validation", "seed", "seeds"),
    ),
    "stopping": ("stop_when", "stop_at_mb", "stop_at_accuracy", "stop_at_seconds"),
    "method": (),
    "faults": ("dropout", "wipe", "abstain", "hostile", "attack"),
    "performance": ("device", "engine", "workers", "clients_in_memory"),
    "output": ("out", "track", "json", "checkpoint_every", "save_clients"),
}


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """Options of the command line itself."""

    preset: Annotated[
        str | None,
        Doc(
            "named set of option values, see 'scarlet presets'; --config overrides it, and the command line overrides "
            "both (default: none)"
        ),
    ] = None
    config: Annotated[
        Path | None, Doc("read options from a TOML file, or from the config.json of an earlier run (default: none)")
    ] = None
    out: Annotated[Path | None, Doc("directory for the results (default: a new directory under runs/)")] = None
    track: Annotated[
        str, Doc("trackers that record the run below its directory: tensorboard, mlflow, wandb, or several with commas")
    ] = NO_TRACKER


def run_options(methods: Sequence[Entry[Any]], *others: type) -> dict[str, Option]:
    """The options of a run of these methods, in the order of their groups."""
    shared, own = options_of(CommandOptions, *others, Config, AsJson), _own_options(methods)
    for name in shared.keys() & own.keys() if len(methods) == 1 else ():
        shared[name] = replace(shared[name], help=own[name].help)
    options: dict[str, Option] = {}
    for group, names in GROUPS.items():
        found = {name: shared[name] for name in names if name in shared}
        if group == "method":
            found = {name: option for name, option in own.items() if name not in shared}
        options |= {name: replace(option, group=group) for name, option in found.items()}
    return options


def _own_options(methods: Sequence[Entry[Any]]) -> dict[str, Option]:
    """The methods' own options; where there are several methods, the help says which have an option."""
    each_has = {method.name: options_of(method.config) for method in methods}
    found = options_of(*(method.config for method in methods))
    if len(methods) == 1:
        return found
    for name, option in found.items():
        having = {method: its[name].default for method, its in each_has.items() if name in its}
        by_default = {value: [method for method in having if having[method] == value] for value in having.values()}
        default = option.default
        if len(by_default) > 1:
            default = ", ".join(f"{value} for {', '.join(those)}" for value, those in by_default.items())
        found[name] = replace(option, help=f"[{', '.join(having)}] {help_text(option.hint, default)}")
    return found


def whose(methods: Sequence[Entry[Any]], name: str) -> str | None:
    """Why these methods do not have an option, if others have it."""
    having = [each.name for each in METHODS.values() if name in options_of(each.config)]
    if not having:
        return None
    lacking = " or ".join(method.name for method in methods)
    other = having[0] if len(having) == 1 else "one of those"
    why = f"is for {', '.join(having)}, and not for {lacking}"
    if name in options_of(Caching) and not any(method.build(method.config()).uses_public for method in methods):
        sends = "sends" if len(methods) == 1 else "send"
        why = f"is for methods that send soft-labels ({', '.join(having)}), not for {lacking}, which {sends} none"
    return f"{why}; leave it out, or choose {other}"


def configs(methods: Sequence[Entry[Any]], given: Mapping[str, Any]) -> tuple[Config, list[object]]:
    """The shared config, and each method's own, from the options that were given and the preset that they name."""
    config, own = apply(given.get("preset"), given, methods)
    for method, options in zip(methods, own, strict=True):
        check_method(method.build(options), config.asked)
    return config, own


@contextmanager
def preset_explained(methods: Sequence[Entry[Any]], given: Mapping[str, Any]) -> Iterator[None]:
    """Where an error is about a value that the preset set, say so, and how to change it."""
    try:
        yield
    except ConfigError as error:
        name = error.option
        if name in given or given.get("preset") not in PRESETS:
            raise
        preset = PRESETS[given["preset"]]
        own = [preset.methods.get(method.name, {}) for method in methods]
        values = [options[name] for options in (preset.shared, *own) if name in options]
        if not values:
            raise
        others = [choice for choice in choices_of(run_options(methods)[name].hint) if choice != values[0]]
        remedy = f"{flag(name)} {others[0] if len(others) == 1 else 'with another value'}"
        raise ConfigError(f"{error}; preset {preset.name} sets {name} to {values[0]}: add {remedy}") from None


@contextmanager
def new_directory(given: Path | None, name: str) -> Iterator[Path]:
    """The directory asked for, or a new one named for the time, which is removed if nothing is written to it."""
    if given is not None:
        yield given
        return
    path = _made(name)
    try:
        yield path
    finally:
        with suppress(OSError):  # it holds a run
            path.rmdir()
            path.parent.rmdir()


def _made(name: str) -> Path:
    """A new directory; many runs may begin within a second."""
    stem = f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    for each in chain([stem], (f"{stem}-{number}" for number in count(2))):
        path = Path("runs") / each
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            if path.parent.is_dir():
                continue
            raise ConfigError(
                "runs must be a directory, and it is a file; rename it, or name another with --out"
            ) from None
        except OSError as error:
            raise ConfigError(f"{path} cannot be made ({error.strerror}); name another directory with --out") from None
        return path
    raise AssertionError("there is always another number")
