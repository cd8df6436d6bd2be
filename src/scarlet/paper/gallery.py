"""A page of figures: at a glance which claims hold, then each figure with its claim, its picture and its sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scarlet.errors import DataError
from scarlet.paper.exhibit import Exhibit
from scarlet.paper.verdict import VERDICTS

_DATA = "data.json"

Found = Mapping[str, Any]  # what data.json says of a figure
Picture = Callable[[Path, Found], str]  # (the figure's directory, what was found) -> the address of its picture


def gallery(exhibits: Mapping[str, Exhibit], directories: Sequence[Path], picture: Picture) -> str:
    """The figures that are below some directories, in their order; a directory is the `--out` of one scale."""
    made: dict[str, list[tuple[Path, Found]]] = {}
    for name in exhibits:
        if there := [(each / name, found) for each in directories if (found := _found(each / name)) is not None]:
            made[name] = there
    scales = list(dict.fromkeys(found["scale"] for figures in made.values() for _, found in figures))
    lines = [f"| does the claim hold? | {' | '.join(scales)} |", "|" + "---|" * (1 + len(scales))]
    for name, figures in made.items():
        title, said = exhibits[name].title, {found["scale"]: VERDICTS[found["holds"]] for _, found in figures}
        lines.append(f"| [{title}](#{_anchor(title)}) | {' | '.join(said.get(scale, '') for scale in scales)} |")
    for name, figures in made.items():
        lines += ["", f"## {exhibits[name].title}", "", f"*{exhibits[name].claim}*"]
        for directory, found in figures:
            verdict, _, numbers = found["sentence"].partition(": ")
            command = f"scarlet paper {name} --scale {found['scale']}"
            lines += ["", f"![{found['title']}, {found['scale']}]({picture(directory, found)})"]
            lines += ["", f"**{verdict}**: {numbers} (`{command}`)"]
    return "\n".join(lines) + "\n"


def scale_in(directory: Path) -> str | None:
    """The scale of the figure in a directory, if there is one."""
    found = _found(directory)
    return None if found is None else str(found["scale"])


def _found(directory: Path) -> Found | None:
    path = directory / _DATA
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text())
        known = isinstance(found, dict) and {"scale", "holds", "title", "sentence"} <= found.keys()
        if known and found["holds"] in (True, False, None):
            return dict(found)
    except ValueError:
        pass
    raise DataError(f"{path} is damaged; remove {directory} and make the figure again")


def _anchor(title: str) -> str:
    """The anchor that Markdown gives to a heading."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())
