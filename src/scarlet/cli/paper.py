"""`scarlet paper NAME...`: the paper's tables and figures, and whether their claims hold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typing_extensions import Doc

from scarlet.cli.options import AsJson, Command, options_of
from scarlet.errors import ConfigError

if TYPE_CHECKING:  # it loads torch
    from scarlet.paper.scale import Scale


@dataclass(frozen=True, slots=True)
class PaperOptions:
    """How large, and where."""

    scale: Annotated[
        Literal["demo", "small", "full"],
        Doc("demo: embedded data, an hour for all; small: CIFAR-10, hours; full: as in the paper, for GPUs"),
    ] = "demo"
    out: Annotated[Path | None, Doc("directory for data, pictures and runs (default: paper)")] = None
    data_dir: Annotated[
        Path | None, Doc("directory of datasets (default: $SCARLET_DATA, or ~/.cache/scarlet/data)")
    ] = None
    processes: Annotated[int | None, Doc("runs at a time (default: one per core, one on a GPU)")] = None


def main(argv: Sequence[str]) -> int:
    """Make what is named, or list what there is."""
    about = "Make tables and figures of the paper: their data, their pictures, and whether the claim of each holds."
    words, given = Command("scarlet paper NAME...|all|list", about, options_of(PaperOptions, AsJson)).parse(argv)
    if not words:
        raise ConfigError("scarlet paper takes NAME... before the options, got none; 'scarlet paper list' shows them")

    from scarlet.cli.sweep import SweepDisplay
    from scarlet.paper.make import find, make
    from scarlet.paper.scale import scale_of

    scale, as_json = scale_of(given.get("scale", "demo")), bool(given.get("json"))
    if words == ["list"]:
        return _list(scale, as_json=as_json)
    exhibits, out = find(words), given.get("out") or Path("paper")
    with SweepDisplay(quiet=as_json) as display:
        made = make(
            exhibits,
            scale,
            out,
            data_dir=given.get("data_dir"),
            processes=given.get("processes"),
            watch=display.watch,
        )
    if as_json:
        found = [
            {"name": each.exhibit.name, "directory": str(each.directory), "holds": each.shown.holds} for each in made
        ]
        sentences = [{"sentence": each.shown.sentence} for each in made]
        print(json.dumps([one | two for one, two in zip(found, sentences, strict=True)], indent=2))
    else:
        for each in made:
            print(f"{each.exhibit.name}: {each.shown.sentence}\n  {each.directory / 'figure.svg'}")
    return display.exit_code()


def _list(scale: Scale, *, as_json: bool) -> int:
    from scarlet.paper.make import EXHIBITS, seconds
    from scarlet.transport.local import core_count

    needs = {name: round(seconds([each], scale, core_count())) for name, each in EXHIBITS.items()}
    if as_json:
        rows = [{"name": name, "claim": EXHIBITS[name].claim, "seconds": needed} for name, needed in needs.items()]
        print(json.dumps(rows, indent=2))
        return 0

    from scarlet.cli.tables import console, table

    together = seconds(list(EXHIBITS.values()), scale, core_count()) / 60
    title = (
        f"at scale {scale.name} ({scale.about}): {together:,.0f} minutes on {core_count()} cores, shared runs done once"
    )
    drawn = table(title, ("name", "minutes", "claim"), left=["claim"])
    for name, needed in needs.items():
        drawn.add_row(name, f"{needed / 60:,.1f}", EXHIBITS[name].claim)
    console().print(drawn)
    return 0
