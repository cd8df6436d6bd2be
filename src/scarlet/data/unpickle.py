"""Reading pickled batches of images without trusting them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import BinaryIO

import numpy as np
import numpy.typing as npt


class Refused(Exception):
    """A pickle holds, or asks for, what a batch of images does not."""


def read_pickle(file: BinaryIO) -> object:
    """The content of a pickle, where a dictionary at the top may hold arrays of bytes.

    Nothing that a pickle names is ever imported. Damaged bytes can raise nearly any exception.
    """
    content = RestrictedUnpickler(file).load()
    if not isinstance(content, dict):
        return content
    return {key: value.array if isinstance(value, ByteArray) else value for key, value in content.items()}


class ByteArray:
    """Stands in for numpy.ndarray: the real one lets a pickle choose its type, flags and all."""

    array: npt.NDArray[np.uint8] = np.empty(0, np.uint8)

    def __setstate__(self, state: tuple[int, tuple[int, ...], ByteType, bool, bytes]) -> None:
        _, shape, _, column_major, buffer = state
        self.array = np.frombuffer(buffer, np.uint8).reshape(shape, order="F" if column_major else "C").copy()


class ByteType:
    """Stands in for numpy.dtype, of which the files need bytes only."""

    def __init__(self, code: bytes | str, align: bool = False, copy: bool = False) -> None:
        if code not in ("u1", b"u1"):
            raise Refused(f"it holds an array of {code!r}, not of bytes")

    def __setstate__(self, state: object) -> None:
        """Byte order and the like, which bytes do not have."""


def _reconstruct(kind: object, shape: tuple[int, ...], code: bytes) -> ByteArray:
    """How protocols up to 4 begin an array: an empty one, whose content is set next."""
    return ByteArray()


def _from_buffer(buffer: bytes, kind: ByteType, shape: tuple[int, ...], order: str) -> ByteArray:
    """How protocol 5 writes an array."""
    result = ByteArray()
    result.__setstate__((1, shape, kind, order == "F", buffer))
    return result


def _encode(text: str, encoding: str) -> bytes:
    """How protocol 2 writes bytes under Python 3."""
    if encoding != "latin1":
        raise Refused(f"it asks for the codec {encoding}")
    return text.encode("latin1")


# numpy 2 renamed numpy.core; the distributed files were written long before.
ADMITTED: dict[tuple[str, str], Callable[..., object]] = {
    ("numpy", "ndarray"): ByteArray,
    ("numpy", "dtype"): ByteType,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
    ("_codecs", "encode"): _encode,
}


class RestrictedUnpickler(pickle.Unpickler):
    """Knows the few names that a pickled array of bytes needs, and refuses every other."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file, encoding="bytes")  # the distributed files were written by Python 2

    def find_class(self, module: str, name: str) -> Callable[..., object]:
        try:
            return ADMITTED[module, name]
        except KeyError:
            raise Refused(f"it asks for {module}.{name}, which is not part of an array") from None
