"""The options that every method shares: the only home of their defaults and of the rules that they obey."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, get_args

from typing_extensions import Doc

from scarlet.errors import ConfigError, unknown
from scarlet.protocol.codecs import check_codec
from scarlet.training.engines.names import EngineName
from scarlet.transport.fault_injection import Attack

NOT_IDENTIFYING = ("data_dir", "workers", "clients_in_memory", "device")  # options that may differ when a run goes on


@dataclass(frozen=True, slots=True)
class Config:
    """One experiment, whatever its method. What is None follows from the data."""

    private: Annotated[str, Doc("data set that the clients hold, with its classes")] = "mnist5k"
    public: Annotated[str | None, Doc("data set that everybody holds, without; None: the private set's partner")] = None
    data_dir: Annotated[Path | None, Doc("where data sets lie; None: $SCARLET_DATA or ~/.cache/scarlet/data")] = None
    clients: Annotated[int, Doc("K, how many clients there are")] = 10
    samples_per_client: Annotated[int | None, Doc("training images of each client; None: an equal share of all")] = None
    share_images: Annotated[bool, Doc("clients may hold the same images; otherwise no two hold the same")] = False
    test_per_client: Annotated[int, Doc("test images of each client, in its own mix of classes")] = 100
    alpha: Annotated[float, Doc("Dirichlet parameter of the partition; small: few classes a client")] = 0.3
    public_size: Annotated[int | None, Doc("|P|, public images in use; None: all, at most 10,000")] = None
    public_per_round: Annotated[int | None, Doc("|P^t|, public images a round; None: a tenth of them")] = None
    model: Annotated[str | None, Doc("everybody's model; None: the private set's usual one")] = None
    rounds: Annotated[int, Doc("communication rounds")] = 60
    local_epochs: Annotated[int, Doc("passes over a client's own images in a round")] = 2
    distil_epochs: Annotated[int, Doc("passes over the round's public images, on clients and server")] = 2
    lr: Annotated[float, Doc("learning rate of local training (plain SGD)")] = 0.1
    distil_lr: Annotated[float, Doc("learning rate of distillation (plain SGD)")] = 0.1
    batch_size: Annotated[int, Doc("images in a training step")] = 50
    seed: Annotated[int, Doc("names every random draw of the run")] = 0
    eval_every: Annotated[int, Doc("rounds from one measurement of accuracy to the next")] = 1
    participation: Annotated[float, Doc("p, the share of the clients that a round asks")] = 1.0
    min_answers: Annotated[int, Doc("a round with fewer answers is tried again, with other clients")] = 1
    dropout: Annotated[float, Doc("q, how likely a client is lost in a round: half before training, half after")] = 0.0
    deadline: Annotated[float | None, Doc("seconds that a round waits for answers; None: for ever")] = None
    hostile: Annotated[float, Doc("share of the clients that send false soft-labels")] = 0.0
    attack: Annotated[Attack, Doc("what they send: labels in the wrong order of classes, or random ones")] = "flip"
    checkpoint_every: Annotated[int, Doc("rounds from one checkpoint to the next; 0 writes none")] = 1
    codec: Annotated[str, Doc("how messages become bytes: compact, or reference, the paper's accounting")] = "compact"
    uplink_bits: Annotated[int | None, Doc("bits of a label's entry, from clients; None: as the method has it")] = None
    downlink_bits: Annotated[int | None, Doc("bits of a label's entry, from the server; None: the same")] = None
    workers: Annotated[
        int | None,
        Doc("worker processes; None: one a core, or one for a GPU; the result is the same, batched to rounding"),
    ] = None
    engine: Annotated[
        EngineName, Doc("how models are laid out and run, or batched: many clients at once; auto: whatever is quickest")
    ] = "auto"
    clients_in_memory: Annotated[
        int | None,
        Doc("clients kept in memory, others on disk; None: 2 GB; the result is the same, batched to rounding"),
    ] = None
    device: Annotated[str, Doc("where models run: cpu, cuda, cuda:1")] = "cpu"

    def __post_init__(self) -> None:
        for name in ("clients", "test_per_client", "rounds", "batch_size", "eval_every"):
            check_at_least(name, getattr(self, name), 1)
        for name in ("samples_per_client", "public_size", "public_per_round", "workers", "clients_in_memory"):
            if getattr(self, name) is not None:
                check_at_least(name, getattr(self, name), 1)
        for name in ("local_epochs", "distil_epochs"):
            check_at_least(name, getattr(self, name), 0)
        check_at_least("seed", self.seed, 0)
        check_at_least("checkpoint_every", self.checkpoint_every, 0)
        check_participation(self.participation)
        if not 1 <= self.min_answers <= self.asked:
            raise ConfigError(
                f"min_answers must be from 1 to the {self.asked} clients that a round asks, got {self.min_answers}"
            )
        for name in ("dropout", "hostile"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 0 and less than 1, got {getattr(self, name)}; 0 is none")
        check_codec(self.codec, self.uplink_bits, self.downlink_bits)
        if self.attack not in get_args(Attack):
            raise unknown("attack", self.attack, get_args(Attack))
        check_engine(self.engine)
        if self.deadline is not None:
            _positive("deadline", self.deadline, "leave it out to wait for all answers")
        _positive("alpha", self.alpha, "0.05 gives each client few classes, 1000 gives all the same mix")
        _positive("lr", self.lr, "the paper uses 0.1")
        _positive("distil_lr", self.distil_lr, "the paper uses 0.1")
        if None not in (self.public_size, self.public_per_round):
            assert self.public_size is not None and self.public_per_round is not None
            check_per_round(self.public_per_round, self.public_size)

    @property
    def asked(self) -> int:
        """How many clients a round asks."""
        return max(1, round(self.participation * self.clients))


def check_per_round(per_round: int, size: int) -> None:
    """Raise ConfigError where a round would draw more public samples than there are."""
    if per_round > size:
        raise ConfigError(f"public_per_round must be at most the {size} public samples in use, got {per_round}")


def check_engine(name: str) -> None:
    """Raise ConfigError for an engine that there is not."""
    if name not in get_args(EngineName):
        raise unknown("engine", name, get_args(EngineName))


def check_participation(share: float) -> None:
    """Raise ConfigError for a share of clients that is not in (0, 1]."""
    if not 0 < share <= 1:
        raise ConfigError(f"participation must be more than 0 and at most 1, got {share}; 1 asks all clients")


def check_at_least(name: str, value: int, least: int) -> None:
    """Raise ConfigError where a number is too small."""
    if value < least:
        raise ConfigError(f"{name} must be {least} or more, got {value}")


def _positive(name: str, value: float, remedy: str) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{name} must be more than 0, got {value}; {remedy}")
