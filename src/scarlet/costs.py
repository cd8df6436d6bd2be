"""What a method costs on the wire: its messages, played through the real server, client and codec without training."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from typing_extensions import Doc

from scarlet.config import check_at_least, check_participation, check_per_round
from scarlet.core.cache import Duration, OnExpiry
from scarlet.core.client import Client
from scarlet.core.method import Method
from scarlet.core.server import Federation, Server
from scarlet.core.types import Broadcast, Index, Job, Labels, Uplink
from scarlet.methods.registry import METHODS, Entry
from scarlet.wire import frame
from scarlet.wire.codec import codec
from scarlet.wire.ledger import Column, Ledger

MB, GB = 1e6, 1e9


@dataclass(frozen=True, slots=True)
class CostsConfig:
    """The setting to play; the defaults are those of the paper's cost table."""

    clients: Annotated[int, Doc("K, how many clients there are")] = 100
    participation: Annotated[float, Doc("p, the share of the clients that a round asks")] = 1.0
    public_size: Annotated[int, Doc("|P|, public samples")] = 10_000
    public_per_round: Annotated[int, Doc("|P^t|, public samples a round")] = 1_000
    classes: Annotated[int, Doc("N, entries of a soft-label")] = 10
    cache_duration: Annotated[int, Doc("D, for the methods that cache")] = 50
    on_expiry: Annotated[OnExpiry, Doc("delete is the paper's")] = "delete"
    rounds: Annotated[int, Doc("communication rounds")] = 3_000
    codec: Annotated[str, Doc("reference is the paper's accounting")] = "reference"
    seed: Annotated[int, Doc("names the draws")] = 0

    def __post_init__(self) -> None:
        for name in ("clients", "public_size", "public_per_round"):
            check_at_least(name, getattr(self, name), 1)
        check_at_least("rounds", self.rounds, 2)  # the first is left out of the means
        check_at_least("classes", self.classes, 2)
        check_at_least("seed", self.seed, 0)
        check_per_round(self.public_per_round, self.public_size)
        check_participation(self.participation)
        Duration(self.cache_duration, self.on_expiry)
        codec(self.codec)


@dataclass(frozen=True, slots=True)
class Spread:
    """Megabytes a round, all clients together; the first round, which has nothing to sync, is left out."""

    mean: float
    std: float
    max: float

    @classmethod
    def of(cls, payload: npt.NDArray[np.int64]) -> Spread:
        later = payload[1:] / MB
        return cls(float(later.mean()), float(later.std()), float(later.max()))


@dataclass(frozen=True, slots=True)
class Traffic:
    """The payload of every round, all clients together."""

    uplink: npt.NDArray[np.int64]  # [rounds]
    downlink: npt.NDArray[np.int64]  # [rounds], catch-up included
    catch_up: npt.NDArray[np.int64]  # [rounds]: what went to clients that had missed something

    @property
    def total(self) -> int:
        return int(self.uplink.sum() + self.downlink.sum())


@dataclass(frozen=True, slots=True)
class Cost:
    """One row of the cost table."""

    method: str
    codec: str
    on_expiry: str | None  # None: the method keeps no cache
    participation: float
    uplink_mb: Spread
    downlink_mb: Spread  # catch-up included
    catch_up_mb: Spread
    total_gb: float


def costs(config: CostsConfig) -> list[Cost]:
    """The cost table: a row for each method that is registered."""
    return [_cost(entry, config) for entry in METHODS.values()]


def play(method: Method, federation: Federation, rounds: int, codec_name: str) -> Traffic:
    """Play the messages of some rounds.

    When all clients take part they are sent the same and answer as much, so one stands for all. Otherwise the real
    server works out what each of them lacks; client 0 is a real one, and would notice if an entry were missing.
    """
    everybody = federation.asked == federation.clients
    played = replace(federation, clients=1, participation=1.0, min_answers=1) if everybody else federation
    wire, ledger = codec(codec_name), Ledger()
    server = Server(replace(method, aggregate=_Uniform), played, wire, ledger)
    witness = Client(0, federation.public_size, federation.classes, wire, federation.public)
    columns: tuple[Column, ...] = ("uplink", "downlink", "catch_up")
    traffic = np.zeros((len(columns), rounds), np.int64)
    for round in range(rounds):
        request: Index | None = None
        for client, data in server.open_round().items():
            if request is None:
                (broadcast, *_) = frame.split(data)
                message = wire.decode(broadcast)
                assert isinstance(message, Broadcast)
                request = message.request
                labels = _Uniform(request, federation.classes).finish()
            if client == 0 and not isinstance(witness.receive(data), Job):
                raise RuntimeError(f"client 0 cannot rebuild the labels of round {round}")
            server.take(client, wire.encode(Uplink(round + 1, 0, client, labels)))
        server.close_round()
        traffic[:, round] = [ledger.round_total(column).payload for column in columns]
    traffic *= federation.clients if everybody else 1
    return Traffic(traffic[0], traffic[1] + traffic[2], traffic[2])


class _Uniform:
    """A fold that needs no answers: what a label says makes no difference to what it costs."""

    def __init__(self, request: Index, classes: int) -> None:
        self._labels = Labels(request, np.full((len(request), classes), 1 / classes, np.float32))

    def add(self, labels: Labels) -> None: ...

    def finish(self) -> Labels:
        return self._labels


def _cost(entry: Entry[Any], config: CostsConfig) -> Cost:
    known = {field.name for field in fields(entry.config)}
    chosen = {name: getattr(config, name) for name in ("cache_duration", "on_expiry") if name in known}
    method: Method = entry.build(entry.config(**chosen))
    federation = Federation(
        clients=config.clients,
        public_size=config.public_size,
        public_per_round=config.public_per_round,
        classes=config.classes,
        seed=config.seed,
        participation=config.participation,
    )
    traffic = play(method, federation, config.rounds, config.codec)
    return Cost(
        method=entry.name,
        codec=config.codec,
        on_expiry=chosen.get("on_expiry"),
        participation=config.participation,
        uplink_mb=Spread.of(traffic.uplink),
        downlink_mb=Spread.of(traffic.downlink),
        catch_up_mb=Spread.of(traffic.catch_up),
        total_gb=traffic.total / GB,
    )
