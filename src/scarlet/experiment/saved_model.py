"""Models that were saved by a run: found, loaded and used."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from scarlet.errors import ConfigError, DataError, WrongTypeError
from scarlet.experiment.cards import Card, read_card
from scarlet.models.registry import MODELS, ModelFactory, model_factory
from scarlet.training.train import predict

if TYPE_CHECKING:
    from scarlet.arrays import Inputs, Values

_REMEDY = "copy it again from the run, or give the --factory that the run was made with"


@dataclass(frozen=True, slots=True)
class SavedModel:
    """A model that was read from a run's directory, with its card."""

    model: nn.Module
    card: Card

    def predict(self, inputs: Inputs) -> Values:
        """The soft-labels f32[n, N] of inputs [n, ...] as the card describes them, in eval mode."""
        card = self.card
        try:
            found = predict(self.model, torch.from_numpy(np.ascontiguousarray(inputs)), np.arange(len(inputs)))
        except Exception as error:  # whatever a model of the user's may raise
            raise ConfigError(f"model {card.architecture} cannot take these inputs: {short(error)}") from error
        if found.shape != (len(inputs), card.classes):
            raise ConfigError(
                f"model {card.architecture} must give one score for each of the {card.classes} classes, "
                f"got {list(found.shape[1:])} for an input; give the --factory that the run was made with"
            )
        if not np.isfinite(found).all():
            raise DataError(f"{card.weights} gives NaN: its training diverged; run again with a smaller --lr")
        return found

    def name_of(self, label: int) -> str | None:
        """A class as people call it; None where it has a number only."""
        return self.card.class_names[label] if self.card.class_names else None


def load_model(run: Path, client: str | None = None, factory: ModelFactory | None = None) -> SavedModel:
    """The server's model in a run's directory, or a client's, by its name or its number.

    `factory` makes a model of the user's own, whose code is not part of a run.
    """
    card = server_card(run) if client is None else client_card(run, client)
    if factory is None and card.architecture not in MODELS:
        raise ConfigError(
            f"model {card.architecture} of {card.path} was made by code of your own; "
            "give it as --factory MODULE:FUNCTION"
        )
    if not card.preprocessing_is_ours:
        raise ConfigError(
            f"inputs of the model in {card.path} go through {card.preprocessing}; "
            "use result.server_model or result.client_model from Python"
        )
    model = _made(factory or model_factory(card.architecture, card.classes, card.shape))
    _load_weights(model, card)
    return SavedModel(model.eval(), card)


def _made(factory: ModelFactory) -> nn.Module:
    name = getattr(factory, "__name__", type(factory).__name__)
    try:
        model = factory()
    except Exception as error:  # whatever a factory of the user's may raise
        raise ConfigError(
            f"factory {name} cannot make a model: {short(error)}; it is called without arguments"
        ) from error
    if not isinstance(model, nn.Module):
        raise WrongTypeError(f"factory {name} must return a torch.nn.Module, got {type(model).__name__}")
    return model


def _load_weights(model: nn.Module, card: Card) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        weights = load(card.weights.read_bytes())
    except OSError as error:
        raise DataError(f"cannot read {card.weights} ({error.strerror}); copy it again from the run") from None
    except SafetensorError as error:
        raise DataError(f"{card.weights} is damaged ({short(error)}); copy it again from the run") from None
    own = {name: list(value.shape) for name, value in model.state_dict().items()}
    saved = {name: list(value.shape) for name, value in weights.items()}
    if own != saved:
        name = next(name for name in (*own, *saved) if own.get(name) != saved.get(name))
        wrong = f"{name} has shape {saved.get(name, 'none')}, and in the model {own.get(name, 'none')}"
        raise DataError(f"{card.weights} is not the weights of {card.architecture}: {wrong}; {_REMEDY}")
    model.load_state_dict(weights)


def short(error: BaseException) -> str:
    """An error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def server_card(run: Path) -> Card:
    """The card of the server's model in a run's directory."""
    _check_directory(run)
    path = run / "server.json"
    if path.exists():
        return read_card(path)
    if path.with_suffix(".safetensors").exists():
        raise DataError(f"{run} has server.safetensors without its card, server.json; copy both, or run again")
    if cards := _client_cards(run):
        raise ConfigError(f"{run} has no model on the server; use --client, one of the {len(cards)} that were saved")
    if (run / "summary.json").exists():
        raise ConfigError(f"{run} has no model on the server; run again with --save-clients, then use --client")
    if (run / "config.json").exists():
        raise ConfigError(f"{run} is not finished; run 'scarlet resume {run}' first")
    if inner := sorted(path.parent for path in run.glob("*/config.json")):
        raise ConfigError(f"{run} is a comparison; give one of its {len(inner)} runs, such as {inner[0]}")
    raise ConfigError(f"{run} is not the directory of a run: it has no server.json; check the path")


def client_card(run: Path, client: str) -> Card:
    """The card of a client's model, by its name, or else by its number."""
    _check_directory(run)
    cards = _client_cards(run)
    if not cards:
        raise ConfigError(f"client {client!r} has no model in {run}; run with --save-clients to keep those of clients")
    by_number = cards.get(client)
    if by_number is not None and read_card(by_number).name == client:
        return read_card(by_number)
    found = next((path for path in cards.values() if read_card(path).name == client), by_number)
    if found is None:
        raise ConfigError(
            f"client {client!r} is not among the {len(cards)} clients in {run}; use its number or its name"
        )
    return read_card(found)


def _check_directory(run: Path) -> None:
    if not run.is_dir():
        what = "is a file" if run.exists() else "does not exist"
        raise ConfigError(f"RUN must be the directory of a run, and {run} {what}; check the path")


def _client_cards(run: Path) -> dict[str, Path]:
    """The cards of the clients whose models were saved, by number."""
    cards = [path for path in (run / "clients").glob("*.json") if path.stem.isdecimal()]
    return {path.stem: path for path in sorted(cards, key=lambda path: int(path.stem))}
