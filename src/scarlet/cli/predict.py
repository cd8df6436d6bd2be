"""`scarlet predict RUN FILE...`: class and probability of inputs, by a model that a run has saved."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from scarlet.cli.model_options import ModelOptions, load
from scarlet.cli.options import AsJson, Command, options_of
from scarlet.errors import ConfigError

if TYPE_CHECKING:
    from scarlet.arrays import Values
    from scarlet.data.input_files import Place
    from scarlet.experiment.saved_model import SavedModel


def main(argv: Sequence[str]) -> int:
    """Print the predictions."""
    about = (
        "Class and probability of each FILE, by a model that the run has saved. FILE is an image, or an npz file with "
        "the inputs as array x."
    )
    words, given = Command("scarlet predict RUN FILE...", about, options_of(ModelOptions, AsJson)).parse(argv)
    if len(words) < 2:
        got = f"got {words[0]!r} only" if words else "got neither"
        raise ConfigError(f"scarlet predict takes the directory of a run, then one FILE or more, then options; {got}")
    run, *files = words
    saved = load(run, given)

    from scarlet.data.input_files import read_inputs

    places, inputs = read_inputs(files, saved.card.shape, saved.card.dtype)
    probabilities = saved.predict(inputs)
    if given.get("json"):
        print(json.dumps(_objects(saved, places, probabilities), indent=2))
    else:
        _print(saved, places, probabilities)
    return 0


def _objects(saved: SavedModel, places: Sequence[Place], probabilities: Values) -> list[dict[str, object]]:
    return [
        {
            "file": place.file,
            "index": place.row,
            "class": (label := int(row.argmax())),
            "name": saved.name_of(label),
            "probability": float(row[label]),
            "probabilities": row.tolist(),
        }
        for place, row in zip(places, probabilities, strict=True)
    ]


def _print(saved: SavedModel, places: Sequence[Place], probabilities: Values) -> None:
    from rich.text import Text

    from scarlet.cli.tables import console, table

    drawn = table(None, ("file", "class", "probability"), left=("class",))
    drawn.columns[0].no_wrap, drawn.columns[0].overflow = False, "fold"  # a path that is cut names no file
    for place, row in zip(places, probabilities, strict=True):
        label = int(row.argmax())
        file = place.file if place.row is None else f"{place.file}[{place.row}]"
        drawn.add_row(Text(file), Text(saved.name_of(label) or str(label)), f"{row[label]:.3f}")
    console().print(drawn)
