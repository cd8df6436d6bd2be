"""Which plots the page shows, and how to read each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from scarlet.report.curves import MEGABYTE


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot: which quantity it shows, how to read it, and what it is drawn against."""

    id: str
    quantity: str
    title: str
    caption: str
    against: Literal["megabytes", "round"] = "round"

    @property
    def unit(self) -> float:
        return MEGABYTE if self.quantity.endswith("_bytes") else 1.0

    @property
    def from_zero(self) -> bool:
        return not self.quantity.endswith("_accuracy")

    @property
    def shows_traffic(self) -> bool:
        """Whether it depends on which bytes are counted."""
        return self.against == "megabytes" or self.quantity.endswith("_bytes")


TRADE_OFF = (
    Panel(
        id="server-megabytes",
        quantity="server_accuracy",
        title="Server accuracy against megabytes",
        caption="Higher and further left is better: more accuracy for less traffic of all clients.",
        against="megabytes",
    ),
    Panel(
        id="client-megabytes",
        quantity="client_accuracy",
        title="Client accuracy against megabytes",
        caption="The mean over clients, read the same way; dotted: a method that sends nothing.",
        against="megabytes",
    ),
)
ROUND_BY_ROUND = (
    Panel("server-round", "server_accuracy", "Server accuracy", "Higher is better; a steeper rise needs fewer rounds."),
    Panel("client-round", "client_accuracy", "Client accuracy", "The mean over the clients; higher is better."),
    Panel(
        id="hit-ratio",
        quantity="cache_hit_ratio",
        title="Cache hit ratio",
        caption="The share of a round's samples that were not sent again; higher saves more.",
    ),
    Panel("uplink", "uplink_bytes", "MB a round, up", "What all clients send to the server; lower is better."),
    Panel("downlink", "downlink_bytes", "MB a round, down", "What the server sends to all clients; lower is better."),
    Panel(
        id="entropy",
        quantity="mean_teacher_entropy",
        title="Mean teacher entropy",
        caption="How undecided the labels are that models learn from; 0 is certain.",
    ),
    Panel(
        id="private-validation",
        quantity="private_validation_loss",
        title="Private validation loss",
        caption="On what the clients hold out of their own data, their mean; flat once their models have converged.",
    ),
    Panel(
        id="public-validation",
        quantity="public_validation_loss",
        title="Public validation loss",
        caption="Of the server's model, on soft-labels that it does not learn; flat once it has converged.",
    ),
    Panel(
        id="beta",
        quantity="beta",
        title="Sharpening exponent beta",
        caption="How much the mean of the clients' labels was sharpened; 1 leaves it as it is.",
    ),
)
