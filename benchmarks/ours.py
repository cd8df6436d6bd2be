"""The contestant 'ours': the real round loop, watched from outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.laps import Lap
from benchmarks.works import WARM_UP
from scarlet.config import Config
from scarlet.experiment.estimate import Estimate
from scarlet.experiment.loop import run
from scarlet.experiment.problem import Problem
from scarlet.models.registry import Weights
from scarlet.records import RoundRecord, RunResult
from scarlet.transport.local import LocalTransport
from scarlet.wire.ledger import Ledger


class Stopwatch:
    """A watcher that takes the time from the end of a round to the end of the next, checkpoint included.

    A round's computing reaches into the next one's time, where the server's model learns, so it is a mean.
    """

    def __init__(self) -> None:
        self._transport: LocalTransport | None = None
        self._seconds: list[float] = []
        self._spent: list[float] = []  # seconds of computing since the start

    def carrier(self, *arguments: Any, **options: Any) -> LocalTransport:
        """Make the transport, and remember it."""
        self._transport = LocalTransport(*arguments, **options)
        return self._transport

    @property
    def laps(self) -> list[Lap]:
        """The rounds between the first and the last, which waits for what the server's model has left to learn."""
        compute = (self._spent[-1] - self._spent[0]) / (len(self._spent) - 1)
        return [Lap(seconds, compute) for seconds in self._seconds[1:-1]]

    def start(self, config: Mapping[str, object], problem: Problem, expected: Estimate) -> None: ...

    def round(self, record: RoundRecord, ledger: Ledger) -> None:
        assert self._transport is not None
        self._seconds.append(record.seconds)
        self._spent.append(self._transport.spent())

    def finish(self, result: RunResult, weights: Weights | None) -> None: ...


def ours(method: object, config: Config, codec: str) -> list[Lap]:
    """Run a method with checkpoints, and time its rounds after the warm-up."""
    watch = Stopwatch()
    with TemporaryDirectory(prefix="scarlet-bench-") as folder:
        out = Path(folder) / "run"
        config = replace(config, codec=codec, rounds=config.rounds + 1)
        run(method, config, out=out, watchers=[watch], carrier=watch.carrier)
    return watch.laps[WARM_UP - 1 :]
