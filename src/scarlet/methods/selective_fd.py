"""Selective-FD: selective knowledge sharing (Shao et al., Nature Communications 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from typing_extensions import Doc

from scarlet.methods.caching import Caching
from scarlet.methods.parts.aggregate import mean
from scarlet.methods.parts.selector import Fitting, InDistribution, unambiguous
from scarlet.protocol.downlink.shared import Shared
from scarlet.protocol.method import Method


@dataclass(frozen=True, slots=True)
class SelectiveFdConfig(Caching):
    """What Selective-FD adds to the options of every method."""

    tau_client: Annotated[float, Doc("share of its own kind of images that a client's selector may turn down")] = 0.0625
    tau_server: Annotated[float, Doc("largest L1 distance of a mean label from certainty; 2 switches it off")] = 2.0
    kernel_width: Annotated[float, Doc("of the selector's Gaussian kernel on pixels")] = 5.0
    selector: Annotated[Fitting, Doc("how a client's selector is fitted: as the paper's, or as the original")] = "paper"

    def __post_init__(self) -> None:
        selective_fd(self)


def selective_fd(config: SelectiveFdConfig) -> Method:
    """Clients answer only samples like their own (KuLSIF), and the server drops samples whose mean is ambiguous.

    tau_client=0 and tau_server=2 answer and keep nearly everything.
    """
    return Method(
        aggregate=mean(keep=unambiguous(config.tau_server)),
        filter=InDistribution(config.tau_client, config.kernel_width, config.selector),
        downlink=Shared(config.policy),
    )
