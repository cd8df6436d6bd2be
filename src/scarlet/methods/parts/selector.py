"""Who is worth listening to on a sample (Selective-FD): the client's selector and the server's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from scarlet.arrays import Inputs, Labels, Mask
from scarlet.errors import ConfigError, unknown
from scarlet.methods.parts.kulsif import in_distribution
from scarlet.methods.parts.mean import Keep
from scarlet.protocol.method import Filter, Prepared

Fitting = Literal["paper", "original"]
_FITTINGS: dict[Fitting, Callable[..., Mask]] = {
    "paper": in_distribution,
    "original": partial(in_distribution, ridge_exponent=-0.5, used_share=1.0, fitted_share=0.05, auxiliary=250),
}


@dataclass(frozen=True, slots=True)
class InDistribution(Filter):
    """A client answers the samples that look like its own: those whose density ratio is above a quantile of its own."""

    threshold: float  # tau_client: the quantile
    kernel_width: float
    fitting: Fitting = "paper"

    def __post_init__(self) -> None:
        if not 0 <= self.threshold < 1:
            raise ConfigError(
                f"tau_client must be at least 0 and less than 1, got {self.threshold}; the paper uses 0.0625"
            )
        if not (np.isfinite(self.kernel_width) and self.kernel_width > 0):
            raise ConfigError(f"kernel_width must be more than 0, got {self.kernel_width}; the paper uses 5")
        if self.fitting not in _FITTINGS:
            raise unknown("selector", self.fitting, _FITTINGS)

    def prepare(self, private: Inputs, public: Inputs, rng: np.random.Generator) -> Prepared:
        select = _FITTINGS[self.fitting]
        return {"accepted": select(private, public, rng, threshold=self.threshold, width=self.kernel_width)}

    def __call__(self, labels: Labels, prepared: Prepared) -> Labels:
        accepted = prepared["accepted"][labels.index].astype(np.bool_)
        return Labels(labels.index[accepted], labels.value[accepted])


def unambiguous(tau: float) -> Keep | None:
    """Keep a mean label z if its L1 distance from its nearest one-hot label, 2 (1 - max_i z_i), is less than tau.

    The distance is below 2, so tau=2 keeps everything.
    """
    if not 0 < tau <= 2:
        raise ConfigError(f"tau_server must be more than 0 and at most 2, got {tau}; 2 switches the selector off")
    if tau == 2:
        return None
    return lambda mean: 2 * (1 - mean.max(axis=1)) < tau
