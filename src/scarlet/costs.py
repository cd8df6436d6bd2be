"""What a method costs on the wire: its messages, played through the real server, client and codec without training."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from typing_extensions import Doc

from scarlet.config import check_at_least, check_per_round
from scarlet.core.cache import Duration, OnExpiry
from scarlet.core.client import Client
from scarlet.core.method import Method
from scarlet.core.server import Federation, Server
from scarlet.core.types import Result
from scarlet.methods.registry import METHODS, Entry
from scarlet.wire.codec import codec
from scarlet.wire.ledger import Ledger

MB, GB = 1e6, 1e9


@dataclass(frozen=True, slots=True)
class CostsConfig:
    """The setting to play; the defaults are those of the paper's cost table."""

    clients: Annotated[int, Doc("K, all of which take part")] = 100
    public_size: Annotated[int, Doc("|P|, public samples")] = 10_000
    public_per_round: Annotated[int, Doc("|P^t|, public samples a round")] = 1_000
    classes: Annotated[int, Doc("N, entries of a soft-label")] = 10
    cache_duration: Annotated[int, Doc("D, for the methods that cache")] = 50
    on_expiry: Annotated[OnExpiry, Doc("delete is the paper's")] = "delete"
    rounds: Annotated[int, Doc("communication rounds")] = 3_000
    codec: Annotated[str, Doc("reference is the paper's accounting")] = "reference"
    seed: Annotated[int, Doc("names the draws")] = 0

    def __post_init__(self) -> None:
        for name in ("clients", "public_size", "public_per_round", "rounds"):
            check_at_least(name, getattr(self, name), 1)
        check_at_least("classes", self.classes, 2)
        check_at_least("seed", self.seed, 0)
        check_per_round(self.public_per_round, self.public_size)
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
        return cls(float(later.mean()), float(later.std()), float(later.max())) if len(later) else cls(*3 * (math.nan,))


@dataclass(frozen=True, slots=True)
class Traffic:
    """The payload of every round, all clients together."""

    uplink: npt.NDArray[np.int64]  # [rounds]
    downlink: npt.NDArray[np.int64]  # [rounds]

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
    downlink_mb: Spread
    total_gb: float


def costs(config: CostsConfig) -> list[Cost]:
    """The cost table: a row for each method that is registered."""
    return [_cost(entry, config) for entry in METHODS.values()]


def play(method: Method, federation: Federation, rounds: int, codec_name: str) -> Traffic:
    """Play the messages of some rounds.

    When all clients take part they are sent the same and answer as much, so one real client stands for all.
    """
    wire, ledger = codec(codec_name), Ledger()
    server = Server(method, replace(federation, clients=1), wire, ledger)
    client = Client(0, federation.public_size, federation.classes, wire)
    label = np.full(federation.classes, 1 / federation.classes, np.float32)
    uplink, downlink = np.zeros((2, rounds), np.int64)
    for round in range(rounds):
        for data in server.open_round().values():
            job = client.receive(data)
            for message in client.reply(job, Result(np.tile(label, (len(job.request), 1)), {})):
                server.take(0, message)
        server.close_round()
        uplink[round] = ledger.round_total("uplink").payload
        downlink[round] = ledger.round_total("downlink").payload
    return Traffic(uplink * federation.clients, downlink * federation.clients)


def _cost(entry: Entry[Any], config: CostsConfig) -> Cost:
    known = {field.name for field in fields(entry.config)}
    chosen = {name: getattr(config, name) for name in ("cache_duration", "on_expiry") if name in known}
    method: Method = entry.build(entry.config(**chosen))
    federation = Federation(config.clients, config.public_size, config.public_per_round, config.classes, config.seed)
    traffic = play(method, federation, config.rounds, config.codec)
    return Cost(
        method=entry.name,
        codec=config.codec,
        on_expiry=chosen.get("on_expiry"),
        participation=1.0,
        uplink_mb=Spread.of(traffic.uplink),
        downlink_mb=Spread.of(traffic.downlink),
        total_gb=traffic.total / GB,
    )
