"""What a person sees during a run, and what every command prints at its end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.live import Live
from rich.table import Table

from scarlet.cli.tables import console, table
from scarlet.experiment.estimate import Estimate
from scarlet.experiment.federation import Federation
from scarlet.experiment.round_log import Metrics
from scarlet.methods.registry import METHODS
from scarlet.records import LAST_ROUNDS, RoundRecord, RunResult, by_reason
from scarlet.report.curves import MEGABYTE
from scarlet.report.summary import over_seeds
from scarlet.report.variants import Variant, distinct, group
from scarlet.wire.ledger import Ledger


class Display(ExitStack):
    """A live table on a terminal, with a row for each run; a line every tenth of a run elsewhere."""

    def __init__(self, runs: int, out: Path, *, quiet: bool = False) -> None:
        super().__init__()
        self._runs, self._out = runs, out
        self._console = console(quiet=quiet)
        live = Live(console=self._console, refresh_per_second=4)
        self._live = self.enter_context(live) if self._console.is_terminal else None
        self._done: list[_Row] = []
        self._row: _Row | None = None

    def start(self, config: Mapping[str, object], federation: Federation, expected: Estimate) -> None:
        title, seed, rounds = METHODS[str(config["method"])].title, federation.config.seed, federation.config.rounds
        if self._row is None:
            self._print(f"directory: {self._out} (if it is interrupted: scarlet resume {self._out})")
        self._row = _Row(title, seed, rounds)
        self._print(f"{title}, seed {seed}, {rounds} rounds: {expected}")
        for each in federation.architectures:
            which = f" of {each.name}" if len(federation.architectures) > 1 else ""
            self._print(f"engine{which}: {each.engine.name} ({each.engine.reason})")

    def round(self, record: RoundRecord, ledger: Ledger, clients: Metrics) -> None:
        assert self._row is not None
        self._row.add(record, ledger)
        if self._live is not None:
            self._live.update(_live_table([*self._done, self._row], self._runs))
        elif record.round % max(1, self._row.rounds // 10) == 0 or record.round == self._row.rounds:
            self._print(self._row.line())

    def finish(self, result: RunResult) -> None:
        assert self._row is not None
        self._done.append(self._row)

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, soft_wrap=True)


class _Row:
    """One run, up to its latest round."""

    def __init__(self, title: str, seed: int, rounds: int) -> None:
        self.title, self.seed, self.rounds = title, seed, rounds
        self.round = 0
        self._first = 0  # the first round that was seen: a resumed run begins late
        self._began = time.monotonic()
        self._server: float | None = None
        self._client: float | None = None
        self._cells: tuple[str, ...] = ("",) * 5

    def add(self, record: RoundRecord, ledger: Ledger) -> None:
        # Between two evaluations the latest one stays on show.
        self._server = record.server_accuracy if record.server_accuracy is not None else self._server
        self._client = record.client_accuracy if record.client_accuracy is not None else self._client
        self.round = record.round
        self._first = self._first or record.round
        self._cells = (
            "-" if self._server is None else f"{self._server:.3f}",
            "-" if self._client is None else f"{self._client:.3f}",
            f"{ledger.total['uplink'].payload / MEGABYTE:.2f}",
            f"{(ledger.total['downlink'] + ledger.total['catch_up']).payload / MEGABYTE:.2f}",
            f"{record.cache_hit_ratio or 0:.0%}",
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
        """The time to the end of this run, or of that many more like it."""
        rounds = self.rounds - self.round + runs_after * self.rounds
        seconds = int((time.monotonic() - self._began) / max(1, self.round - self._first + 1) * rounds)
        return f"{seconds // 60}:{seconds % 60:02d}"


def _live_table(rows: Sequence[_Row], runs: int) -> Table:
    title = f"run {len(rows)} of {runs}, {rows[-1].left(runs - len(rows))} left in all" if runs > 1 else None
    names = ("method", "seed", "round", "server acc.", "client acc.", "MB up", "MB down", "hits", "left")
    drawn = table(title, names)
    for row in rows[-12:]:  # what does not fit on a screen cannot be redrawn in place
        drawn.add_row(*row.cells())
    return drawn


def show_results(
    results: Sequence[RunResult], out: Path, *, as_json: bool, single: bool = False, page: str = "report.html"
) -> int:
    """Print the results of `run` (single), `compare`, `sweep` or `resume`, as a table or as JSON; the exit code."""
    if as_json:
        runs = [{"method": each.method, "config": dict(each.config), **each.summary} for each in results]
        print(json.dumps({"directory": str(out), **(runs[0] if single else {"runs": runs})}, indent=2))
    else:
        _print_table(results, out / page)
    return 130 if results[-1].interrupted else 0


def _print_table(results: Sequence[RunResult], page: Path) -> None:
    """Means over the last rounds, and the deviation over seeds where there are several."""
    screen = console()
    names = ("method", "seeds", "server acc.", "client acc.", "MB up", "MB down", "MB total", "hits", "sec.")
    drawn = table(f"means of the last {LAST_ROUNDS} evaluated rounds, megabytes of the whole run", names)
    for variant in group(distinct(results)):
        drawn.add_row(
            variant.name,
            str(len(variant.runs)),
            _over_seeds(variant, "server_accuracy", 1, 3),
            _over_seeds(variant, "client_accuracy", 1, 3),
            _over_seeds(variant, "uplink_bytes", MEGABYTE, 2),
            _over_seeds(variant, "downlink_bytes", MEGABYTE, 2),
            _over_seeds(variant, "cumulative_bytes", MEGABYTE, 2),
            _over_seeds(variant, "cache_hit_ratio", 1, 2),
            _over_seeds(variant, "seconds", 1, 0),
        )
    screen.print(drawn)
    for line in _incidents(results):
        screen.print(line, highlight=False, soft_wrap=True)
    if any(result.interrupted for result in results):
        screen.print("interrupted: the numbers are those of the rounds so far", highlight=False)
    screen.print(f"report: {page}", highlight=False, soft_wrap=True)


def _incidents(results: Sequence[RunResult]) -> Iterator[str]:
    """A line for each run in which messages were rejected, clients failed, or rounds or caches were repeated."""
    for result in results:
        counts = {
            "messages rejected": _by_reason(record.rejections for record in result.records),
            "clients failed": _by_reason(record.failures for record in result.records),
            "attempts at a round that failed": sum(record.attempt for record in result.records),
            "answers without labels, after a loss of the model": sum(record.abstained for record in result.records),
            "caches sent again": sum(record.resets for record in result.records),
        }
        if found := [f"{incident}: {count}" for incident, count in counts.items() if count]:
            yield f"{result.title}, seed {result.seed}: {'; '.join(found)}"


def _by_reason(rounds: Iterable[Mapping[str, int]]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in sorted(by_reason(rounds).items()))


def _over_seeds(variant: Variant, key: str, unit: float, digits: int) -> str:
    def reduce(run: RunResult) -> float | None:
        return value / unit if isinstance(value := run.summary.get(key), int | float) else None

    estimate = over_seeds(variant, reduce)
    return "-" if estimate is None else f"{estimate:.{digits}f}"
