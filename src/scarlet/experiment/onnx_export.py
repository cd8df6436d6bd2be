"""A saved model in the ONNX format: from raw inputs to soft-labels, in one file."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.util import find_spec
from io import StringIO

import torch
from torch import Tensor, nn

from scarlet.errors import ConfigError
from scarlet.experiment.saved_model import SavedModel, short
from scarlet.training.train import scaled

CARD_KEY = "scarlet.card"  # of the model's metadata


def check_installed() -> None:
    """Raise ConfigError unless torch can export to ONNX here."""
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        raise ConfigError(f"--onnx needs {' and '.join(missing)}, not installed; run pip install 'scarlet-fl[onnx]'")


def as_onnx(saved: SavedModel) -> bytes:
    """The model as an ONNX file: input x, [n, ...] of the type that the data has; output probabilities, f32[n, N].

    Scaling and softmax are part of it, and its metadata has the card.
    """
    card = saved.card
    example = torch.zeros((2, *card.shape), dtype=getattr(torch, card.dtype))  # torch.export fixes sizes of 0 and 1
    try:
        with _quiet():
            program = torch.onnx.export(
                _Probabilities(saved.model).eval(),
                (example,),
                input_names=["x"],
                output_names=["probabilities"],
                dynamic_shapes=({0: torch.export.Dim("n")},),
                dynamo=True,
                verbose=False,
            )
    except Exception as error:  # whatever a model of the user's may raise under torch.export
        reason = short(error.__cause__ or error)
        wrong = f"model {card.architecture} cannot be exported to ONNX ({reason})"
        raise ConfigError(f"{wrong}; use scarlet predict, or change the model") from error
    assert program is not None, "dynamo=True gives a program"
    model = program.model_proto
    for each in (*model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output):
        del each.metadata_props[:]  # traces through source files, with their paths on this machine
    model.metadata_props.add(key=CARD_KEY, value=json.dumps(card.content))
    content: bytes = model.SerializeToString()
    return content


class _Probabilities(nn.Module):
    """A model with its preprocessing and softmax."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.model(scaled(x))
        return scores.softmax(dim=1)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's remarks, and the graphs that it prints when it fails, from the terminal."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
