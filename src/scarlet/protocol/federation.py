"""What server and clients agree on before the first round."""

from __future__ import annotations

from dataclasses import dataclass

from scarlet.protocol.types import DIGEST_BYTES


@dataclass(frozen=True, slots=True)
class Federation:
    """What server and clients agree on before the first round."""

    clients: int
    public_size: int
    public_per_round: int
    classes: int
    seed: int
    participation: float = 1.0  # the share of clients that a round asks
    min_answers: int = 1  # a round with fewer is tried again
    public: bytes = bytes(DIGEST_BYTES)  # the fingerprint of the public set

    @property
    def asked(self) -> int:
        """How many clients a round asks: round(p K), and at least one."""
        return max(1, round(self.participation * self.clients))
