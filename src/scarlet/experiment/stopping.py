"""When a run ends before its last round: a budget is spent, an accuracy is reached, or it has converged."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from scarlet.config import Config
from scarlet.errors import ConfigError
from scarlet.protocol.method import Method
from scarlet.records import RoundRecord

WINDOW = 10  # evaluations over which a loss is averaged
PATIENCE = 30  # evaluations in which the mean must fall to the next lower level
LEAST_FALL = 0.02  # of the mean, which counts as a fall


@dataclass(frozen=True, slots=True)
class Stopping:
    """The rules of a run; the first that holds ends it."""

    megabytes: float | None = None
    accuracy: float | None = None
    seconds: float | None = None
    converged: bool = False

    @classmethod
    def of(cls, config: Config) -> Stopping:
        """The rules that the options name; ConfigError where a run would end before it can be called converged."""
        evaluations = config.rounds // config.eval_every
        if config.stop_when == "converged" and evaluations < WINDOW + PATIENCE:
            raise ConfigError(
                f"stop_when converged needs {WINDOW + PATIENCE} evaluations or more, and {config.rounds} rounds with "
                f"eval_every = {config.eval_every} have {evaluations}; raise rounds, or lower eval_every"
            )
        return cls(config.stop_at_mb, config.stop_at_accuracy, config.stop_at_seconds, config.stop_when == "converged")

    def idle(self, method: Method, config: Config) -> str | None:
        """What is wrong with a rule that can never end a run of the method, if there is one."""
        learned = method.server_learns and method.uses_public and config.public_validation > 0
        if self.converged and not (learned or config.private_validation > 0):
            return (
                "stop_when converged needs a validation loss, and this method has none on public samples; give "
                "--private-validation"
            )
        if self.accuracy is not None and not method.server_learns:
            return (
                f"stop_at_accuracy {self.accuracy:g} is of the server's model, and this method has none; leave it out"
            )
        if self.megabytes is not None and not (method.uses_public or method.uplink.sends_parameters):
            return f"stop_at_mb {self.megabytes:g} is of traffic, and this method sends nothing; leave it out"
        return None

    def reason(self, records: Sequence[RoundRecord]) -> str | None:
        """Why the run ends after these rounds; None: it goes on."""
        if not records:
            return None
        last = records[-1]
        if self.megabytes is not None and last.cumulative_bytes >= self.megabytes * 1e6:
            return f"traffic of {self.megabytes:g} MB"
        if self.seconds is not None and sum(record.seconds for record in records) >= self.seconds:
            return f"{self.seconds:g} seconds"
        if self.accuracy is not None and last.server_accuracy is not None and last.server_accuracy >= self.accuracy:
            return f"server accuracy of {self.accuracy:g}"
        return "converged" if self.converged and has_converged(records) else None


ALL_ROUNDS = Stopping()


def check_rules(runs: Iterable[tuple[Method, Config]]) -> None:
    """Raise ConfigError where no run has rules that can end it: one of several methods may go on to its last round."""
    complaints = [Stopping.of(config).idle(method, config) for method, config in runs]
    if complaints and None not in complaints:
        raise ConfigError(str(complaints[0]))


def has_converged(records: Sequence[RoundRecord]) -> bool:
    """Whether no validation loss falls any more.

    A loss is averaged over the last WINDOW evaluations. It has stopped falling when for PATIENCE evaluations this mean
    has not been less than (1 - LEAST_FALL) of the smallest before them.
    """
    losses = [
        [value for record in records if (value := getattr(record, name)) is not None and math.isfinite(value)]
        for name in ("private_validation_loss", "public_validation_loss")
    ]
    return any(losses) and all(_is_flat(loss) for loss in losses if loss)


def _is_flat(loss: Sequence[float]) -> bool:
    if len(loss) < WINDOW + PATIENCE:
        return False
    means = np.convolve(loss, np.full(WINDOW, 1 / WINDOW), "valid")
    before, since = means[:-PATIENCE], means[-PATIENCE:]
    return bool(since.min() >= (1 - LEAST_FALL) * before.min())
