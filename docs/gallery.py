"""Writes the gallery: figures that `scarlet paper` made, below the page's own opening, with copies of their pictures.

python docs/gallery.py DIR...    # the --out of `scarlet paper`, one or more of them: demo, small
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from scarlet.paper.gallery import Found, gallery
from scarlet.paper.make import EXHIBITS

HERE = Path(__file__).parent
PAGE = HERE / "results.md"
BELOW = "\n| does the claim hold?"


def copied(made: Path, found: Found) -> str:
    """The address of a figure's picture, which is copied beside the page."""
    picture = f"pictures/{made.name}.png" if found["scale"] == "demo" else f"pictures/{made.name}-{found['scale']}.png"
    shutil.copyfile(made / "figure.png", HERE / picture)
    return picture


def main(directories: list[Path]) -> None:
    """Write every figure that one of the directories has."""
    opening, _, _ = PAGE.read_text().partition(BELOW)
    PAGE.write_text(opening.rstrip() + "\n\n" + gallery(EXHIBITS, directories, copied))


if __name__ == "__main__":
    main([Path(each) for each in sys.argv[1:]])
