"""Models on disk: weights as safetensors, each with a card that says what the model is and how to use it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scarlet.errors import ConfigError, DataError

if TYPE_CHECKING:
    from torch import nn

    from scarlet.experiment.federation import Federation
    from scarlet.experiment.result import Result, Trained
    from scarlet.models.registry import ModelFactory

_FORMAT = 1
_BYTES_SCALED, _UNCHANGED = "bytes are scaled to [-1, 1]", "none"


def save_models(result: Result, federation: Federation, accuracies: Mapping[int, float], directory: Path) -> None:
    """Write the server's model and, if the config asks for it, each client's."""
    if result.server is not None:
        own = {"role": "server", "accuracy": result.summary["server_accuracy"]}
        _save(result.server, directory / "server", _card(result, federation, result.server, own))
    if not federation.config.save_clients:
        return
    folder = directory / "clients"
    folder.mkdir(exist_ok=True)
    for number, trained in result.clients.items():
        own = {
            "role": "client",
            "client": number,
            "name": result.names[number],
            "samples": len(federation.data.train[number]),
            "accuracy": accuracies.get(number),
        }
        _save(trained, folder / str(number), _card(result, federation, trained, own))


def _card(result: Result, federation: Federation, trained: Trained, own: Mapping[str, object]) -> dict[str, object]:
    data, summary = federation.data, result.summary
    inputs = data.train[0].of.inputs
    return {
        "format": _FORMAT,
        **own,
        "architecture": trained.name,
        "classes": data.classes,
        "class_names": data.class_names,
        "input": {"shape": list(inputs.shape[1:]), "dtype": str(inputs.dtype)},
        "preprocessing": _preprocessing(federation, own.get("client"), str(inputs.dtype)),
        "bytes": {name: summary[name] for name in ("uplink_bytes", "downlink_bytes", "cumulative_bytes")},
        "config": dict(result.config),
        "public_fingerprint": summary["public_fingerprint"],
        "versions": summary["versions"],
    }


def _preprocessing(federation: Federation, client: object, dtype: str) -> str:
    from scarlet.training.train import scaled

    prepared = federation.preprocessing
    if isinstance(client, int):
        prepared = federation.kinds[int(federation.kind_of[client])][1]
    if prepared.scale is not scaled:
        return f"the function {getattr(prepared.scale, '__name__', type(prepared.scale).__name__)}, given from Python"
    return _BYTES_SCALED if dtype == "uint8" else _UNCHANGED


def _save(trained: Trained, path: Path, card: Mapping[str, object]) -> None:
    from safetensors.torch import save

    content = save({name: value.cpu().contiguous() for name, value in trained.weights.items()})
    path.with_suffix(".safetensors").write_bytes(content)
    path.with_suffix(".json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class SavedModel:
    """A model that was read from a run's directory, with its card."""

    model: nn.Module
    card: Mapping[str, Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input."""
        return tuple(self.card["input"]["shape"])

    def name_of(self, label: int) -> str:
        """A class as people call it."""
        names = self.card.get("class_names")
        return names[label] if names else str(label)


def load_model(run: Path, client: str | None = None, factory: ModelFactory | None = None) -> SavedModel:
    """The server's model in a run's directory, or a client's, by its number or its name.

    `factory` makes a model of the user's own, whose code is not part of a run.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from scarlet.models.registry import MODELS, model_factory

    path = run / "server" if client is None else _client(run, client)
    card = _read_card(path.with_suffix(".json"))
    name = card["architecture"]
    if factory is None and name not in MODELS:
        raise ConfigError(
            f"model {name} of {run} was made by code of your own; give it as --factory MODULE:FUNCTION, "
            "from where Python can import it"
        )
    if card["preprocessing"] not in (_BYTES_SCALED, _UNCHANGED):
        raise ConfigError(
            f"inputs of the model in {run} go through {card['preprocessing']}; predict from Python: "
            "result.server_model takes what that function gives"
        )
    model = (factory or model_factory(name, card["classes"], tuple(card["input"]["shape"])))()
    try:
        model.load_state_dict(load_file(path.with_suffix(".safetensors")))
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{path.with_suffix('.safetensors')} is not the weights of {name} ({reason})") from None
    return SavedModel(model.eval(), card)


def _client(run: Path, client: str) -> Path:
    """Where a client's model is, without the ending."""
    cards = sorted((run / "clients").glob("*.json")) if (run / "clients").is_dir() else []
    if not cards:
        raise ConfigError(f"client {client!r} has no model in {run}; run with --save-clients to keep those of clients")
    for path in cards:
        if client in (path.stem, _read_card(path).get("name")):
            return path.with_suffix("")
    raise ConfigError(f"client {client!r} is not among the {len(cards)} clients of {run}; use its number or its name")


def _read_card(path: Path) -> dict[str, Any]:
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot read {path} ({error.strerror}); give the directory of a finished run") from None
    except ValueError:
        raise DataError(f"{path} is not JSON; give the directory of a finished run") from None
    if not isinstance(card, dict) or card.get("format") != _FORMAT:
        raise DataError(f"{path} is not a model card that this version reads; use the version that wrote it")
    return card
