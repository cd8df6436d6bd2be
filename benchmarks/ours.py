"""The implementation 'ours': rounds of this package, with checkpoints, as a user runs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.compute import ComputeTime
from benchmarks.timing import Timing
from benchmarks.workloads import WARM_UP
from scarlet.config import Config
from scarlet.experiment.estimate import Estimate
from scarlet.experiment.federation import Federation
from scarlet.experiment.result import Result
from scarlet.experiment.round_log import Metrics
from scarlet.experiment.run import run
from scarlet.records import RoundRecord
from scarlet.wire.ledger import Ledger


class RoundTimes:
    """A watcher that keeps the seconds of each round, checkpoint included, and the compute time until its end.

    The server's model learns a round while the next one is under way, so the compute time of a round is a mean over
    the run.
    """

    def __init__(self, compute: ComputeTime) -> None:
        self._compute = compute
        self._seconds: list[float] = []
        self._computed: list[float] = []  # processor seconds since the start

    @property
    def timings(self) -> list[Timing]:
        """The rounds without the first and the last, which waits until the server's model has learned everything."""
        compute = (self._computed[-1] - self._computed[0]) / (len(self._computed) - 1)
        return [Timing(seconds, compute) for seconds in self._seconds[1:-1]]

    def start(self, config: Mapping[str, object], federation: Federation, expected: Estimate) -> None: ...

    def round(self, record: RoundRecord, ledger: Ledger, clients: Metrics) -> None:
        self._seconds.append(record.seconds)
        self._computed.append(self._compute.seconds)

    def finish(self, result: Result) -> None: ...


def ours(method: object, config: Config, codec: str) -> list[Timing]:
    """Run a method with checkpoints, and time its rounds after the warm-up."""
    compute = ComputeTime()
    times = RoundTimes(compute)
    config = replace(config, codec=codec, rounds=config.rounds + 1)
    with TemporaryDirectory(prefix="scarlet-benchmark-") as folder, compute.server_measured():
        run(method, config, out=Path(folder) / "run", watchers=[times], transport=compute.transport())
    return times.timings[WARM_UP - 1 :]
