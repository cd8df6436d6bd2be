"""A federation across machines, on Flower: `server` takes the ServerApp of an app, and `client` its ClientApp."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scarlet.flower.serving import server as server
    from scarlet.flower.site import client as client

__all__ = ["client", "server"]

_HOMES = {"client": "scarlet.flower.site", "server": "scarlet.flower.serving"}


def __getattr__(name: str) -> object:
    # Loaded on first use, so that `scarlet flower --help` waits for neither torch nor Flower.
    if name not in _HOMES:
        raise AttributeError(f"module 'scarlet.flower' has no attribute {name!r}")
    from scarlet.flower.version import check_flower

    check_flower()
    return getattr(import_module(_HOMES[name]), name)
