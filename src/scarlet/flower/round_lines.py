"""One line a round for the operator: who answered, who was late or failed, and the bytes."""

from __future__ import annotations

from collections.abc import Mapping

from scarlet.experiment.estimate import Estimate
from scarlet.experiment.federation import Federation
from scarlet.experiment.result import Result
from scarlet.experiment.round_log import Metrics
from scarlet.records import RoundRecord
from scarlet.transport.flower import Event
from scarlet.wire.ledger import Ledger


class RoundLines:
    """A watcher that prints a line when a round is closed, and one when a node joins or is refused."""

    def __init__(self) -> None:
        self._missing: dict[int, str] = {}  # clients that did not answer the round under way, and why

    def event(self, event: Event) -> None:
        """Something happened to a node."""
        if (
            event.client is not None
            and event.what not in ("joined", "offline")
            and not event.what.startswith("refused: ")
        ):
            self._missing[event.client] = event.what
            return
        who = f"node {event.node}" if event.client is None else f"client {event.client} (node {event.node})"
        print(f"scarlet: {who} {event.what}", flush=True)

    def start(self, config: Mapping[str, object], federation: Federation, expected: Estimate) -> None:
        agreement = federation.agreement
        print(f"scarlet: experiment {agreement.digest.hex()}, waiting for {agreement.clients} clients", flush=True)

    def round(self, record: RoundRecord, ledger: Ledger, clients: Metrics) -> None:
        asked = ledger.by_client()
        answered = sorted(number for number, columns in asked.items() if columns["uplink"].size)
        who = f"all {len(asked)}" if len(answered) == len(asked) else ", ".join(map(str, answered)) or "nobody"
        missing, self._missing = self._missing, {}
        absent = "; ".join(f"{number}: {why}" for number, why in sorted(missing.items()) if number not in answered)
        accuracy = "" if record.server_accuracy is None else f", server accuracy {record.server_accuracy:.3f}"
        up, down = record.uplink_bytes + record.uplink_frame_bytes, record.downlink_bytes + record.downlink_frame_bytes
        print(
            f"scarlet: round {record.round}: answered {who}"
            f"{f'; not {absent}' if absent else ''}; {down:,} B down, {up:,} B up, {record.seconds:.1f} s{accuracy}",
            flush=True,
        )

    def finish(self, result: Result) -> None:
        """Nothing: whoever runs the rounds says how they ended."""
