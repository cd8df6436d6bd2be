"""What is written down of each round, in order, when the server's model has learned from it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Protocol

from scarlet.experiment.checkpoints import Checkpoints
from scarlet.experiment.estimate import Estimate
from scarlet.experiment.problem import Problem
from scarlet.models.registry import Weights
from scarlet.protocol.server import ClosedRound
from scarlet.records import RoundRecord, RunResult
from scarlet.store import Snapshot
from scarlet.training.server_model import Learned
from scarlet.wire.ledger import Ledger


class Watcher(Protocol):
    """Somebody who follows a run: a display, a directory, a tracker."""

    def start(self, config: Mapping[str, object], problem: Problem, expected: Estimate) -> None: ...

    def round(self, record: RoundRecord, ledger: Ledger) -> None: ...

    def finish(self, result: RunResult, weights: Weights | None) -> None:
        """`weights` are those of the server's model, if the method has one."""
        ...


@dataclass(frozen=True, slots=True)
class _Open:
    """A round that is closed but not written down: the server's model may still be learning."""

    record: RoundRecord
    ledger: Ledger  # as of its end
    learned: Future[Learned]
    snapshot: Snapshot | None  # to be saved


class Books:
    """Writes down whole rounds: records for the watchers, and checkpoints.

    A round's seconds go from the end of the round before to its own. What the server's model still has to learn then is
    part of the next one's, and at last of its own.
    """

    def __init__(self, watchers: Sequence[Watcher], checkpoints: Checkpoints | None, weights: Weights) -> None:
        self.records: list[RoundRecord] = []
        self.weights = weights  # of the server's model after the last round that was written down
        self._watchers = watchers
        self._checkpoints = checkpoints
        self._open: _Open | None = None
        self._lap = time.perf_counter()

    def close(self, record: RoundRecord, ledger: Ledger, learned: Future[Learned], snapshot: Snapshot | None) -> None:
        """Take in a round that is over."""
        self.settle()
        self._open = _Open(record, ledger, learned, snapshot)
        self.settle_what_is_done()
        if self._open is not None:
            self._open = replace(self._open, record=replace(record, seconds=self._seconds()))

    def begin(self) -> None:
        """The first round begins."""
        self._seconds()

    def finish(self) -> None:
        """Write down the last round."""
        if self._open is not None:
            self._open.learned.result()
            record = replace(self._open.record, seconds=self._open.record.seconds + self._seconds())
            self._open = replace(self._open, record=record)
        self.settle()

    def settle_what_is_done(self) -> None:
        """Write down the round that is over, if all is known of it."""
        if self._open is not None and self._open.learned.done():
            self.settle()

    def settle(self) -> None:
        """Write down the round that is over, if there is one."""
        if self._open is None:
            return
        learned = self._open.learned.result()
        now, self._open = self._open, None
        accuracy, loss = learned.measured or (None, None)
        seconds = now.record.seconds or self._seconds()
        record = replace(now.record, server_accuracy=accuracy, server_loss=loss, seconds=seconds)
        self.weights = learned.weights
        self.records.append(record)
        for watcher in self._watchers:
            watcher.round(record, now.ledger)
        if self._checkpoints is not None and now.snapshot is not None:
            self._checkpoints.save(now.snapshot, learned.weights)

    def _seconds(self) -> float:
        """Since this was asked last."""
        before, self._lap = self._lap, time.perf_counter()
        return self._lap - before


def record_of(closed: ClosedRound, ledger: Ledger) -> RoundRecord:
    """What a round came to, but for what is not known yet: its seconds, and what the server's model learned."""
    accuracies = [report["accuracy"] for report in closed.reports.values() if "accuracy" in report]
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
    )
