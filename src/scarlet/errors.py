"""The errors a caller may want to catch; each message is one line that names the value, the rule and the remedy."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class ScarletError(Exception):
    """Whatever goes wrong for a reason that the user can mend."""


class ConfigError(ScarletError, ValueError):
    """An option, or a combination of options, that cannot be run; the message begins with the option's name."""

    @property
    def option(self) -> str:
        """The first word of the message: the name of the option that it is about, if it is about one."""
        return str(self).partition(" ")[0].removeprefix("--").replace("-", "_")


class WrongTypeError(ScarletError, TypeError):
    """An argument of a type that cannot be used; the message begins with its name."""


class DataError(ScarletError):
    """A dataset that is missing, truncated or corrupted."""


class MessageError(ScarletError):
    """Bytes that are not a message of this protocol, or a message that breaks its rules."""

    def __init__(self, text: str, reason: str = "unreadable") -> None:
        super().__init__(text)
        self.reason = reason  # a short name, under which the server counts what it rejects

    def __reduce__(self) -> tuple[type[MessageError], tuple[str, str]]:
        return type(self), (str(self), self.reason)


def short(error: Exception) -> str:
    """An error of somebody else's code in one line."""
    return (f"{type(error).__name__}: {error}".splitlines() or [type(error).__name__])[0]


def unknown(what: str, name: str, known: Iterable[str], see: str = "") -> ConfigError:
    """The error for a name that is not in a list, with the nearest one that is, and the list or where to see it."""
    known = sorted(known)
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else "choose one of these"
    return ConfigError(f"unknown {what} {name!r}: {hint} ({see or 'known: ' + ', '.join(known)})")
