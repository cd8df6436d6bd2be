"""One place counts every byte that crosses between server and client."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Literal, get_args

Column = Literal["uplink", "downlink", "catch_up", "report", "rejected"]


COLUMNS: tuple[Column, ...] = get_args(Column)


@dataclass(frozen=True, slots=True)
class Bytes:
    """A sum of messages: what the method sends, and what surrounds it."""

    payload: int = 0
    frame: int = 0

    @property
    def size(self) -> int:
        return self.payload + self.frame

    def __add__(self, other: Bytes) -> Bytes:
        return Bytes(self.payload + other.payload, self.frame + other.frame)


def _columns() -> dict[Column, Bytes]:
    return {column: Bytes() for column in COLUMNS}


@dataclass(slots=True)
class Ledger:
    """Payload and frame for each direction and client of the round under way, and the totals of all rounds.

    Reports have a column of their own: they are for people, not for the method. What a transport adds to the messages
    that it carries is known for a round only, because it may carry several at once.
    """

    uplink_transport: int = 0  # bytes of the round under way beyond its messages
    downlink_transport: int = 0
    total: dict[Column, Bytes] = field(default_factory=_columns)
    _round: dict[int, dict[Column, Bytes]] = field(default_factory=lambda: defaultdict(_columns))

    def copy(self) -> Ledger:
        """The ledger as it is now."""
        now = Ledger(self.uplink_transport, self.downlink_transport, dict(self.total))
        now._round.update({client: dict(columns) for client, columns in self._round.items()})
        return now

    def open_round(self) -> None:
        """Begin a round; what the last one cost stays in the totals."""
        self._round.clear()
        self.uplink_transport = self.downlink_transport = 0

    def add(self, column: Column, client: int, *, size: int, payload: int) -> None:
        """Count one message of `size` bytes, `payload` of which are the method's own."""
        for columns in (self._round[client], self.total):
            before = columns[column]
            columns[column] = Bytes(before.payload + payload, before.frame + size - payload)

    def carried(self, *, uplink: int, downlink: int) -> None:
        """Count what the transport added to messages of the round under way."""
        self.uplink_transport += uplink
        self.downlink_transport += downlink

    def by_client(self) -> dict[int, dict[Column, Bytes]]:
        """The round under way, client by client."""
        return dict(self._round)

    def round_total(self, column: Column) -> Bytes:
        """The round under way, all clients together."""
        return sum((columns[column] for columns in self._round.values()), Bytes())

    @property
    def cumulative_payload(self) -> int:
        """The method's own bytes in both directions, over all rounds (the paper's communication cost)."""
        return sum(self.total[column].payload for column in ("uplink", "downlink", "catch_up"))
