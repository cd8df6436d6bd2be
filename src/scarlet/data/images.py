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
_ORIENTATION, _LYING = 0x0112, (5, 6, 7, 8)  # EXIF's tag, and its values for images whose sides are swapped
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
        sides = image.height, image.width
        found[i] = (1 if grey else 3, *(sides[::-1] if image.getexif().get(_ORIENTATION, 1) in _LYING else sides))

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
        except DataError as error:
            raise DataError(f"{paths[i]} {error}") from None
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            wrong = f"cannot be read as an image ({type(error).__name__})"
            raise DataError(f"{paths[i]} {wrong}; replace or delete the file") from error

    with ThreadPoolExecutor() as pool:
        for _ in pool.map(open_one, range(len(paths))):
            pass


def _planes(image: Image.Image, shape: Shape) -> Pixels:
    """One Pillow image as u8[C, H, W]."""
    from PIL import Image, ImageOps

    channels, height, width = shape
    mode = MODES[channels]
    ImageOps.exif_transpose(image, in_place=True)  # as a camera was held
    if image.mode == "F":
        raise DataError(
            "has pixels that are no whole numbers, and their range is not known; save 8-bit images, or an npz"
        )
    if image.mode.startswith("I"):
        image = Image.fromarray(_upper_bits(np.asarray(image)))
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        above = image.convert("RGBA")  # what is transparent is white, as on a page
        image = Image.alpha_composite(Image.new("RGBA", above.size, "white"), above)
    if image.mode != mode:
        image = image.convert(mode)
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.asarray(image, np.uint8)
    return pixels[np.newaxis] if channels == 1 else pixels.transpose(2, 0, 1)


def _upper_bits(pixels: npt.NDArray[np.integer]) -> npt.NDArray[np.uint8]:
    """The upper 8 of 16 bits; Pillow would clip at 255, so that nearly all greys are white.

    An image of 8 or 12 bits in a file of 16 would be black, so one that uses less than a sixteenth of the range is
    refused, but for one that is black.
    """
    largest = int(pixels.max(initial=0))
    if 0 < largest < 4096:
        raise DataError(
            f"has 16-bit pixels of which the largest is {largest}, so that their range is not known; save 8-bit "
            "images, or an npz"
        )
    return (pixels >> 8).clip(0, 255).astype(np.uint8)
