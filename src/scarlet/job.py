"""What a client has to do in a round, and what came of it: all that protocol and training say to each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from scarlet.arrays import Index, Labels, Values

Choose = Callable[[Labels, Values], Labels]  # (several teachers a sample, the client's soft-labels) -> one a sample


@dataclass(frozen=True, slots=True)
class Job:
    """Learn from the teacher, then from the client's own data, then label what is requested."""

    client: int
    round: int
    attempt: int
    teacher: Labels
    request: Index
    choose: Choose | None = None  # where the teacher has several labels for a sample; None: it has one
    distil_weight: float = 1.0  # lambda: the weight of the distillation loss
    restart: bool = False  # distil from the initial weights, not from the client's own
    parameters: Values | None = None  # f32[M]: all weights and buffers to begin with; None: the client's own
    send_parameters: bool = False  # whether the result must have those of the trained model
    downlink: bytes = b""  # a hash of the downlink that the job came from


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a job."""

    value: Values  # f32[r, N]: soft-labels of the requested samples
    metrics: Mapping[str, float]
    samples: int = 0  # training samples of the client
    parameters: Values | None = None  # f32[M]: all weights and buffers of its model, where the job wants them
