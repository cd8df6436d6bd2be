"""What server and clients agree on before the first round."""

from __future__ import annotations

from dataclasses import dataclass

from scarlet.arrays import DIGEST_BYTES


@dataclass(frozen=True, slots=True)
class Agreement:
    """What server and clients agree on before the first round, beside the method and the codec."""

    clients: int  # K
    public_size: int  # |P|
    public_per_round: int  # |P^t|
    classes: int  # N
    seed: int
    public: bytes = bytes(DIGEST_BYTES)  # the fingerprint of the public dataset
