"""Pixels from files to arrays, and from one shape to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from scarlet.arrays import Inputs
from scarlet.data.source import Shape
from scarlet.errors import DataError

if TYPE_CHECKING:
    from PIL import Image

Pixels: TypeAlias = npt.NDArray[np.uint8]  # [n, C, H, W]

MODES = {1: "L", 3: "RGB"}  # channels -> Pillow's name for them
_GREY = {"1", "L", "LA", "La", "I", "F"}  # modes without colour; those of 16 bits are I;16, I;16B and so on


def is_image(shape: Shape) -> bool:
    """Whether inputs of a shape can be images, [C, H, W] with 1 or 3 channels."""
    return len(shape) == 3 and shape[0] in MODES and min(shape) > 0


def resized(images: Inputs, shape: Shape) -> Inputs:
    """The images at `shape`: grey or RGB first, then bilinear with antialiasing; itself if it fits."""
    if images.shape[1:] == shape:
        return images
    from PIL import Image

    out = np.empty((len(images), *shape), np.uint8)
    for i, planes in enumerate(images):
        pixels = planes[0] if len(planes) == 1 else np.ascontiguousarray(planes.transpose(1, 2, 0))
        out[i] = _planes(Image.fromarray(pixels), shape)
    return out


def decoded(paths: Sequence[Path], shape: Shape) -> Pixels:
    """The image files at `shape`, in the order of `paths`."""
    out = np.empty((len(paths), *shape), np.uint8)

    def fill(i: int, image: Image.Image) -> None:
        out[i] = _planes(image, shape)

    _open_each(paths, fill)
    return out


def own_shapes(paths: Sequence[Path]) -> list[Shape]:
    """The shape [C, H, W] that each image file has of its own, from its header."""
    found: list[Shape] = [()] * len(paths)

    def measure(i: int, image: Image.Image) -> None:
        grey = image.mode in _GREY or image.mode.startswith("I;")
        found[i] = (1 if grey else 3, image.height, image.width)

    _open_each(paths, measure)
    return found


def _open_each(paths: Sequence[Path], use: Callable[[int, Image.Image], None]) -> None:
    """Call `use` with the number of each file and its image."""
    # Pillow releases the interpreter lock while it decodes, so threads use all cores.
    from concurrent.futures import ThreadPoolExecutor

    from PIL import Image

    def open_one(i: int) -> None:
        try:
            with Image.open(paths[i]) as image:
                use(i, image)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            wrong = f"cannot be read as an image ({type(error).__name__})"
            raise DataError(f"{paths[i]} {wrong}; replace or delete the file") from error

    with ThreadPoolExecutor() as pool:
        for _ in pool.map(open_one, range(len(paths))):
            pass


def _planes(image: Image.Image, shape: Shape) -> Pixels:
    """One Pillow image as u8[C, H, W]."""
    from PIL import Image

    channels, height, width = shape
    mode = MODES[channels]
    if image.mode.startswith("I"):
        # Pillow would clip 16-bit greys at 255, so that nearly all of them are white; the upper 8 bits stay.
        image = Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8))
    if image.mode != mode:
        image = image.convert(mode)
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.asarray(image, np.uint8)
    return pixels[np.newaxis] if channels == 1 else pixels.transpose(2, 0, 1)
