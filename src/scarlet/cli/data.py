"""`scarlet data list` and `scarlet data get NAME`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from scarlet.cli.options import AsJson, Command, options_of
from scarlet.config import Config
from scarlet.data.datasets import default_data_dir
from scarlet.data.fetch import Present, get, present
from scarlet.errors import ConfigError, unknown


def main(argv: Sequence[str]) -> int:
    """List the datasets, or download one."""
    about = "'list' shows the datasets and how much of each is on disk; 'get NAME' downloads one and checks it."
    options = {"data_dir": options_of(Config)["data_dir"], **options_of(AsJson)}
    words, given = Command("scarlet data list|get", about, options).parse(argv)
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
        where = get(name, data_dir, lambda done, total: bar.update(task, completed=done, total=total, visible=True))
    print(f"{name}: {where}")
