"""Pixels from files to arrays, and from one shape to another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from scarlet.data.source import Pixels, Shape
from scarlet.errors import DataError

if TYPE_CHECKING:
    from PIL import Image

MODES = {1: "L", 3: "RGB"}  # channels -> Pillow's name for them


def resized(images: Pixels, shape: Shape) -> Pixels:
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
    # Pillow releases the interpreter lock while it decodes, so threads use all cores.
    from concurrent.futures import ThreadPoolExecutor

    from PIL import Image

    out = np.empty((len(paths), *shape), np.uint8)

    def decode(i: int) -> None:
        try:
            with Image.open(paths[i]) as image:
                out[i] = _planes(image, shape)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            wrong = f"cannot be read as an image ({type(error).__name__})"
            raise DataError(f"{paths[i]} {wrong}; replace or delete the file") from error

    with ThreadPoolExecutor() as pool:
        for _ in pool.map(decode, range(len(paths))):
            pass
    return out


def _planes(image: Image.Image, shape: Shape) -> Pixels:
    """One Pillow image as u8[C, H, W]."""
    from PIL import Image

    channels, height, width = shape
    mode = MODES[channels]
    if image.mode != mode:
        image = image.convert(mode)
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.asarray(image, np.uint8)
    return pixels[np.newaxis] if channels == 1 else pixels.transpose(2, 0, 1)
