"""What is done to the mean of a sample's soft-labels: Enhanced ERA with a beta that is given or chosen, and ERA."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from typing_extensions import Doc

from scarlet.arrays import Index, Labels, Values
from scarlet.errors import ConfigError
from scarlet.protocol.aggregation import Sharpened

Rows = npt.NDArray[np.float64]
Sharpen = Callable[[Rows], Rows]

Beta = Annotated[
    float | Literal["auto"],
    Doc(
        "exponent of Enhanced ERA; larger sharpens the mean soft-labels more, 1 leaves them unchanged; auto: the "
        "server chooses one for each round, from how far the clients disagree"
    ),
]
Rho = Annotated[float, Doc("with --beta auto: fraction of the clients' disagreement that sharpening removes; 0: none")]

LEAST_BETA, MOST_BETA = 1.0, 8.0  # of Adaptive
_ROUNDING = 1e-5  # nats; entropies in single precision are not exact, and near uniform labels a little is much
_NEVER = -1e4  # the logarithm of an exact zero: no power of it counts


@dataclass(frozen=True, slots=True)
class Power:
    """Enhanced ERA: z_i^beta / sum_j z_j^beta (Eq. 4), in log space; an exact zero stays zero. beta=1: the identity."""

    beta: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.beta) and self.beta > 0):
            raise ConfigError(f"beta must be more than 0, got {self.beta}; use 1 to leave the mean as it is")

    def __call__(self, mean: Rows) -> Rows:
        with np.errstate(divide="ignore"):
            return _softmax(np.log(mean), self.beta)


@dataclass(frozen=True, slots=True)
class Adaptive:
    """Enhanced ERA with one beta for all labels of a round, which the server chooses from the answers themselves.

    The entropy of a sample's mean is what the clients are unsure of themselves, the mean entropy of their answers, and
    what they disagree about, the rest (the Jensen-Shannon divergence). Sharpening takes away the share `rho` of the
    disagreement and leaves the doubt: beta is such that the mean entropy of the sharpened labels is that of the means
    less rho times the disagreement. Clients that agree give beta = 1.
    """

    rho: float

    def __post_init__(self) -> None:
        if not 0 <= self.rho <= 1:
            raise ConfigError(f"rho must be from 0 to 1, got {self.rho}; it is a share of the clients' disagreement")

    def power(self, mean: Rows, doubt: Rows) -> Power:
        """The sharpening of a round, given the mean of the answers to each sample and their mean entropy.

        Of k answers some (k - 1) / k of the disagreement is seen, and their mean is the sharper the fewer they are; so
        with fewer answers beta is nearer to 1, and with one it is 1.
        """
        if not len(mean):
            return Power(1.0)
        with np.errstate(divide="ignore"):
            logs = np.maximum(np.log(mean.T, order="C"), _NEVER)  # classes come first, because numpy adds rows faster
        logs -= logs.max(axis=0)
        disagreement = _entropy(logs, 1.0)[0] - float(doubt.mean())  # a robust average may be surer than its answers
        return Power(_beta(logs, self.rho * disagreement) if disagreement > _ROUNDING else LEAST_BETA)


def enhanced_era(beta: Beta, rho: Rho) -> Power | Adaptive:
    """Enhanced ERA with a beta that is given, or that is chosen for each round."""
    adaptive = Adaptive(rho)  # which also checks a rho that is not used
    if isinstance(beta, str) and beta != "auto":
        raise ConfigError(f"beta must be a number or auto, got {beta!r}; use 1 to leave the mean as it is")
    return adaptive if beta == "auto" else Power(beta)


def era(temperature: float) -> Sharpen:
    """ERA of DS-FL: softmax(z / T) over the averaged *probabilities* (Eq. 2). It is not the identity for any T."""
    if not (np.isfinite(temperature) and temperature > 0):
        raise ConfigError(f"temperature must be more than 0, got {temperature}; 0.1 is usual for ten classes")
    return lambda mean: _softmax(mean, 1 / temperature)


def sharpened(index: Index, mean: Rows, doubt: Rows | None, then: Sharpen | Adaptive | None) -> Labels:
    """The labels that `then` makes of the means, with the beta where there is one."""
    if isinstance(then, Adaptive):
        assert doubt is not None
        then = then.power(mean, doubt)
    value = (mean if then is None else then(mean)).astype(np.float32)
    return Sharpened(index, value, then.beta) if isinstance(then, Power) and len(index) else Labels(index, value)


def doubts(value: Values) -> Values:
    """The entropy of each label of an answer, in nats; in single precision, because many answers have many labels."""
    logs = np.log(np.maximum(value, np.finfo(np.float32).tiny))
    total = value.dot(np.ones(value.shape[1], np.float32))  # of a distribution 1, up to a tolerance
    entropies: Values = np.log(total) - np.einsum("ij,ij->i", value, logs) / total
    return entropies


def _beta(logs: Rows, less: float) -> float:
    """The power of exp(logs) whose mean entropy is `less` than that of the first; Newton's steps within bisection.

    scipy.optimize has it too, and takes a second to load.
    """
    low, high, beta = LEAST_BETA, MOST_BETA, LEAST_BETA
    target = _entropy(logs, LEAST_BETA)[0] - less
    if _entropy(logs, MOST_BETA)[0] >= target:
        return MOST_BETA
    for _ in range(60):
        found, slope = _entropy(logs, beta)
        low, high = (beta, high) if found > target else (low, beta)
        step = beta - (found - target) / slope if slope < 0 else high
        following = step if low < step < high else (low + high) / 2
        if abs(following - beta) < 1e-9:
            break
        beta = following
    return beta


def _entropy(logs: Rows, beta: float) -> tuple[float, float]:
    """The mean entropy of exp(beta x logs), normalised, and its derivative by beta; the largest of a column is 0."""
    powers = np.exp(beta * logs)
    total = powers.sum(axis=0)
    powers *= logs
    mean = powers.sum(axis=0) / total
    powers *= logs
    square = powers.sum(axis=0) / total
    return float((np.log(total) - beta * mean).mean()), float(-beta * (square - mean * mean).mean())


def _softmax(scores: Rows, factor: float) -> Rows:
    """softmax(factor x scores); the largest score of a row becomes 0 before it is scaled, so that nothing overflows."""
    if not len(scores):
        return scores
    below = scores - scores.max(axis=1, keepdims=True)
    with np.errstate(over="ignore", invalid="ignore"):
        raised = np.where(below == 0, 1.0, np.exp(factor * below))
    softened: Rows = raised / raised.sum(axis=1, keepdims=True)
    return softened
