"""What goes wrong with clients in real federations, at will: dropouts, and clients that send false labels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from scarlet.protocol.types import Attack, Job, Result
from scarlet.rng import draw, stream


@dataclass(frozen=True, slots=True)
class Troubles:
    """Every draw is named, so a run with troubles can be repeated and resumed like any other. All 0: none."""

    seed: int
    clients: int
    dropout: float = 0.0  # q: how likely a client is to drop out of a round; half before training, half after
    hostile: float = 0.0  # the share of clients that send false labels, in every round
    attack: Attack = "flip"

    def lost_before_training(self, job: Job) -> bool:
        """The client never gets to work."""
        return self._luck(job) < self.dropout / 2

    def lost_after_training(self, job: Job) -> bool:
        """The client has trained, but its reply is lost."""
        return self.dropout / 2 <= self._luck(job) < self.dropout

    def falsified(self, job: Job, result: Result) -> Result:
        """What a hostile client sends instead of its labels; an honest one's are left alone."""
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
