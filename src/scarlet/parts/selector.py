"""Who is worth listening to on a sample (Selective-FD): the client's selector and the server's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scarlet.core.method import Answer, Kept
from scarlet.core.types import Images, Labels
from scarlet.errors import ConfigError
from scarlet.parts.aggregate import Keep
from scarlet.parts.kulsif import in_distribution


@dataclass(frozen=True, slots=True)
class InDistribution(Answer):
    """A client answers the samples that look like its own: those whose density ratio is above a quantile of its own."""

    threshold: float  # tau_client: the quantile
    kernel_width: float
    ridge_exponent: float

    def __post_init__(self) -> None:
        if not 0 <= self.threshold < 1:
            raise ConfigError(
                f"tau_client must be at least 0 and less than 1, got {self.threshold}; the paper uses 0.0625"
            )
        if not (np.isfinite(self.kernel_width) and self.kernel_width > 0):
            raise ConfigError(f"kernel_width must be more than 0, got {self.kernel_width}; the paper uses 5")
        if not -3 <= self.ridge_exponent <= 3:
            raise ConfigError(
                f"ridge_exponent must be from -3 to 3, got {self.ridge_exponent}; the paper uses 0.5, the original -0.5"
            )

    def prepare(self, private: Images, public: Images, rng: np.random.Generator) -> Kept:
        accepted = in_distribution(
            private,
            public,
            rng,
            threshold=self.threshold,
            width=self.kernel_width,
            ridge_exponent=self.ridge_exponent,
        )
        return {"accepted": accepted}

    def __call__(self, labels: Labels, kept: Kept) -> Labels:
        accepted = kept["accepted"][labels.index].astype(np.bool_)
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
