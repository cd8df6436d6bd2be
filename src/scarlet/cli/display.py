"""What a person sees while a run goes on, and at its end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from types import TracebackType

import numpy as np
from rich.live import Live
from rich.table import Table

from scarlet.cli.tables import console, table
from scarlet.experiment.estimate import Estimate
from scarlet.experiment.federation import Federation
from scarlet.methods.registry import METHODS
from scarlet.models.registry import Weights
from scarlet.records import LAST_ROUNDS, RoundRecord, RunResult
from scarlet.wire.ledger import Ledger

_MB = 1e6


class Display:
    """A live table on a terminal, with a row for each run; a line every tenth of a run elsewhere."""

    def __init__(self, runs: int, *, quiet: bool = False) -> None:
        self._runs = runs
        self._console = console(quiet=quiet)
        self._live = Live(console=self._console, refresh_per_second=4) if self._console.is_terminal else None
        self._done: list[_Row] = []
        self._row: _Row | None = None

    def start(self, config: Mapping[str, object], federation: Federation, expected: Estimate) -> None:
        self._row = _Row(str(config["method"]), federation.config.seed, federation.config.rounds)
        which = f"{self._row.title}, seed {federation.config.seed}, {federation.config.rounds} rounds"
        self._console.print(f"{which}: {expected}", highlight=False, soft_wrap=True)
        engine = federation.engine
        self._console.print(f"engine: {engine.name} ({engine.reason})", highlight=False, soft_wrap=True)

    def round(self, record: RoundRecord, ledger: Ledger) -> None:
        assert self._row is not None
        self._row.add(record, ledger)
        if self._live is not None:
            self._live.update(_table([*self._done, self._row], self._runs))
        elif record.round % max(1, self._row.rounds // 10) == 0 or record.round == self._row.rounds:
            self._console.print(self._row.line(), highlight=False, soft_wrap=True)

    def finish(self, result: RunResult, weights: Weights | None) -> None:
        assert self._row is not None
        self._done.append(self._row)

    def __enter__(self) -> Display:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()


class _Row:
    """One run, as far as it has got."""

    def __init__(self, method: str, seed: int, rounds: int) -> None:
        self.title = METHODS[method].title
        self.seed = seed
        self.rounds = rounds
        self.round = 0
        self._first = 0  # the first round that was seen: a run that is resumed begins late
        self._began = time.monotonic()
        self._cells: tuple[str, ...] = ("",) * 5
        self._server: float | None = None
        self._client: float | None = None

    def add(self, record: RoundRecord, ledger: Ledger) -> None:
        # Between two measurements the last one stays on show.
        self._server = record.server_accuracy if record.server_accuracy is not None else self._server
        self._client = record.client_accuracy if record.client_accuracy is not None else self._client
        self.round = record.round
        self._first = self._first or record.round
        self._cells = (
            _share(self._server),
            _share(self._client),
            f"{ledger.total['uplink'].payload / _MB:.2f}",
            f"{(ledger.total['downlink'] + ledger.total['catch_up']).payload / _MB:.2f}",
            f"{record.cache_hit_ratio:.0%}",
        )

    def cells(self) -> tuple[str, ...]:
        return (self.title, str(self.seed), f"{self.round}/{self.rounds}", *self._cells, self.left())

    def line(self) -> str:
        server, client, up, down, hits = self._cells
        return (
            f"{self.title} seed {self.seed} round {self.round}/{self.rounds}: server {server}, client {client}, "
            f"{up} MB up, {down} MB down, hits {hits}, {self.left()} left"
        )

    def left(self, runs_after: int = 0) -> str:
        """The time to the end of this run, or of as many more like it."""
        rounds = self.rounds - self.round + runs_after * self.rounds
        seconds = int((time.monotonic() - self._began) / max(1, self.round - self._first + 1) * rounds)
        return f"{seconds // 60}:{seconds % 60:02d}"


def _table(rows: Sequence[_Row], runs: int) -> Table:
    title = f"run {len(rows)} of {runs}, {rows[-1].left(runs - len(rows))} left in all" if runs > 1 else None
    names = ("method", "seed", "round", "server acc.", "client acc.", "MB up", "MB down", "hits", "left")
    drawn = table(title, names)
    for row in rows[-12:]:  # what does not fit on a screen cannot be redrawn in place
        drawn.add_row(*row.cells())
    return drawn


def final_table(results: Sequence[RunResult], out: Path) -> None:
    """Means over the last rounds, and the deviation over seeds where there are several."""
    screen = console()
    names = ("method", "seeds", "server acc.", "client acc.", "MB up", "MB down", "MB total", "hits", "time")
    drawn = table(f"means of the last {LAST_ROUNDS} rounds, megabytes of the whole run", names)
    ordered = sorted(results, key=lambda result: list(METHODS).index(result.method))
    for method, group in groupby(ordered, key=lambda result: result.method):
        runs = list(group)
        drawn.add_row(
            METHODS[method].title,
            str(len(runs)),
            _spread(runs, "server_accuracy", 1, 3),
            _spread(runs, "client_accuracy", 1, 3),
            _spread(runs, "uplink_bytes", _MB, 2),
            _spread(runs, "downlink_bytes", _MB, 2),
            _spread(runs, "cumulative_bytes", _MB, 2),
            _spread(runs, "cache_hit_ratio", 1, 2),
            _spread(runs, "seconds", 1, 0),
        )
    screen.print(drawn)
    for line in _troubles(results):
        screen.print(line, highlight=False, soft_wrap=True)
    if any(result.interrupted for result in results):
        screen.print("interrupted: the numbers are those of the rounds that were done", highlight=False)
    screen.print(f"report: {out / 'report.html'}", highlight=False, soft_wrap=True)


def _troubles(results: Sequence[RunResult]) -> Iterator[str]:
    """What did not go smoothly, for each run in which something did not."""
    for result in results:
        rejections: Counter[str] = Counter()
        for record in result.rounds:
            rejections.update(record.rejections)
        found = [f"{reason} {count}" for reason, count in sorted(rejections.items())]
        retried = sum(record.attempt for record in result.rounds)
        resets = sum(record.resets for record in result.rounds)
        parts = [f"rejected: {', '.join(found)}"] if found else []
        parts += [f"{retried} attempts failed"] if retried else []
        parts += [f"{resets} caches sent anew"] if resets else []
        if parts:
            yield f"{METHODS[result.method].title}, seed {result.config['seed']}: {'; '.join(parts)}"


def _spread(runs: Sequence[RunResult], key: str, unit: float, digits: int) -> str:
    values = [value / unit for run in runs if isinstance(value := run.summary[key], int | float)]
    if not values:
        return "-"
    mean = f"{np.mean(values):.{digits}f}"
    return f"{mean} ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else mean


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
