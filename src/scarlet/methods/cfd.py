"""CFD: soft-label quantisation and delta coding (Sattler et al., IEEE TNSE 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from typing_extensions import Doc

from scarlet.arrays import Index
from scarlet.methods.caching import Caching
from scarlet.methods.parts.mean import mean
from scarlet.protocol.cache import Duration
from scarlet.protocol.downlink.shared import Shared
from scarlet.protocol.method import Method
from scarlet.protocol.unchanged_labels import Unchanged
from scarlet.protocol.uplink.delta import DeltaLabels
from scarlet.protocol.uplink.labels import SoftLabels
from scarlet.rng import draw, stream
from scarlet.wire.quantise import RAW_BITS, check_bits


@dataclass(frozen=True, slots=True)
class CfdConfig(Caching):
    """The options of CFD; the defaults are those of the SCARLET paper's comparison."""

    uplink_bits: Annotated[
        int, Doc("b_up, bits per soft-label entry sent by the clients; 1: only the largest class; 32: float32")
    ] = 1
    downlink_bits: Annotated[int, Doc("b_down, bits per soft-label entry sent by the server")] = 32
    delta: Annotated[
        bool, Doc("delta coding: send only the quantised soft-labels that changed since the last accepted message")
    ] = False
    restart: Annotated[bool, Doc("distil from the initial weights in every round, as the original CFD does")] = False
    subset: Annotated[
        Literal["drawn", "fixed"], Doc("public images of each round: newly drawn, or one fixed subset")
    ] = "drawn"

    def __post_init__(self) -> None:
        check_bits("uplink_bits", self.uplink_bits)
        check_bits("downlink_bits", self.downlink_bits)
        cfd(self)


def fixed(rng: np.random.Generator, population: int, size: int) -> Index:
    """The same random samples in every round."""
    return draw(stream(0, "server", purpose="fixed subset"), population, size)


def cfd(config: CfdConfig) -> Method:
    """Labels of few bits in both directions; the server teaches what its own model says (dual distillation).

    32 bits in both directions without delta leave a mean that is taught through the server's model.
    """
    # Labels of RAW_BITS and more hardly ever repeat.
    policy, delta = config.policy, config.delta and config.uplink_bits < RAW_BITS
    if config.delta and config.downlink_bits < RAW_BITS:
        policy = Unchanged(Duration(config.cache_duration, config.on_expiry))
    return Method(
        aggregate=mean(),
        downlink=Shared(policy, teach="model"),
        uplink=DeltaLabels() if delta else SoftLabels(),
        select=draw if config.subset == "drawn" else fixed,
        restart=config.restart,
        uplink_bits=config.uplink_bits,
        downlink_bits=config.downlink_bits,
    )
