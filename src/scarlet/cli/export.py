"""`scarlet export RUN --onnx FILE`: a model that a run has saved, in the ONNX format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typing_extensions import Doc

from scarlet.cli.model_options import ModelOptions, load
from scarlet.cli.options import Command, options_of
from scarlet.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Where to write."""

    onnx: Annotated[Path | None, Doc("the ONNX file to write, which must be new (default: none; it must be given)")] = (
        None
    )


def main(argv: Sequence[str]) -> int:
    """Write the file."""
    about = (
        "Write a model that the run has saved as an ONNX file: input x as the data has it, output probabilities, and "
        "the model's card in the metadata under scarlet.card."
    )
    usage = "scarlet export RUN --onnx FILE"
    words, given = Command(usage, about, options_of(ExportOptions, ModelOptions)).parse(argv)
    if len(words) != 1:
        raise ConfigError(f"scarlet export takes the one directory of a run before the options, got {len(words)}")
    path: Path | None = given.get("onnx")
    if path is None:
        raise ConfigError("--onnx must be given, the file to write, such as --onnx model.onnx")
    if path.exists():
        raise ConfigError(f"--onnx must be a new file, and {path} is there already; choose another name")
    if not path.parent.is_dir():
        raise ConfigError(f"--onnx must be in a directory that exists, and {path.parent} does not; make it first")

    from scarlet.experiment.onnx_export import as_onnx, check_installed

    check_installed()
    content = as_onnx(load(words[0], given))
    with path.open("xb") as file:
        file.write(content)
    print(f"onnx: {path}")
    return 0
