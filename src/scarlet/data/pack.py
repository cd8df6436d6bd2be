"""A public dataset in one file, which every site of a federation can be given, with a manifest that describes it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from scarlet.arrays import Inputs
from scarlet.data.datasets import DATASETS, load_public, present_source
from scarlet.data.images import is_image, resized
from scarlet.data.samples import fingerprint
from scarlet.data.source import Shape
from scarlet.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a packed file says of itself."""

    name: str
    version: str
    licence: str
    blake2b: str  # of type, shape and content: the `public_fingerprint` of a run that uses all samples
    dtype: str
    shape: Shape  # of one sample
    samples: int
    preprocessing: str


def pack(
    name: str,
    out: Path,
    data_dir: Path,
    *,
    shape: Shape | None = None,
    size: int | None = None,
    licence: str = "not stated",
    version: str = "1",
) -> Manifest:
    """Write a public dataset, as --public names it, to the new file `out`; the same data gives the same bytes.

    Images are resized to `shape`; None leaves them as they are. `size` is the public_size of a run.
    """
    if out.exists():
        raise ConfigError(f"out must be a new file, and {out} exists already; choose another name")
    inputs, preprocessing = _inputs(name, data_dir, shape, size)
    # The name of a file says where it came from; its folder would differ from machine to machine.
    title = name if name in DATASETS else present_source(name, data_dir).where(data_dir).resolve().name
    content, kind = fingerprint(inputs), str(inputs.dtype)
    manifest = Manifest(title, version, licence, content, kind, inputs.shape[1:], len(inputs), preprocessing)
    text = json.dumps(asdict(manifest), indent=2)
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("xb") as file:
        try:
            # numpy gives every array of a zip file the date 1980-01-01, and does not compress, so the bytes are fixed.
            np.savez(file, x=inputs, manifest=np.frombuffer(text.encode(), np.uint8))
        except BaseException:
            out.unlink()  # a part of a file would be in the way of the next attempt
            raise
    return manifest


def _inputs(name: str, data_dir: Path, shape: Shape | None, size: int | None) -> tuple[Inputs, str]:
    """The inputs to pack, and in words what was done to them."""
    own = present_source(name, data_dir).own_shape(data_dir)
    wanted = own if shape is None else shape
    if wanted is None:
        raise ConfigError(f"shape must be given for {name}, whose images differ in size; use such as --shape 3,64,64")
    if wanted != own and not is_image(wanted):
        raise ConfigError(f"shape must be C,H,W with 1 or 3 channels, got {list(wanted)}; use such as --shape 3,64,64")
    stored = wanted if own is None else own
    inputs = load_public(name, data_dir, stored, size)
    if wanted != stored:
        if inputs.dtype != np.uint8 or not is_image(stored):
            found = f"{inputs.dtype} of shape {list(stored)}"
            raise ConfigError(f"shape resizes images of bytes [C, H, W] only, and {name} is {found}; leave it out")
        inputs = resized(inputs, wanted)
    return inputs, _in_words(inputs, size, resized=wanted != own)


def _in_words(inputs: Inputs, size: int | None, *, resized: bool) -> str:
    steps = ["all samples" if size is None else f"a fixed choice of {size} samples"]
    to = " x ".join(map(str, inputs.shape[1:]))
    steps.append(f"made grey or RGB, then resized bilinearly with antialiasing, to {to}" if resized else "not resized")
    steps.append("models scale bytes to [-1, 1]" if inputs.dtype == np.uint8 else "models take the values as they are")
    return "; ".join(steps)
