"""The options that every method shares: the only home of their defaults and of the rules that they obey.

A default of None is described by the option's documentation: it follows from the data or from the machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from typing_extensions import Doc

from scarlet.errors import ConfigError
from scarlet.protocol.codec_registry import check_codec
from scarlet.protocol.server import Participation
from scarlet.training.engines.names import EngineName
from scarlet.transport.fault_injection import Attack

# Options that do not identify a run: they may differ when it is resumed, or between runs that are averaged.
NOT_IDENTIFYING = ("data_dir", "workers", "clients_in_memory", "device", "save_clients")

_REMOVED = {("engine", "native"): "auto"}  # choices of earlier versions, and what to use instead
_RESULTS_THE_SAME = "does not affect results (with batched: up to rounding)"


@dataclass(frozen=True, slots=True)
class Config:
    """One experiment, whatever its method."""

    private: Annotated[
        str, Doc("labelled private dataset, split among the clients: a name, npz:FILE or folder:PATH")
    ] = "mnist5k"
    public: Annotated[
        str | None, Doc("unlabelled public dataset, likewise (default: the one paired with the private)")
    ] = None
    data_dir: Annotated[
        Path | None, Doc("directory of datasets (default: $SCARLET_DATA, or ~/.cache/scarlet/data)")
    ] = None
    alpha: Annotated[
        float, Doc("concentration of the Dirichlet split by class; the smaller, the fewer classes each client has")
    ] = 0.3
    samples_per_client: Annotated[int | None, Doc("training images of each client (default: an equal share)")] = None
    share_images: Annotated[bool, Doc("let clients hold the same images: each draws from the whole dataset")] = False
    test_per_client: Annotated[int, Doc("test images of each client, in its class proportions")] = 100
    image_size: Annotated[
        int | None,
        Doc("side in pixels to which images of a folder are resized (default: their own, which must be one)"),
    ] = None
    public_size: Annotated[int | None, Doc("|P|, public images to use (default: all, at most 10,000)")] = None
    public_per_round: Annotated[int | None, Doc("|P^t|, public images drawn for a round (default: a tenth)")] = None

    clients: Annotated[int, Doc("K, number of clients")] = 10
    rounds: Annotated[int, Doc("number of communication rounds")] = 60
    participation: Annotated[float, Doc("p, fraction of the clients drawn to take part in each round")] = 1.0
    min_answers: Annotated[
        int, Doc("answers that a round needs; with fewer, clients are drawn again, and after 10 tries the run ends")
    ] = 1
    deadline: Annotated[
        float | None, Doc("wall-clock seconds that a try of a round waits; later answers are rejected (default: none)")
    ] = None
    codec: Annotated[
        str, Doc("message encoding: compact (quantised: lossy; entropy-coded) or reference (float32, as in the paper)")
    ] = "compact"
    uplink_bits: Annotated[
        int | None,
        Doc("1 to 32 (float32) bits per soft-label entry from clients (default: the method's, or else the codec's)"),
    ] = None
    downlink_bits: Annotated[
        int | None, Doc("the same for what the server sends (default: the method's, or else the codec's)")
    ] = None

    model: Annotated[
        str | None,
        Doc(
            "model of the clients and of the server, such as resnet20; of several, such as resnet20,cnn32, each client "
            "has one and the server the first (default: the private dataset's)"
        ),
    ] = None
    model_shares: Annotated[
        tuple[float, ...] | None, Doc("fraction of the clients that have each model, 0.3,0.7 (default: equal shares)")
    ] = None
    server_model: Annotated[str | None, Doc("model of the server (default: the first of --model)")] = None
    local_epochs: Annotated[int, Doc("epochs of local training on the private images, in each round")] = 2
    distil_epochs: Annotated[int, Doc("epochs of distillation on the round's public images, on clients and server")] = 2
    lr: Annotated[float, Doc("SGD learning rate of local training")] = 0.1
    distil_lr: Annotated[float, Doc("SGD learning rate of distillation")] = 0.1
    momentum: Annotated[float, Doc("momentum of SGD; a client keeps it from round to round, with its model")] = 0.0
    weight_decay: Annotated[float, Doc("weight decay of SGD")] = 0.0
    batch_size: Annotated[int, Doc("batch size of local training and of distillation")] = 50
    eval_every: Annotated[int, Doc("evaluation interval in rounds; the last of --rounds is always evaluated")] = 1
    private_validation: Annotated[
        float, Doc("fraction of each client's training images that is held out, to measure a validation loss")
    ] = 0.0
    public_validation: Annotated[
        float, Doc("fraction of the public images whose soft-labels the server's model does not learn, likewise")
    ] = 0.0
    seed: Annotated[int, Doc("random seed of the data split, the initial weights and all other draws")] = 0

    stop_when: Annotated[
        Literal["converged"] | None,
        Doc("end the run when its validation losses no longer fall; needs a validation fraction (default: never)"),
    ] = None
    stop_at_mb: Annotated[float | None, Doc("end the run after this much traffic, in megabytes (default: none)")] = None
    stop_at_accuracy: Annotated[
        float | None, Doc("end the run at this accuracy of the server's model, from 0 to 1 (default: none)")
    ] = None
    stop_at_seconds: Annotated[float | None, Doc("end the run after this time (default: none)")] = None

    dropout: Annotated[
        float, Doc("q, probability that a client fails in a round: q/2 before training, q/2 after (its reply is lost)")
    ] = 0.0
    wipe: Annotated[
        float, Doc("probability that a client loses its model and its cache before a round, as with a new disk")
    ] = 0.0
    abstain: Annotated[int, Doc("rounds in which a client that lost its model learns, but sends no soft-labels")] = 3
    hostile: Annotated[float, Doc("fraction of the clients that send false soft-labels in every round")] = 0.0
    attack: Annotated[
        Attack, Doc("false soft-labels of those clients: flip reverses the order of the classes, random draws new ones")
    ] = "flip"

    device: Annotated[str, Doc("torch device of all models, such as cpu, cuda or cuda:1")] = "cpu"
    engine: Annotated[
        EngineName,
        Doc(
            "execution backend: auto selects the memory format, contiguous or channels-last, that suits the model; "
            "opt-in: compiled uses torch.compile, batched trains clients together and was not tried on a GPU"
        ),
    ] = "auto"
    workers: Annotated[
        int | None, Doc(f"worker processes (default: one per core, one on a GPU); {_RESULTS_THE_SAME}")
    ] = None
    clients_in_memory: Annotated[
        int | None, Doc(f"clients kept in RAM, the others on disk (default: what fits into 2 GB); {_RESULTS_THE_SAME}")
    ] = None

    checkpoint_every: Annotated[int, Doc("checkpoint interval in rounds; 0: no checkpoints")] = 1
    save_clients: Annotated[bool, Doc("save the model of every client, too, not only the server's")] = False

    def __post_init__(self) -> None:
        check_at_least(1, self, "clients", "test_per_client", "rounds", "batch_size", "eval_every")
        check_at_least(1, self, "samples_per_client", "public_size", "public_per_round", "workers", "clients_in_memory")
        check_at_least(1, self, "image_size")
        check_at_least(0, self, "local_epochs", "distil_epochs", "seed", "checkpoint_every", "abstain")
        check_participation(self.participation)
        if not 1 <= self.min_answers <= self.asked:
            raise ConfigError(
                f"min_answers must be from 1 to the {self.asked} clients that a round asks, got {self.min_answers}"
            )
        for name in ("dropout", "hostile", "wipe", "momentum", "private_validation", "public_validation"):
            if not 0 <= (value := getattr(self, name)) < 1:
                raise ConfigError(f"{name} must be at least 0 and less than 1, got {value}; 0 switches it off")
        check_codec(self.codec, self.uplink_bits, self.downlink_bits)
        check_choice("attack", self.attack, get_args(Attack))
        check_choice("engine", self.engine, get_args(EngineName))
        if self.deadline is not None:
            _check_positive("deadline", self.deadline, "leave it out to wait for all answers")
        _check_positive("alpha", self.alpha, "0.05 gives each client few classes, 1000 gives all the same mix")
        _check_positive("lr", self.lr, "the paper uses 0.1")
        _check_positive("distil_lr", self.distil_lr, "the paper uses 0.1")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise ConfigError(f"weight_decay must be 0 or more, got {self.weight_decay}; 0 switches it off")
        self._check_models()
        self._check_stopping()
        if self.public_size is not None and self.public_per_round is not None:
            check_per_round(self.public_per_round, self.public_size)

    def _check_models(self) -> None:
        if self.model_shares is None:
            return
        names = (self.model or "").split(",")
        if len(self.model_shares) != len(names):
            raise ConfigError(
                f"model_shares must be one for each of the {len(names)} models, got {self.model_shares}; "
                "name the models with commas between, such as model=resnet20,cnn32"
            )
        if not all(share >= 0 for share in self.model_shares) or not math.isclose(sum(self.model_shares), 1):
            raise ConfigError(f"model_shares must be 0 or more and sum to 1, got {self.model_shares}; such as 0.3,0.7")

    def _check_stopping(self) -> None:
        for name in ("stop_at_mb", "stop_at_accuracy", "stop_at_seconds"):
            if (limit := getattr(self, name)) is not None:
                _check_positive(name, limit, "leave it out to run all rounds")
        if self.stop_at_accuracy is not None and self.stop_at_accuracy > 1:
            raise ConfigError(f"stop_at_accuracy must be at most 1, got {self.stop_at_accuracy}; 0.9 is 90 %")
        if self.stop_when is not None:
            check_choice("stop_when", self.stop_when, ("converged",))
            if not (self.private_validation or self.public_validation):
                raise ConfigError(
                    "stop_when converged looks at validation losses, and nothing is held out for them; "
                    "add private_validation or public_validation, such as 0.1"
                )

    @property
    def models(self) -> list[str]:
        """The names of the clients' models; none where they follow from the data."""
        return self.model.split(",") if self.model else []

    @property
    def asked(self) -> int:
        """The number of clients that a round asks."""
        return Participation(self.participation).asked(self.clients)


