"""The clients of a run, and how accurate each of them was in the end."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from scarlet.data.partition_figure import totals_in
from scarlet.errors import DataError

COLUMNS = ("round", "client", "name", "model", "accuracy", "loss")  # of clients.csv


@dataclass(frozen=True, slots=True)
class Client:
    """A client, with its accuracy when it was measured last."""

    number: int
    name: str
    accuracy: float
    samples: int | None  # for training; None: not known here


def read_clients(directory: Path) -> list[Client]:
    """The clients of the run in a directory that were measured; none if an earlier version wrote it."""
    path, picture = directory / "clients.csv", directory / "partition.svg"
    if not path.exists():
        return []
    totals = dict(enumerate(totals_in(picture.read_text(encoding="utf-8")))) if picture.exists() else {}
    try:
        header, *rows = csv.reader(path.read_text().split("\n")[:-1])  # the last line may be half written
        client, name, accuracy = map(header.index, ("client", "name", "accuracy"))
        last = {int(row[client]): row for row in rows}
        return [
            Client(number, row[name], float(row[accuracy]), totals.get(number)) for number, row in sorted(last.items())
        ]
    except (IndexError, ValueError):
        raise DataError(f"{path} is damaged: each line must have the columns {', '.join(COLUMNS)}; run anew") from None
