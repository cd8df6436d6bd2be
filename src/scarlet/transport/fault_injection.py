"""Injected faults: clients that drop out of a round, lose their disk, or send false labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from scarlet.job import Job, Result
from scarlet.rng import draw, stream

Attack = Literal["flip", "random"]


@dataclass(frozen=True, slots=True)
class FaultInjection:
    """Every draw has a named stream, so a run with faults can be repeated and resumed like any other. 0: none."""

    seed: int
    clients: int
    dropout: float = 0.0  # q: the probability that a client drops out of a round; half before training, half after
    wipe: float = 0.0  # the probability that a client loses its model and cache before a round
    abstain: int = 0  # rounds in which such a client then sends no labels
    hostile: float = 0.0  # the share of clients that send false labels, in every round
    attack: Attack = "flip"

    def wiped(self, client: int, round: int, attempt: int) -> bool:
        """The client has lost its disk."""
        if not self.wipe:
            return False
        rng = stream(self.seed, "troubles", client=client, round=round, attempt=attempt, purpose="wipe")
        return bool(rng.random() < self.wipe)

    def lost_before_training(self, job: Job) -> bool:
        """The client drops out before it trains."""
        return self._luck(job) < self.dropout / 2

    def lost_after_training(self, job: Job) -> bool:
        """The client has trained, but its reply is lost."""
        return self.dropout / 2 <= self._luck(job) < self.dropout

    def falsified(self, job: Job, result: Result) -> Result:
        """What a hostile client sends instead of its labels; an honest client's result is not changed."""
        rng = stream(self.seed, "troubles", purpose="hostile")
        if job.client not in draw(rng, self.clients, round(self.hostile * self.clients)):
            return result
        if self.attack == "flip":
            return replace(result, value=np.ascontiguousarray(result.value[:, ::-1]))
        rng = stream(self.seed, "troubles", client=job.client, round=job.round, attempt=job.attempt, purpose="labels")
        return replace(result, value=rng.dirichlet(np.ones(result.value.shape[1]), len(result.value)).astype("f4"))

    def _luck(self, job: Job) -> float:
        rng = stream(self.seed, "troubles", client=job.client, round=job.round, attempt=job.attempt, purpose="dropout")
        return rng.random()
