"""Runs in trackers: which were asked for, and a watcher that hands the rounds to each of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType

from scarlet.errors import ConfigError, short
from scarlet.experiment.estimate import Estimate
from scarlet.experiment.federation import Federation
from scarlet.experiment.result import Result
from scarlet.experiment.round_log import Metrics
from scarlet.experiment.run_directory import read_run
from scarlet.records import RoundRecord
from scarlet.trackers.registry import chosen, open_tracker
from scarlet.trackers.tracker import Ending, Place, Tracker, flat, numbers_of
from scarlet.wire.ledger import Ledger


def check_track(track: str | Iterable[str], out: Path | None) -> tuple[str, ...]:
    """The trackers asked for; ConfigError for one that cannot be used."""
    names = chosen(track)
    if names and out is None:
        raise ConfigError(f"track {names[0]} needs a directory for its files; give out, the directory of the results")
    return names


@contextmanager
def tracked(
    track: str | Iterable[str], out: Path | None, *, shared: Path | None = None, resume: bool = False
) -> Iterator[list[Tracked]]:
    """The watchers of a run in `out`, one for each tracker; all are closed at the end, whatever it is.

    `shared` is the directory of the comparison that the run is part of.
    """
    names = check_track(track, out)
    with ExitStack() as stack:
        if out is None:
            yield []
        else:
            place = Place(out, out if shared is None else shared, resume)
            yield [stack.enter_context(Tracked(name, place)) for name in names]


class Tracked:
    """A watcher that hands each round to one tracker. Where the tracker fails, the run goes on without it."""

    def __init__(self, name: str, place: Place) -> None:
        self._name, self._place = name, place
        self._options: dict[str, object] = {}
        self._tracker: Tracker | None = None
        self._over = False  # it was closed, or it failed
        self._written = 0  # the last round that the tracker has

    def start(self, config: Mapping[str, object], federation: Federation, expected: Estimate) -> None:
        self._options = flat(config)
        if not self._place.resumed:  # otherwise the first round tells from where the run goes on
            self._attempt(lambda: self._open([]))

    def round(self, record: RoundRecord, ledger: Ledger, clients: Metrics) -> None:
        accuracies = [clients[number]["accuracy"] for number in sorted(clients) if "accuracy" in clients[number]]
        self._attempt(lambda: self._write(record, accuracies))

    def finish(self, result: Result) -> None:
        self._attempt(lambda: self._end(result))

    def __enter__(self) -> Tracked:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._attempt(lambda: self._close("interrupted" if isinstance(error, KeyboardInterrupt) else "failed", {}))

    def _attempt(self, action: Callable[[], object]) -> None:
        if self._over:
            return
        try:
            action()
        except Exception as error:  # whatever the library raises
            with suppress(Exception):
                self._close("failed", {})
            self._over = True
            print(f"scarlet: track {self._name} failed ({short(error)}); the run goes on without it", file=sys.stderr)

    def _open(self, before: Sequence[RoundRecord]) -> Tracker:
        self._tracker = open_tracker(self._name, self._place, self._options, [numbers_of(each) for each in before])
        self._written = len(before)
        return self._tracker

    def _write(self, record: RoundRecord, accuracies: Sequence[float]) -> None:
        tracker = self._tracker
        if tracker is None:
            tracker = self._open([each for each in read_run(self._place.run).records if each.round < record.round])
        tracker.log(record.round, numbers_of(record), accuracies)
        self._written = record.round

    def _end(self, result: Result) -> None:
        if self._tracker is None:  # a resumed run whose rounds were all written
            self._open(result.records)
        for record in result.records[self._written :]:  # Ctrl-C may have come before a tracker was told of the last
            self._write(record, [])
        self._close("interrupted" if result.interrupted else "finished", flat(result.summary))

    def _close(self, ending: Ending, summary: Mapping[str, object]) -> None:
        tracker, self._tracker = self._tracker, None
        self._over = True
        if tracker is not None:
            tracker.close(ending, self._written, summary)
