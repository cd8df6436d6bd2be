"""`scarlet data list`, `scarlet data get NAME` and `scarlet data pack NAME`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from typing_extensions import Doc

from scarlet.cli.options import AsJson, Command, flag, options_of
from scarlet.config import Config
from scarlet.data.datasets import default_data_dir
from scarlet.data.fetch import Present, get, present
from scarlet.errors import ConfigError, unknown


@dataclass(frozen=True, slots=True)
class PackOptions:
    """The options of `scarlet data pack`."""

    out: Annotated[Path | None, Doc("file to write, which must be new; required")] = None
    shape: Annotated[
        tuple[int, ...] | None, Doc("C,H,W to resize images to (default: their own, where all have the same)")
    ] = None
    public_size: Annotated[int | None, Doc("|P|, public images to pack (default: all)")] = None
    licence: Annotated[str, Doc("licence of the data, for the manifest")] = "not stated"
    version: Annotated[str, Doc("version of the file, for the manifest")] = "1"


def main(argv: Sequence[str]) -> int:
    """List the datasets, download one, or pack one."""
    about = (
        "'list' shows the datasets and how much of each is on disk; 'get NAME' downloads one and checks it; "
        "'pack NAME --out FILE' writes a public dataset (NAME is as for --public) to one file for npz:FILE."
    )
    packing = options_of(PackOptions)
    options = {"data_dir": options_of(Config)["data_dir"], **options_of(AsJson)}
    options |= {name: replace(option, group="pack") for name, option in packing.items()}
    words, given = Command("scarlet data list|get|pack", about, options).parse(argv)
    data_dir = given.get("data_dir") or default_data_dir()
    if words[:1] != ["pack"] and (foreign := packing.keys() & given.keys()):
        raise ConfigError(f"{flag(min(foreign))} is for scarlet data pack; leave it out")
    match words:
        case ["list"]:
            rows = present(data_dir)
            if given.get("json"):
                print(json.dumps([asdict(row) | {"where": str(row.where)} for row in rows], indent=2))
            else:
                print_datasets(rows)
        case ["get", name]:
            _get(name, data_dir)
        case ["pack", name]:
            _pack(name, data_dir, given)
        case ["list" | "get" | "pack", *_]:
            raise ConfigError("scarlet data takes 'list', or 'get' or 'pack' and one NAME; see scarlet data list")
        case [word, *_]:
            raise unknown("data command", word, ["list", "get", "pack"])
        case _:
            raise ConfigError("scarlet data takes 'list', 'get NAME' or 'pack NAME', got nothing")
    return 0


def print_datasets(rows: Sequence[Present]) -> None:
    """A table of the datasets, and what is wrong with those that are damaged."""
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


def _pack(name: str, data_dir: Path, given: dict[str, Any]) -> None:
    from scarlet.data.pack import pack

    options = PackOptions(**{key: value for key, value in given.items() if key not in ("data_dir", "json")})
    if options.out is None:
        raise ConfigError("out must be given: the file to write, such as --out public.npz")
    manifest = pack(
        name,
        options.out,
        data_dir,
        shape=options.shape,
        size=options.public_size,
        licence=options.licence,
        version=options.version,
    )
    if given.get("json"):
        print(json.dumps(asdict(manifest), indent=2))
    else:
        shape = " x ".join(map(str, manifest.shape))
        print(f"{options.out}: {manifest.samples:,} samples, {manifest.dtype} of {shape}, blake2b {manifest.blake2b}")
