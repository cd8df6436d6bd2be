"""Which plots the page shows, and how to read each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from scarlet.report.curves import MEGABYTE


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot: which quantity it shows, against what, and how to read it."""

    id: str
    title: str
    caption: str
    quantity: str
    against: Literal["megabytes", "round"]
    unit: float = 1.0
    from_zero: bool = True

    @property
    def shows_traffic(self) -> bool:
        """Whether it depends on which bytes are counted."""
        return self.against == "megabytes" or self.quantity in ("uplink_bytes", "downlink_bytes")


TRADE_OFF = (
    Panel(
        id="server-megabytes",
        title="Server accuracy against megabytes",
        caption="Higher and further left is better: more accuracy for less traffic of all clients.",
        quantity="server_accuracy",
        from_zero=False,
        against="megabytes",
    ),
    Panel(
        id="client-megabytes",
        title="Client accuracy against megabytes",
        caption="The mean over clients, read the same way; dotted: a method that sends nothing.",
        quantity="client_accuracy",
        from_zero=False,
        against="megabytes",
    ),
)
ROUND_BY_ROUND = (
    Panel(
        id="server-round",
        title="Server accuracy",
        caption="Higher is better; a steeper rise needs fewer rounds.",
        quantity="server_accuracy",
        from_zero=False,
        against="round",
    ),
    Panel(
        id="client-round",
        title="Client accuracy",
        caption="The mean over the clients; higher is better.",
        quantity="client_accuracy",
        from_zero=False,
        against="round",
    ),
    Panel(
        id="hit-ratio",
        title="Cache hit ratio",
        caption="The share of a round's samples that were not sent again; higher saves more.",
        quantity="cache_hit_ratio",
        against="round",
    ),
    Panel(
        id="uplink",
        title="MB a round, up",
        caption="What all clients send to the server; lower is better.",
        quantity="uplink_bytes",
        against="round",
        unit=MEGABYTE,
    ),
    Panel(
        id="downlink",
        title="MB a round, down",
        caption="What the server sends to all clients; lower is better.",
        quantity="downlink_bytes",
        against="round",
        unit=MEGABYTE,
    ),
    Panel(
        id="entropy",
        title="Mean teacher entropy",
        caption="How undecided the labels are that models learn from; 0 is certain.",
        quantity="mean_teacher_entropy",
        against="round",
    ),
)
