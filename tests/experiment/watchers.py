"""Watchers of a run."""

from __future__ import annotations

from collections.abc import Mapping

from scarlet.experiment.estimate import Estimate
from scarlet.experiment.federation import Federation
from scarlet.experiment.result import Result
from scarlet.experiment.round_log import Metrics
from scarlet.records import RoundRecord
from scarlet.wire.ledger import Ledger


class Notes:
    """Writes down what it is told."""

    expected: Estimate

    def __init__(self) -> None:
        self.heard: list[str] = []

    def start(self, config: Mapping[str, object], federation: Federation, expected: Estimate) -> None:
        self.expected = expected
        self.heard.append("start")

    def round(self, record: RoundRecord, ledger: Ledger, clients: Metrics) -> None:
        self.heard.append(f"round {record.round}")

    def finish(self, result: Result) -> None:
        self.heard.append("finish")


class CtrlC(Notes):
    """Interrupts the run when a round is written, as the keyboard does; the checkpoint before is on its way."""

    def __init__(self, round: int) -> None:
        super().__init__()
        self._round = round

    def round(self, record: RoundRecord, ledger: Ledger, clients: Metrics) -> None:
        super().round(record, ledger, clients)
        if record.round == self._round:
            raise KeyboardInterrupt
