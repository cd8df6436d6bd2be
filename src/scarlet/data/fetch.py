"""Downloads a dataset from its official address, and lists how much of each is there."""

from __future__ import annotations

import hashlib
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TypeAlias

from scarlet.data.datasets import DATASETS, Info
from scarlet.errors import DataError, unknown

Progress: TypeAlias = Callable[[int, int | None], None]  # bytes so far, bytes in all where known

TIMEOUT = 10.0  # seconds without an answer or without a byte
CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class Archive:
    """A file to download, and the checksum that tells it is the genuine one."""

    address: str
    md5: str


ARCHIVES = {
    "cifar10": Archive("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),
    "cifar100": Archive("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),
    "tiny-imagenet": Archive("http://cs231n.stanford.edu/tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de"),
    "caltech256": Archive(
        "https://data.caltech.edu/records/nyy15-4j048/files/256_ObjectCategories.tar",
        "67b4f42ca05d46448c6bb8ecd2220f6d",
    ),
}


@dataclass(frozen=True, slots=True)
class Present:
    """How much of a dataset is there; all zero and no error means that it is not there at all."""

    name: str
    title: str
    where: Path
    train: int
    test: int
    classes: int
    complete: bool
    error: str | None = None


def present(data_dir: Path) -> list[Present]:
    """One row for each known dataset; a damaged one has its error in its row."""
    return [_row(name, entry, data_dir) for name, entry in DATASETS.items()]


def get(name: str, data_dir: Path, progress: Progress | None = None) -> Path:
    """Download a dataset unless it is there, check it, unpack it, and return its file or folder.

    It appears under its name only once it is whole, and what is there already is never overwritten.
    """
    if name not in DATASETS:
        raise unknown("dataset", name, DATASETS)
    entry = DATASETS[name]
    where = entry.source.where(data_dir)
    if where.exists():
        if not (row := _row(name, entry, data_dir)).complete:
            state = row.error or "not the whole dataset"
            raise DataError(f"cannot download {name} (there is {where}, but {state}); move it away and try again")
        return where
    try:
        _install(ARCHIVES[name], where, progress)
    except (OSError, EOFError, ValueError, tarfile.TarError, zipfile.BadZipFile, zlib.error) as error:
        text = " ".join(str(error).removeprefix("<urlopen error ").removesuffix(">").split())
        reason = text or type(error).__name__
        raise DataError(f"cannot download {name} ({reason}); put {where.name} under {data_dir}") from error
    return where


def _row(name: str, entry: Info, data_dir: Path) -> Present:
    where = data_dir
    try:
        where = entry.source.where(data_dir)
        if not where.exists():
            return Present(name, entry.title, where, 0, 0, 0, complete=False)
        train, test, classes = entry.source.counts(data_dir)
    except DataError as error:
        return Present(name, entry.title, where, 0, 0, 0, complete=False, error=str(error))
    return Present(name, entry.title, where, train, test, classes, complete=(train, test) == entry.size)


def _install(archive: Archive, where: Path, progress: Progress | None) -> None:
    where.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target, so that the last step is a rename within one file system; gone whatever happens.
    with tempfile.TemporaryDirectory(prefix=".get-", dir=where.parent) as side:
        file = Path(side) / PurePosixPath(archive.address).name
        _download(archive, file, progress)
        unpacked = Path(side) / "unpacked"
        unpacked.mkdir()
        _unpack(file, unpacked)
        if not (unpacked / where.name).is_dir():
            raise ValueError(f"{file.name} does not hold {where.name}")
        (unpacked / where.name).rename(where)


def _download(archive: Archive, file: Path, progress: Progress | None) -> None:
    """Write the archive to `file`; ValueError if it is cut short or its checksum is wrong."""
    # Imported here, because they cost as much as the rest of the package.
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import urlopen

    try:
        with urlopen(archive.address, timeout=TIMEOUT) as reply, file.open("wb") as out:
            length = reply.headers.get("Content-Length")
            total = int(length) if length else None
            done, digest = _copy(reply, out, total, progress)
    except HTTPError as error:
        error.close()
        raise
    except HTTPException as error:
        raise ValueError(f"the server's answer is not HTTP: {type(error).__name__}") from error
    if total is not None and done < total:
        raise ValueError(f"the connection closed after {done} of {total} bytes")
    if digest != archive.md5:
        raise ValueError(f"{file.name} has the wrong checksum {digest} and was deleted")


def _copy(source: IO[bytes], out: IO[bytes], total: int | None, progress: Progress | None) -> tuple[int, str]:
    """The number of bytes copied, and their checksum."""
    digest, done = hashlib.md5(usedforsecurity=False), 0
    while chunk := source.read(CHUNK):
        out.write(chunk)
        digest.update(chunk)
        done += len(chunk)
        if progress:
            progress(done, total)
    return done, digest.hexdigest()


def _unpack(file: Path, folder: Path) -> None:
    """Unpack a tar or zip file, refusing members that would land outside `folder`."""
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as bundle:
            for member in bundle.namelist():
                path = PurePosixPath(member.replace("\\", "/"))
                if path.is_absolute() or ".." in path.parts:
                    raise ValueError(f"{file.name} holds the unsafe path {member!r}")
            bundle.extractall(folder)
    else:
        with tarfile.open(file) as tar:
            tar.extractall(folder, filter="data")
