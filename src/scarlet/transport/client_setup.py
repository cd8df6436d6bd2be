"""What the side of the clients must know beside their data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scarlet.models.registry import ModelFactory, Weights
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.client import Client
from scarlet.protocol.codec_registry import codec
from scarlet.protocol.method import Method
from scarlet.protocol.state import arrays_of
from scarlet.training.train import Training
from scarlet.transport.fault_injection import FaultInjection

BUDGET = 2e9  # bytes of memory for clients, over all workers, unless their number is given


@dataclass(frozen=True, slots=True)
class Evaluation:
    """In which rounds accuracy is measured."""

    every: int
    last: int  # the last round of the run

    def due(self, round: int) -> bool:
        """Every `every`-th round, and the last."""
        return round % self.every == 0 or round == self.last


@dataclass(frozen=True, slots=True)
class ClientSetup:
    """What a process needs, beside the data, to run any client."""

    method: Callable[[], Method]  # a method itself holds functions that cannot be sent to another process
    agreement: Agreement
    codec: str
    factory: ModelFactory
    weights: Weights  # that all clients start from
    training: Training
    device: str
    evaluation: Evaluation
    faults: FaultInjection
    clients_in_memory: int | None = None  # over all workers; None: as many as fit into the budget
    clients_at_once: int | None = None  # trained together at most; None: one after another


def client_bytes(method: Method, agreement: Agreement, codec_name: str, weights: Weights, images: int) -> int:
    """The memory of a client whose images take that many bytes: its model, its images and its protocol state."""
    state = Client(0, method, agreement, codec(codec_name, method, agreement)).state
    model = sum(int(value.nbytes) for value in weights.values())
    return model + images + sum(array.nbytes for array in arrays_of(state).values())


def clients_in_memory(wanted: int | None, clients: int, bytes_each: int) -> int:
    """How many clients are kept in memory, over all workers."""
    return min(clients, max(1, int(BUDGET // bytes_each)) if wanted is None else wanted)
