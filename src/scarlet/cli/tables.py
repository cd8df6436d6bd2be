"""Tables for people: as wide as the terminal, or wide enough where there is none."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

_WIDTH_WITHOUT_TERMINAL = 120  # a file or a pipe has no width, and cells that are cut tell nothing


def console(*, quiet: bool = False) -> Console:
    """Where to print."""
    plain = Console(quiet=quiet)
    return plain if plain.is_terminal else Console(quiet=quiet, width=_WIDTH_WITHOUT_TERMINAL)


def table(title: str | None, columns: Sequence[str], *, left: Sequence[str] = ()) -> Table:
    """An empty table; the first column and those named are text, the others are numbers.

    Where it is too wide, numbers wrap between words; the first column and the words of the headings stay whole.
    """
    drawn = Table(title=title, title_justify="left")
    for position, name in enumerate(columns):
        drawn.add_column(
            name,
            justify="left" if position == 0 or name in left else "right",
            no_wrap=position == 0,
            min_width=max(map(len, name.split())),
        )
    return drawn
