"""Selective-FD: selective knowledge sharing (Shao et al., Nature Communications 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from typing_extensions import Doc

from scarlet.methods.caching import Caching
from scarlet.methods.parts.mean import mean
from scarlet.methods.parts.selector import Fitting, InDistribution, unambiguous
from scarlet.protocol.downlink.shared import Shared
from scarlet.protocol.method import Method


@dataclass(frozen=True, slots=True)
class SelectiveFdConfig(Caching):
    """The options of Selective-FD."""

    tau_client: Annotated[
        float,
        Doc("fraction of its own held-out images that a client's selector rejects; larger rejects more public images"),
    ] = 0.0625
    tau_server: Annotated[
        float, Doc("the server drops images whose mean soft-label is this far (L1) from one-hot; 2: none")
    ] = 2.0
    kernel_width: Annotated[float, Doc("width of the Gaussian kernel of the client's selector, on pixels")] = 5.0
    selector: Annotated[
        Fitting, Doc("constants of the client's selector: the SCARLET paper's, or those of the original Selective-FD")
    ] = "paper"

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
