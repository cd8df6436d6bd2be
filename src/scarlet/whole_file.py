"""Files that are changed as a whole."""

from __future__ import annotations

import os
from pathlib import Path

from scarlet.errors import ScarletError


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that there is the old one or the new one at any time, whatever dies meanwhile."""
    if path.is_dir():
        raise ScarletError(f"cannot write {path} (it is a directory); name a file in it")
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with aside.open("wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode())
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        raise ScarletError(f"cannot write {path} ({error.strerror}); choose another place") from error
