"""A table or figure of the paper, and what it came to."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scarlet.experiment.run_directory import make
from scarlet.paper.drawing import drawn
from scarlet.paper.runs import Runs, Wanted
from scarlet.paper.scale import Scale
from scarlet.paper.verdict import Parts, all_hold, opening
from scarlet.whole_file import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Context:
    """What a figure is made from."""

    scale: Scale
    runs: Runs
    data_dir: Path | None


@dataclass(frozen=True, slots=True)
class Shown:
    """What a figure came to: its data, its picture, and whether each part of the claim holds in them."""

    rows: Sequence[Row]
    picture: Figure
    parts: Parts
    found: str  # the numbers behind it

    @property
    def holds(self) -> bool | None:
        """Whether the claim holds; None: these data cannot tell."""
        return all_hold(self.parts.values())

    @property
    def sentence(self) -> str:
        return f"{opening(self.parts)}: {self.found}."


@dataclass(frozen=True, slots=True)
class Exhibit:
    """A table or figure: what the paper claims, the runs that it needs, and how it is made from them."""

    name: str
    title: str
    claim: str
    show: Callable[[Context], Shown]
    wants: Callable[[Scale], Sequence[Wanted]] = lambda scale: ()
    seconds: float = 10.0  # of making it, beside its runs


def write(exhibit: Exhibit, scale: Scale, shown: Shown, out: Path) -> None:
    """Leave data.csv, data.json, sentence.txt, figure.svg and figure.png in a directory."""
    make(out)
    rows = [{name: None if value != value else value for name, value in row.items()} for row in shown.rows]  # no NaN
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, columns)
    writer.writeheader()
    writer.writerows(rows)
    write_whole(out / "data.csv", table.getvalue())
    described = {"name": exhibit.name, "title": exhibit.title, "claim": exhibit.claim, "scale": scale.name}
    verdict = {"holds": shown.holds, "parts": dict(shown.parts), "sentence": shown.sentence}
    content = {**described, **verdict, "rows": rows}
    write_whole(out / "sentence.txt", shown.sentence + "\n")
    for kind in ("svg", "png"):
        write_whole(out / f"figure.{kind}", drawn(shown.picture, kind))
    write_whole(out / "data.json", json.dumps(content, indent=1, allow_nan=False) + "\n")  # the last: the page reads it
