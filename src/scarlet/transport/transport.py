"""What the round loop asks of a transport: it moves bytes between the server and the clients, and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from scarlet.arrays import Array

States = Mapping[int, Mapping[str, Array]]  # client -> what the server's side keeps of it


@dataclass(frozen=True, slots=True)
class Failure:
    """A client that could not do its part of a round; the round counts it and goes on without."""

    reason: str  # one line
    trace: str = ""  # where it happened, if that is known on this side


@dataclass(frozen=True, slots=True)
class Overhead:
    """Bytes that the transport added to the messages of a round."""

    uplink: int = 0
    downlink: int = 0


class Transport(AbstractContextManager["Transport"], Protocol):
    """Moves bytes; late, double and unknown senders can occur. The context ends all that it started."""

    def available(self) -> Collection[int]:
        """The clients that could be asked now; where there are none, a transport waits for some."""

    def exchange(self, downlinks: Mapping[int, bytes], until: float) -> Iterator[tuple[int, bytes | Failure]]:
        """Hand each client its downlink; yield what they send as it arrives, in any order.

        It ends when all have answered or failed, or at `until`, a time of `time.monotonic`, at the latest.
        """

    def overhead(self) -> Overhead:
        """What was added to messages since this was asked last."""

    def states(self, clients: Sequence[int]) -> States:
        """What a checkpoint keeps of clients that were asked, and the transport is made with when a run is resumed.

        That is all that they remember, where they run on this machine, and else only what tells who they are.
        """

    @property
    def local(self) -> LocalClients | None:
        """What can be done with clients whose state lies on this machine; None where they keep it to themselves."""


class LocalClients(Protocol):
    """Clients that run on this machine, so that a checkpoint holds all of them as of one instant."""

    def collect(self) -> None:
        """Let the states of the clients that are asked next come along with their answers: `states` will want them."""

    def digests(self) -> list[bytes]:
        """A digest of each client's weights, in the order of the clients."""
