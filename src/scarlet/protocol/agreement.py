"""What server and clients agree on before the first round."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import blake2b

from scarlet.arrays import DIGEST_BYTES


@dataclass(frozen=True)
class Agreement:
    """What server and clients agree on before the first round.

    Its digest is in every broadcast, so that a client never answers the wrong experiment.
    """

    clients: int  # K
    public_size: int  # |P|
    public_per_round: int  # |P^t|
    classes: int  # N
    seed: int
    public: str = ""  # the fingerprint of the public dataset
    method: str = ""  # its name and options, as JSON
    codec: str = "reference"
    rounds: int = 0
    nonce: str = ""  # tells apart two experiments that agree in all else

    @cached_property
    def digest(self) -> bytes:
        """Names the experiment."""
        text = json.dumps(asdict(self), sort_keys=True)
        return blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()

    def differences(self, other: Agreement) -> list[str]:
        """The names of what two agreements differ in."""
        mine, theirs = asdict(self), asdict(other)
        return [name for name in mine if mine[name] != theirs[name]]