def build(kind: Any, options: Mapping[str, Any]) -> Any:
    """An object of that dataclass, from those of the options that it has."""
    return kind(**{field.name: options[field.name] for field in fields(kind) if field.name in options})


def check_per_round(per_round: int, size: int) -> None:
    """Raise ConfigError where a round would draw more public samples than there are."""
    if per_round > size:
        raise ConfigError(f"public_per_round must be at most the {size} public samples in use, got {per_round}")


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise ConfigError for a value that is not among the choices of an option."""
    if value not in choices:
        known = " or ".join([*([", ".join(choices[:-1])] if choices[1:] else []), choices[-1]])
        instead = _REMOVED.get((name.split()[0].lstrip("-"), str(value)))
        remedy = "" if instead is None else f"; {value} was removed, use {instead}"
        raise ConfigError(f"{name} must be {known}, got {value!r}{remedy}")


def check_participation(fraction: float) -> None:
    """Raise ConfigError for a fraction of the clients that is not in (0, 1]."""
    if not 0 < fraction <= 1:
        raise ConfigError(f"participation must be more than 0 and at most 1, got {fraction}; 1 asks all clients")


def check_at_least(least: int, config: object, *names: str) -> None:
    """Raise ConfigError where one of these options is too small; None is left open."""
    for name in names:
        value: int | None = getattr(config, name)
        if value is not None and value < least:
            raise ConfigError(f"{name} must be {least} or more, got {value}")


def _check_positive(name: str, value: float, remedy: str) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{name} must be more than 0, got {value}; {remedy}")
