"""Models on disk: weights as safetensors, each with a card that says what the model is and how to use it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scarlet.errors import DataError
from scarlet.whole_file import write_whole

if TYPE_CHECKING:
    from scarlet.experiment.federation import Federation
    from scarlet.experiment.result import Result, Trained

_FORMAT = 1
_BYTES_SCALED, _UNCHANGED = "bytes are scaled to [-1, 1]", "none"


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 1


def _is_list(of: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(of, value))


# What the use of a model needs: the rule in words, and as a test.
_RULES: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    "name": ("text or null", lambda value: value is None or _is_text(value)),
    "architecture": ("text", _is_text),
    "classes": ("a number from 1", _is_count),
    "class_names": ("a list of names or null", lambda value: value is None or _is_list(_is_text)(value)),
    "input.shape": ("a list of numbers from 1", _is_list(_is_count)),
    "input.dtype": ("uint8, float32 or int64", lambda value: value in ("uint8", "float32", "int64")),
    "preprocessing": ("text", _is_text),
}


@dataclass(frozen=True, slots=True)
class Card:
    """What a saved model is, as far as its use needs it."""

    path: Path  # of the card; the weights are beside it
    name: str | None  # the client's; None: it is the server's model
    architecture: str
    classes: int
    class_names: tuple[str, ...] | None  # None: the classes have numbers only
    shape: tuple[int, ...]  # of one input
    dtype: str  # of the inputs: uint8, float32 or int64
    preprocessing: str
    content: Mapping[str, object]  # all that the card says

    @property
    def weights(self) -> Path:
        """The file of the weights."""
        return self.path.with_suffix(".safetensors")

    @property
    def preprocessing_is_ours(self) -> bool:
        """Whether inputs are prepared by `scarlet.training.train.scaled`, and by no function of the user's."""
        return self.preprocessing in (_BYTES_SCALED, _UNCHANGED)


def save_models(result: Result, federation: Federation, accuracies: Mapping[int, float], directory: Path) -> None:
    """Write the server's model and, if the config asks for it, each client's."""
    if result.server is not None:
        known = [each.server_accuracy for each in result.records if each.server_accuracy is not None]
        measured = known[-1] if known else None
        own: dict[str, object] = {"role": "server", "accuracy": measured}
        _save(result.server, directory / "server", _content(result, federation, result.server, own))
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
        _save(trained, folder / str(number), _content(result, federation, trained, own))


def read_card(path: Path) -> Card:
    """A card, with what its use needs checked."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot read {path} ({error.strerror}); copy it again from the run") from None
    except ValueError:
        raise DataError(f"{path} is not JSON; copy it again from the run") from None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise DataError(f"{path} is not a model card that this version reads; use the version that wrote it")
    inputs = content.get("input")
    inner = inputs if isinstance(inputs, dict) else {}
    found: dict[str, Any] = content | {f"input.{key}": value for key, value in inner.items()}
    for key, (rule, right) in _RULES.items():
        if not right(found.get(key)):
            raise DataError(
                f"{path} is damaged: {key} must be {rule}, got {found.get(key)!r}; copy it again from the run"
            )
    names = found["class_names"]
    if names is not None and len(names) < found["classes"]:
        wrong = f"class_names must be one for each of the {found['classes']} classes, got {len(names)}"
        raise DataError(f"{path} is damaged: {wrong}; copy it again from the run")
    return Card(
        path=path,
        name=found.get("name"),
        architecture=found["architecture"],
        classes=found["classes"],
        class_names=None if names is None else tuple(names),
        shape=tuple(found["input.shape"]),
        dtype=found["input.dtype"],
        preprocessing=found["preprocessing"],
        content=content,
    )


def _content(result: Result, federation: Federation, trained: Trained, own: Mapping[str, object]) -> dict[str, object]:
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


def _save(trained: Trained, path: Path, content: Mapping[str, object]) -> None:
    """Write the weights, then the card, each as a whole."""
    import torch
    from safetensors.torch import save

    # Copies, because safetensors refuses weights that share memory, as those of tied layers do.
    copies = {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, value in trained.weights.items()
    }
    write_whole(path.with_suffix(".safetensors"), save(copies))
    write_whole(path.with_suffix(".json"), json.dumps(content, indent=2) + "\n")
