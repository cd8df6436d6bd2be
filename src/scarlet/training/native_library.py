"""The shared library that native.c is compiled to, on the machine and for its processor."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

_SOURCE = Path(__file__).with_name("native.c")
_FLAGS = {"AVX512": ("-mavx512f",), "AVX2": ("-mavx2", "-mfma")}  # by what torch finds that the processor has
_DIGEST = hashlib.sha256().digest_size


@cache
def compiled() -> bytes | None:
    """A shared library for this machine; None if its processor is another, or no C compiler makes one."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    capability = torch.backends.cpu.get_cpu_capability()
    if compiler is None or capability not in _FLAGS:
        return None
    flags = ["-O2", "-fno-math-errno", "-ffp-contract=fast", "-shared", "-fPIC", *_FLAGS[capability]]
    try:
        version = subprocess.run([compiler, "--version"], check=True, capture_output=True, text=True).stdout
        name = hashlib.sha256("\0".join([version, *flags, _SOURCE.read_text()]).encode()).hexdigest()
        file = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "scarlet", name)
        if (binary := _kept(file)) is None:
            binary = _made([compiler, *flags])
            loaded(binary)
            _keep(binary, file)
    except (OSError, subprocess.SubprocessError):
        return None
    return binary


def _made(command: list[str]) -> bytes:
    with TemporaryDirectory(prefix="scarlet-") as folder:
        file = Path(folder, "native.so")
        subprocess.run([*command, "-o", file, _SOURCE, "-lm"], check=True, capture_output=True)
        return file.read_bytes()


def _kept(file: Path) -> bytes | None:
    """What was kept, None if that is nothing, damaged or of no use here."""
    try:
        found = file.expanduser().read_bytes()
    except (OSError, RuntimeError):  # the latter: there is no home
        return None
    digest, binary = found[:_DIGEST], found[_DIGEST:]
    if digest != hashlib.sha256(binary).digest():
        return None
    try:
        loaded(binary)
    except OSError:  # made for another system
        return None
    return binary


def _keep(binary: bytes, file: Path) -> None:
    """Spare the next run three seconds, if there is a place for it."""
    with suppress(OSError, RuntimeError):
        file = file.expanduser()
        file.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=file.parent) as folder:
            unfinished = Path(folder, file.name)
            unfinished.write_bytes(hashlib.sha256(binary).digest() + binary)
            unfinished.replace(file)


@cache
def loaded(binary: bytes) -> ctypes.CDLL:
    """The library, ready to be called."""
    with TemporaryDirectory(prefix="scarlet-") as folder:
        file = Path(folder, "native.so")
        file.write_bytes(binary)
        library = ctypes.CDLL(str(file))
    pointer, whole = ctypes.c_void_p, ctypes.c_long
    library.scarlet_forward.argtypes = [pointer, whole, pointer, whole, pointer, ctypes.c_int]
    library.scarlet_backward.argtypes = [pointer, whole, pointer, whole, pointer, pointer]
    return library
