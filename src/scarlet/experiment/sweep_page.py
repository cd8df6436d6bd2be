"""The first page of a sweep, which follows its runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from scarlet.errors import ScarletError
from scarlet.experiment.config_json import flatten
from scarlet.experiment.planned import Planned
from scarlet.experiment.renewal import Renewal
from scarlet.experiment.run_directory import read_run
from scarlet.methods.registry import entry_of
from scarlet.records import RunResult


class SweepPage:
    """index.html with all that was planned, whether it has begun or not."""

    def __init__(self, planned: Sequence[Planned], out: Path) -> None:
        self._planned, self._out = planned, out
        self.failed: dict[str, str] = {}  # why runs failed, by their names
        self._renewal = Renewal()

    def write(self, *, running: bool) -> None:
        """Write the page as the runs are now."""
        from scarlet.report.index import write_index  # slow to load, and only needed here

        runs = [self._so_far(each) for each in self._planned]
        write_index(self._out, runs, running=running, failed=self.failed)

    def renew(self) -> None:
        """Write the page again, if it is due; one that cannot be written is left out."""

        def write() -> None:
            with suppress(ScarletError):
                self.write(running=True)

        self._renewal.renew(write)

    def _so_far(self, each: Planned) -> RunResult:
        directory = self._out / each.directory
        if (directory / "metrics.jsonl").exists():
            return read_run(directory)
        known = entry_of(each.method)
        return RunResult(known.name, known.title, flatten(each.method, each.config), [], {}, directory)
