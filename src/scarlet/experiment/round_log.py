"""The round log: what is written of each round, in order, when the server's model has learned from it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Protocol

from scarlet.arrays import Array
from scarlet.experiment.checkpoints import Checkpoints
from scarlet.experiment.estimate import Estimate
from scarlet.experiment.federation import Federation
from scarlet.experiment.result import Result
from scarlet.protocol.server import ClosedRound
from scarlet.records import RoundRecord
from scarlet.store import Snapshot
from scarlet.training.server_model import Learned
from scarlet.training.train import VALIDATION_LOSS
from scarlet.wire.ledger import Ledger

Metrics = Mapping[int, Mapping[str, float]]  # client -> its metrics in a round


class Watcher(Protocol):
    """Somebody who follows a run: a display, a directory, a tracker."""

    def start(self, config: Mapping[str, object], federation: Federation, expected: Estimate) -> None: ...

    def round(self, record: RoundRecord, ledger: Ledger, clients: Metrics) -> None:
        """`clients` has what each client reported."""

    def finish(self, result: Result) -> None: ...


@dataclass(frozen=True, slots=True)
class _Closed:
    """A round that is closed but not written: the server's model may still be learning."""

    record: RoundRecord
    ledger: Ledger  # as of its end
    clients: Metrics
    learned: Future[Learned]
    snapshot: Snapshot | None  # to be saved


class RoundLog:
    """Writes whole rounds: records for the watchers, and checkpoints.

    The server's model learns round t, and is evaluated, while the clients are at work on round t + 1; so a round is
    written some time after it is closed. A round's seconds go from the end of the round before to its own; what the
    server's model still has to learn then counts to the next round, and after the last round to that one.
    """

    def __init__(
        self,
        watchers: Sequence[Watcher],
        checkpoints: Checkpoints | None,
        model: Mapping[str, Array],
        model_of: Callable[[int], str] | None = None,
    ) -> None:
        self.records: list[RoundRecord] = []
        self.model = model  # the server's after the last round that was written, and what its optimiser remembers
        self._model_of = model_of  # client -> the name of its model; None: all have the same
        self._watchers = watchers
        self._checkpoints = checkpoints
        self._closed: _Closed | None = None  # closed but not written
        self._last = time.perf_counter()  # when the time was last taken

    def begin(self) -> None:
        """The first round begins."""
        self._elapsed()

    def add(
        self,
        closed: ClosedRound,
        ledger: Ledger,
        failures: Mapping[str, int],
        learned: Future[Learned],
        snapshot: Snapshot | None,
    ) -> None:
        """Take in a round that is closed."""
        self.write()
        record = record_of(closed, ledger, failures)
        if self._model_of is not None:
            record = replace(record, accuracy_by_model=_by_model(closed.reports, self._model_of))
        self._closed = _Closed(record, ledger.copy(), closed.reports, learned, snapshot)
        self.write_if_learned()
        if self._closed is not None:
            self._closed = replace(self._closed, record=replace(record, seconds=self._elapsed()))

    def finish(self) -> None:
        """Write the last round."""
        if self._closed is not None:
            self._closed.learned.result()
            record = replace(self._closed.record, seconds=self._closed.record.seconds + self._elapsed())
            self._closed = replace(self._closed, record=record)
        self.write()

    def write_if_learned(self) -> None:
        """Write the closed round, if the server's model has learned it."""
        if self._closed is not None and self._closed.learned.done():
            self.write()

    def write(self) -> None:
        """Write the closed round, if there is one; wait until the server's model has learned it."""
        if self._closed is None:
            return
        learned = self._closed.learned.result()
        now, self._closed = self._closed, None
        accuracy, loss = learned.measured or (None, None)
        seconds = now.record.seconds or self._elapsed()
        record = replace(
            now.record,
            server_accuracy=accuracy,
            server_loss=loss,
            public_validation_loss=learned.validation_loss,
            seconds=seconds,
        )
        self.model = learned.arrays
        self.records.append(record)
        for watcher in self._watchers:
            watcher.round(record, now.ledger, now.clients)
        if self._checkpoints is not None and now.snapshot is not None:
            self._checkpoints.save(now.snapshot, learned.arrays)

    def save(self) -> None:
        """Write the closed round, and wait until its checkpoint is on disk."""
        self.write()
        if self._checkpoints is not None:
            self._checkpoints.wait()

    def _elapsed(self) -> float:
        """Seconds since this was asked last."""
        before, self._last = self._last, time.perf_counter()
        return self._last - before


def _by_model(reports: Metrics, model_of: Callable[[int], str]) -> dict[str, float]:
    """The mean accuracy of the clients that have each model."""
    found: dict[str, list[float]] = {}
    for client in sorted(reports):
        if "accuracy" in reports[client]:
            found.setdefault(model_of(client), []).append(reports[client]["accuracy"])
    return {name: math.fsum(values) / len(values) for name, values in sorted(found.items())}


def record_of(closed: ClosedRound, ledger: Ledger, failures: Mapping[str, int]) -> RoundRecord:
    """The record of a round, but for what is not known yet: its seconds, and what the server's model learned."""
    reports = closed.reports.values()
    accuracies = [report["accuracy"] for report in reports if "accuracy" in report]
    validated = [report[VALIDATION_LOSS] for report in reports if VALIDATION_LOSS in report]
    uplink, downlink = ledger.round_total("uplink"), ledger.round_total("downlink")
    report = ledger.round_total("report")
    catch_up = ledger.round_total("catch_up")
    entropy = closed.teacher_entropy
    return RoundRecord(
        round=closed.round,
        server_accuracy=None,
        # Summed exactly, because reports arrive in any order.
        client_accuracy=math.fsum(accuracies) / len(accuracies) if accuracies else None,
        server_loss=None,
        uplink_bytes=uplink.payload,
        downlink_bytes=downlink.payload + catch_up.payload,
        cumulative_bytes=ledger.cumulative_payload,
        cache_hit_ratio=closed.hit_ratio,
        mean_teacher_entropy=None if math.isnan(entropy) else entropy,
        uplink_frame_bytes=uplink.frame,
        downlink_frame_bytes=downlink.frame + catch_up.frame,
        uplink_transport_bytes=ledger.uplink_transport,
        downlink_transport_bytes=ledger.downlink_transport,
        report_bytes=report.size,
        catch_up_bytes=catch_up.payload,
        rejected_bytes=ledger.round_total("rejected").size,
        attempt=closed.attempt,
        answers=closed.answers,
        resets=closed.resets,
        rejections=dict(closed.rejections),
        seconds=0.0,
        failures=dict(failures),
        abstained=sum("abstains" in each for each in closed.reports.values()),
        private_validation_loss=math.fsum(validated) / len(validated) if validated else None,
        beta=closed.beta,
        asked=closed.asked,
    )
