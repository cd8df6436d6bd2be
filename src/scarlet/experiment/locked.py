"""One process at a time writes to a directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scarlet.errors import ConfigError


@contextmanager
def locked(directory: Path, option: str) -> Iterator[None]:
    """Keep a directory to this process; raise ConfigError where another process, or a run in this one, has it.

    The lock is on the directory itself, so that no file is added, and it ends with the process, also by `kill -9`.
    Windows and some network file systems have no such lock; there nothing is kept.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(directory, os.O_RDONLY)
    try:
        with suppress(OSError):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(
                    f"{option} {directory} is in use by another command; wait for its end, or choose another directory"
                ) from None
        yield
    finally:
        os.close(descriptor)
