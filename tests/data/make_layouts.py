"""Small datasets in the layouts of the real ones, drawn from a fixed generator."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image


def write_cifar10(data_dir: Path, per_batch: int = 20, batches: Sequence[int] = (1, 2), protocol: int = 3) -> Path:
    """cifar-10-batches-py with some of its training batches and the test batch."""
    folder = data_dir / "cifar-10-batches-py"
    folder.mkdir(parents=True, exist_ok=True)
    for file in [*(f"data_batch_{k}" for k in batches), "test_batch"]:
        write_batch(folder / file, per_batch, classes=10, label_key=b"labels", protocol=protocol)
    return folder


def write_cifar100(data_dir: Path, train: int = 200, test: int = 100, protocol: int = 3) -> Path:
    """cifar-100-python with smaller splits."""
    folder = data_dir / "cifar-100-python"
    folder.mkdir(parents=True, exist_ok=True)
    write_batch(folder / "train", train, classes=100, label_key=b"fine_labels", protocol=protocol)
    write_batch(folder / "test", test, classes=100, label_key=b"fine_labels", protocol=protocol)
    return folder


def write_tiny_imagenet(data_dir: Path, classes: int = 4, train: int = 5, test: int = 8, wnids: bool = True) -> Path:
    """tiny-imagenet-200 with `train` images of each class; wnids.txt is left out unless asked for."""
    folder = data_dir / "tiny-imagenet-200"
    names = [f"n{10_000_000 + 7 * label}" for label in range(classes)]
    for label, wnid in enumerate(names):
        for i in range(train):
            write_jpeg(folder / "train" / wnid / "images" / f"{wnid}_{i}.JPEG", (64, 64), shade(label, classes))
    rows = []
    for i in range(test):
        write_jpeg(folder / "val" / "images" / f"val_{i}.JPEG", (64, 64), shade(i % classes, classes))
        rows.append(f"val_{i}.JPEG\t{names[i % classes]}\t0\t0\t63\t63\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(rows))
    if wnids:
        (folder / "wnids.txt").write_text("".join(f"{wnid}\n" for wnid in reversed(names)))
    return folder


def write_caltech256(data_dir: Path, classes: int = 3, images: int = 4) -> Path:
    """256_ObjectCategories with images of different sizes, one of them grey, and the clutter class."""
    folder = data_dir / "256_ObjectCategories"
    numbers = [*range(1, classes + 1), 257]
    for label, number in enumerate(numbers):
        name = "257.clutter" if number == 257 else f"{number:03d}.thing-{number}"
        for i in range(images):
            size = (90 + 10 * i, 70 + 5 * label)
            mode = "L" if label == i == 0 else "RGB"
            write_jpeg(folder / name / f"{number:03d}_{i + 1:04d}.jpg", size, shade(label, len(numbers)), mode)
    return folder


def write_batch(path: Path, images: int, classes: int, label_key: bytes, protocol: int = 3) -> None:
    """One CIFAR batch whose labels go round the classes; protocol 0 stands for a file written by Python 2."""
    rng = np.random.default_rng([images, classes, len(path.name)])
    data = rng.integers(0, 256, (images, 3072), np.uint8)
    labels = [i % classes for i in range(images)]
    if protocol == 0:
        path.write_bytes(python2_pickle(data, labels, label_key))
    else:
        path.write_bytes(pickle.dumps({label_key: labels, b"data": data}, protocol=protocol))


def python2_pickle(data: npt.NDArray[np.uint8], labels: Sequence[int], label_key: bytes) -> bytes:
    """The bytes that Python 2 with its numpy wrote: protocol 2, byte strings, and numpy.core in the names."""

    def string(text: bytes) -> bytes:
        return b"U" + bytes([len(text)]) + text if len(text) < 256 else b"T" + struct.pack("<I", len(text)) + text

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    array = b"".join(
        [
            b"cnumpy.core.multiarray\n_reconstruct\n",
            b"(cnumpy\nndarray\n" + number(0) + b"\x85" + string(b"b") + b"tR",
            b"(" + number(1) + number(len(data)) + number(3072) + b"\x86",
            b"cnumpy\ndtype\n(" + string(b"u1") + number(0) + number(1) + b"tR",
            b"(" + number(3) + string(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb",
            b"\x89" + string(data.tobytes()) + b"tb",
        ]
    )
    label_list = b"](" + b"".join(map(number, labels)) + b"e"
    return b"\x80\x02}(" + string(b"data") + array + string(label_key) + label_list + b"u."


def write_jpeg(path: Path, size: tuple[int, int], grey: int, mode: str = "RGB") -> None:
    """A JPEG of one even shade, which survives compression and resizing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    colour = grey if mode == "L" else (grey, grey, grey)
    Image.new(mode, size, colour).save(path, "JPEG", quality=95)


def shade(label: int, classes: int) -> int:
    """The grey value that stands for a class."""
    return 20 + 200 * label // classes
