"""The options of commands that use a saved model, and the model that they name."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typing_extensions import Doc

from scarlet.errors import ConfigError

if TYPE_CHECKING:
    from scarlet.experiment.saved_model import SavedModel
    from scarlet.models.registry import ModelFactory


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Which model of a run."""

    client: Annotated[str | None, Doc("use the model of this client, a number or a name (default: the server's)")] = (
        None
    )
    factory: Annotated[
        str | None,
        Doc("MODULE:FUNCTION that makes a model of your own, without arguments (default: the run used one of ours)"),
    ] = None


def load(run: str, given: Mapping[str, Any]) -> SavedModel:
    """The model of a run that the options name."""
    text = given.get("factory")
    factory = None if text is None else imported(text)

    from scarlet.experiment.saved_model import load_model

    return load_model(Path(run), given.get("client"), factory)


def imported(text: str) -> ModelFactory:
    """The function that MODULE:FUNCTION names; the module may be in the current directory."""
    module, _, name = text.partition(":")
    if not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise ConfigError(f"--factory must be MODULE:FUNCTION, such as models:make, got {text!r}")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(import_module(module), name, None)
    except (Exception, SystemExit) as error:  # whatever the user's module may raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(f"--factory {text} cannot be imported from {here} ({reason}); check the module") from error
    if not callable(found):
        what = "no such name" if found is None else f"{name} of type {type(found).__name__}"
        raise ConfigError(f"--factory {text} must name a function, and module {module} has {what}; check the name")
    factory: ModelFactory = found
    return factory
