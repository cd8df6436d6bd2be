"""What a method costs on the wire: its messages, played through the real server, client and codec without training."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from typing_extensions import Doc

from scarlet.arrays import Index, Labels, Values
from scarlet.config import build, check_at_least, check_participation, check_per_round
from scarlet.errors import ConfigError
from scarlet.job import Job, Result
from scarlet.methods.caching import Expiry
from scarlet.methods.comet import Assign
from scarlet.methods.registry import METHODS, Entry
from scarlet.protocol.aggregation import Teachers
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.cache import Duration
from scarlet.protocol.client import Client
from scarlet.protocol.codec_registry import check_codec, codec
from scarlet.protocol.method import Method
from scarlet.protocol.server import ALL_CLIENTS, Participation, Server
from scarlet.rng import draw, stream
from scarlet.wire.ledger import Column, Ledger

MB, GB = 1e6, 1e9


@dataclass(frozen=True, slots=True)
class CostsConfig:
    """The setting whose messages are counted; the defaults are those of the paper's cost table."""

    clients: Annotated[int, Doc("K, number of clients")] = 100
    participation: Annotated[float, Doc("p, fraction of the clients that take part in each round")] = 1.0
    public_size: Annotated[int, Doc("|P|, number of public images")] = 10_000
    public_per_round: Annotated[int, Doc("|P^t|, public images drawn for each round")] = 1_000
    classes: Annotated[int, Doc("N, number of classes, and so of entries in a soft-label")] = 10
    cache_duration: Annotated[int, Doc("cache duration D of SCARLET, in rounds")] = 50
    others_duration: Annotated[
        int, Doc("cache duration D of the other methods that can cache; 0: no cache; the paper also tries 25")
    ] = 0
    on_expiry: Expiry = "delete"
    kept_share: Annotated[float, Doc("fraction of the requested images that a client of Selective-FD answers")] = 0.808
    clusters: Annotated[int, Doc("clusters C of COMET; affects costs only where the client chooses its teacher")] = 2
    assign: Annotated[Assign, Doc("who chooses a client's teacher in COMET; with a cache it is always the client")] = (
        "server"
    )
    uplink_bits: Annotated[int, Doc("b_up, bits per soft-label entry sent by the clients of CFD")] = 1
    downlink_bits: Annotated[int, Doc("b_down, bits per soft-label entry sent by the server of CFD")] = 32
    model_size: Annotated[
        int, Doc("parameters and buffers of the model that FedAvg sends; the default is that of ResNet-20")
    ] = 271_117
    rounds: Annotated[int, Doc("number of communication rounds")] = 3_000
    codec: Annotated[
        str, Doc("message encoding: reference is float32 as in the paper, compact is a lower bound (uniform labels)")
    ] = "reference"
    seed: Annotated[int, Doc("random seed of all draws")] = 0

    def __post_init__(self) -> None:
        check_at_least(1, self, "clients", "public_size", "public_per_round", "model_size")
        check_at_least(2, self, "rounds", "classes")  # the first round is left out of the means
        check_at_least(0, self, "seed")
        check_per_round(self.public_per_round, self.public_size)
        check_participation(self.participation)
        if not 0 <= self.kept_share <= 1:
            raise ConfigError(f"kept_share must be from 0 to 1, got {self.kept_share}; the paper's cost implies 0.808")
        if self.others_duration < 0:
            raise ConfigError(f"others_duration must be 0 or more, got {self.others_duration}; 0 is no cache")
        Duration(self.cache_duration, self.on_expiry)
        check_codec(self.codec, self.uplink_bits, self.downlink_bits)


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
    """The cost table: a row for each method that is registered and exchanges anything."""
    methods = {
        entry.name: method_of(entry, config) for entry in METHODS.values()
    }  # a mistake shows before any is played
    found = [_cost(name, method, config) for name, method in methods.items()]
    return [cost for cost in found if cost.total_gb > 0]


