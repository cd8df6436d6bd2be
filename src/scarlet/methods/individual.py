"""Individual: every client by itself. What collaboration must beat."""

from __future__ import annotations

from dataclasses import dataclass

from scarlet.methods.parts.mean import mean
from scarlet.protocol.method import Method, nothing


@dataclass(frozen=True, slots=True)
class IndividualConfig:
    """Individual has no options of its own."""


def individual(config: IndividualConfig) -> Method:
    """Local training alone: nothing is exchanged, and the server has no model."""
    return Method(aggregate=mean(), select=nothing, server_learns=False)
