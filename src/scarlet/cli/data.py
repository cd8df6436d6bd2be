"""`scarlet data list` and `scarlet data get NAME`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from typing_extensions import Doc

from scarlet.cli.options import AsJson, Command, options_of, split
from scarlet.data.datasets import default_data_dir
from scarlet.data.fetch import Present, get, present
from scarlet.errors import ConfigError, unknown


@dataclass(frozen=True, slots=True)
class Where:
    """Where the datasets are."""

    data_dir: Annotated[
        Path | None, Doc("directory that holds the datasets (default: $SCARLET_DATA, or ~/.cache/scarlet/data)")
    ] = None


def main(argv: Sequence[str]) -> int:
    """List the datasets, or download one."""
    words, rest = split(argv)
    about = "'list' shows the datasets and how much of each is on disk; 'get NAME' downloads one and checks it."
    given = Command("scarlet data list|get", about, options_of(Where, AsJson)).parse(rest)
    data_dir = given.get("data_dir") or default_data_dir()
    match words:
        case ["list"]:
            rows = present(data_dir)
            if given.get("json"):
                print(json.dumps([asdict(row) | {"where": str(row.where)} for row in rows], indent=2))
            else:
                _print(rows)
        case ["get", name]:
            _get(name, data_dir)
        case ["list" | "get", *_]:
            raise ConfigError("scarlet data takes 'list', or 'get' and one NAME; see scarlet data list")
        case [word, *_]:
            raise unknown("data command", word, ["list", "get"])
        case _:
            raise ConfigError("scarlet data takes 'list' or 'get NAME', got nothing")
    return 0


def _print(rows: Sequence[Present]) -> None:
    from scarlet.cli.tables import console, table

    drawn = table(None, ("name", "what", "train", "test", "classes", "state"), left=("what", "state"))
    for row in rows:
        state = "damaged" if row.error else "whole" if row.complete else "a part" if row.train else "absent"
        counts = [f"{n:,}" if n else "-" for n in (row.train, row.test, row.classes)]
        drawn.add_row(row.name, row.title, *counts, state)
    screen = console()
    screen.print(drawn)
    for row in rows:
        if row.error:
            screen.print(row.error, highlight=False, markup=False, soft_wrap=True)


def _get(name: str, data_dir: Path) -> None:
    from rich.progress import DownloadColumn, Progress, TransferSpeedColumn

    with Progress(*Progress.get_default_columns(), DownloadColumn(), TransferSpeedColumn()) as bar:
        task = bar.add_task(name, total=None, visible=False)
        where = get(
            name,
            data_dir,
            lambda done, total: bar.update(task, completed=done, total=total, visible=True),
        )
    print(f"{name}: {where}")