def play(
    method: Method,
    agreement: Agreement,
    rounds: int,
    codec_name: str,
    participation: Participation = ALL_CLIENTS,
    *,
    kept_share: float = 1.0,  # of the requested samples, that a client answers
    model_size: int = 0,  # numbers in a model, where weights are exchanged
) -> Traffic:
    """Play the messages of some rounds.

    When all clients take part they are sent the same and answer as much, so one stands for all. Otherwise the real
    server works out what each of them lacks; client 0 is a real one, and would notice if an entry were missing.
    Labels are played as if all of them changed, so delta coding saves nothing here, and as if they were uniform, so
    with entropy coding real labels cost more.
    """
    method = replace(method, aggregate=partial(_Uniform, method.downlink.teachers))
    everybody = participation.asked(agreement.clients) == agreement.clients
    played = replace(agreement, clients=1) if everybody else agreement
    wire, ledger = codec(codec_name, method, played), Ledger()
    learner = _UniformModel(agreement.classes, model_size)
    server = Server(method, played, wire, ledger, learner, replace(participation, min_answers=1))
    witness = Client(0, method, played, wire)
    columns: tuple[Column, ...] = ("uplink", "downlink", "catch_up")
    traffic = np.zeros((len(columns), rounds), np.int64)
    # Without public samples every round costs as much as the second.
    needed = rounds if method.uses_public else min(rounds, 2)
    for number in range(needed):
        downlinks = server.open_round()
        rng = stream(agreement.seed, "client", round=number, purpose="kept")
        kept = server.request[draw(rng, len(server.request), round(kept_share * len(server.request)))]
        labels = _Uniform(None, kept, agreement.classes).finish()
        for client, data in downlinks.items():
            job = Job(client, number + 1, 0, labels, server.request)
            if client == 0:
                received = witness.receive(data)
                if not isinstance(received, Job):
                    raise RuntimeError(f"client 0 cannot rebuild the labels of round {number}")
            # A new client remembers no answer, so it sends all labels.
            answer = method.uplink.client(played, wire).answer(job, labels, Result(labels.value, {}, 1, learner.model))
            server.take(client, answer)
        server.close_round()
        traffic[:, number] = [ledger.round_total(column).payload for column in columns]
    traffic[:, needed:] = traffic[:, needed - 1 : needed]
    traffic *= agreement.clients if everybody else 1
    return Traffic(traffic[0], traffic[1] + traffic[2], traffic[2])


class _Uniform:
    """An aggregation that needs no answers: what a label says makes no difference to what it costs."""

    def __init__(self, teachers: int | None, request: Index, classes: int) -> None:
        value = np.full((len(request), classes), 1 / classes, np.float32)
        self._labels = Labels(request, value)
        if teachers is not None:
            self._labels = Teachers(request, np.repeat(value[:, np.newaxis], teachers, axis=1), value, {})

    def add(self, client: int, labels: Labels) -> None: ...

    def finish(self) -> Labels:
        return self._labels


class _UniformModel:
    """A server's model that learns nothing, and gives uniform soft-labels."""

    def __init__(self, classes: int, size: int) -> None:
        self._classes, self.model = classes, np.zeros(size, np.float32)

    def learn(self, labels: Labels, round: int) -> None: ...

    def predict(self, index: Index) -> Values:
        return np.full((len(index), self._classes), 1 / self._classes, np.float32)

    def parameters(self) -> Values:
        return self.model

    def load(self, parameters: Values) -> None: ...


def method_of(entry: Entry[Any], config: CostsConfig) -> Method:
    """A method as the cost table has it."""
    given = asdict(config)
    if entry.name != "scarlet":
        given["cache_duration"] = config.others_duration
    given["assign"] = "client" if config.others_duration else config.assign
    method: Method = entry.build(build(entry.config, given))
    return method


def _cost(name: str, method: Method, config: CostsConfig) -> Cost:
    agreement: Agreement = build(Agreement, asdict(config))
    participation = Participation(config.participation)
    kept = config.kept_share if name == "selective-fd" else 1.0
    traffic = play(
        method, agreement, config.rounds, config.codec, participation, kept_share=kept, model_size=config.model_size
    )
    return Cost(
        method=name,
        codec=config.codec,
        on_expiry=config.on_expiry if method.downlink.policy.caches else None,
        participation=config.participation,
        uplink_mb=Spread.of(traffic.uplink),
        downlink_mb=Spread.of(traffic.downlink),
        catch_up_mb=Spread.of(traffic.catch_up),
        total_gb=traffic.total / GB,
    )
