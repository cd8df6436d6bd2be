"""The versions of Flower that this package was tested with."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from scarlet.errors import ConfigError

TESTED = "1.41"
_REMEDY = "install it with pip install 'scarlet-fl[flower]'"


def check_flower() -> None:
    """Refuse an environment without Flower, or with a version of it that was not tested."""
    try:
        installed = version("flwr")
    except PackageNotFoundError:
        raise ConfigError(f"flwr {TESTED} is needed, and no flwr is installed here; {_REMEDY}") from None
    if not installed.startswith(f"{TESTED}."):
        raise ConfigError(f"flwr must be {TESTED}.x, which was tested, and {installed} is installed here; {_REMEDY}")
