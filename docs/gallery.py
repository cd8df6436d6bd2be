"""Writes the gallery: the pictures and sentences of figures that `scarlet paper` made, below the page's own opening.

python docs/gallery.py DIR...    # the --out of `scarlet paper`, one or more of them: demo, small
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from scarlet.paper.make import EXHIBITS

HERE = Path(__file__).parent
PAGE = HERE / "results.md"


def figure(name: str, made: Path) -> list[str]:
    """One figure of one scale: its picture is copied beside the page."""
    found = json.loads((made / "data.json").read_text())
    scale = found["scale"]
    picture = Path("pictures") / (f"{name}.png" if scale == "demo" else f"{name}-{scale}.png")
    shutil.copyfile(made / "figure.png", HERE / picture)
    told = f"**{found['sentence']}** (`scarlet paper {name} --scale {scale}`)"
    return [f"![{found['title']}, {scale}]({picture})", "", told, ""]


def main(directories: list[Path]) -> None:
    """Write every figure that one of the directories has."""
    opening, _, _ = PAGE.read_text().partition("\n## ")
    lines = [opening.rstrip(), ""]
    for name, exhibit in EXHIBITS.items():
        made = [each / name for each in directories if (each / name / "data.json").exists()]
        if made:
            lines += [f"## {exhibit.title}", "", f"*{exhibit.claim}*", ""]
            lines += [line for each in made for line in figure(name, each)]
    PAGE.write_text("\n".join(lines).rstrip() + "\n")


if __name__ == "__main__":
    main([Path(each) for each in sys.argv[1:]])
