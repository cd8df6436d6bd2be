"""What the side of the clients must know beside their data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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
class Kind:
    """What clients of one kind have in common: their model, and how it is trained and its inputs prepared."""

    model: str  # the name of the architecture
    factory: ModelFactory
    weights: Weights  # that they start from
    training: Training
    cost: int = 1  # work for one sample, relative to the other kinds
    channels_last: bool = False  # the memory format of the model
    clients_at_once: int | None = None  # trained together at most; None: one after another


@dataclass(frozen=True, slots=True)
class ClientSetup:
    """What a process needs, beside the data, to run any client."""

    method: Callable[[], Method]  # a method itself holds functions that cannot be sent to another process
    agreement: Agreement
    kinds: Sequence[Kind]
    kind_of: npt.NDArray[np.int32]  # i32[K]: the kind of each client
    device: str
    evaluation: Evaluation
    faults: FaultInjection
    clients_in_memory: int | None = None  # over all workers; None: as many as fit into the budget

    def kind(self, client: int) -> Kind:
        """The kind of a client."""
        return self.kinds[int(self.kind_of[client])]

    @property
    def together(self) -> bool:
        """Whether clients are trained together."""
        return any(kind.clients_at_once is not None for kind in self.kinds)


def client_bytes(method: Method, agreement: Agreement, kinds: Sequence[Kind], inputs: int) -> int:
    """The memory of a client whose inputs take that many bytes: its model, its inputs and its protocol state."""
    state = Client(0, method, agreement, codec(agreement.codec, method, agreement)).state
    model = max(sum(int(value.nbytes) for value in kind.weights.values()) for kind in kinds)
    return model + inputs + sum(array.nbytes for array in arrays_of(state).values())


def clients_in_memory(wanted: int | None, clients: int, bytes_each: int) -> int:
    """How many clients are kept in memory, over all workers."""
    return min(clients, max(1, int(BUDGET // bytes_each)) if wanted is None else wanted)
