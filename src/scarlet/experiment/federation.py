"""A federation made ready: who holds which data and which model, and how models are trained."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import cloudpickle
import numpy as np
import numpy.typing as npt
import torch

from scarlet.config import Config, check_per_round
from scarlet.data.datasets import paired
from scarlet.data.federated import FederatedData
from scarlet.data.sites import Augment, Scale, Site
from scarlet.errors import ConfigError
from scarlet.experiment.given import NOTHING_GIVEN, Given, gather
from scarlet.experiment.models import (
    FROM_PYTHON,
    Architecture,
    Architectures,
    check_one_architecture,
    default_model,
    is_from_python,
    named_models,
    relative_costs,
    try_training,
)
from scarlet.experiment.validation import hold_out
from scarlet.methods.registry import MakeMethod
from scarlet.models.registry import ModelFactory, Weights, initial_weights
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.method import Method
from scarlet.protocol.server import Participation
from scarlet.training.engines.batched import check_stackable, clients_at_once
from scarlet.training.train import Training, scaled
from scarlet.transport.client_setup import ClientSetup, Evaluation, Kind
from scarlet.transport.fault_injection import FaultInjection
from scarlet.transport.local import worker_count

_FEW = 4  # inputs on which a model is tried


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """How the inputs of some clients, or of the server, are prepared."""

    augment: Augment | Scale
    scale: Scale


@dataclass(frozen=True)
class Federation:
    """A config with every open question answered, and all that it needs in memory."""

    config: Config  # nothing that follows from the data is None any more
    data: FederatedData
    counts: npt.NDArray[np.int64]  # [K, classes]: training samples of each client and class, before they were pooled
    architectures: Sequence[Architecture]  # the server's and the clients'
    server: int  # the place of the server's
    kinds: Sequence[tuple[int, Preprocessing]]  # of clients: the place of their architecture, and their preprocessing
    kind_of: npt.NDArray[np.int32]  # i32[K]: the kind of each client
    preprocessing: Preprocessing  # the server's
    given: Given
    workers: int
    split_already: bool = False  # the clients came with their data, and nothing was shared out
    terms: str = ""  # the method's name and options, as JSON
    nonce: str = ""

    @cached_property
    def weights(self) -> list[Weights]:
        """The weights that the models of each architecture start from."""
        return [initial_weights(each.factory, self.config.seed) for each in self.architectures]

    @property
    def asked(self) -> int:
        return Participation(self.config.participation).asked(len(self.data.train))

    @property
    def participation(self) -> Participation:
        return Participation(self.config.participation, min(self.config.min_answers, self.asked))

    @cached_property
    def agreement(self) -> Agreement:
        """What server and clients must agree on."""
        config = self.config
        assert config.public_per_round is not None
        return Agreement(
            clients=len(self.data.train),
            public_size=len(self.data.public),
            public_per_round=config.public_per_round,
            classes=self.data.classes,
            seed=config.seed,
            public=self.data.public_fingerprint,
            method=self.terms,
            codec=config.codec,
            rounds=config.rounds,
            nonce=self.nonce,
        )

    def training(self, method: Method, preprocessing: Preprocessing | None = None) -> Training:
        """How models are trained; the server's, unless the preprocessing of a kind of client is given."""
        config, prepared = self.config, preprocessing or self.preprocessing
        return Training(
            local_epochs=config.local_epochs,
            distil_epochs=config.distil_epochs,
            lr=config.lr if method.local_lr is None else method.local_lr,
            distil_lr=config.distil_lr,
            batch_size=config.batch_size,
            augment=prepared.augment,
            seed=config.seed,
            scale=prepared.scale,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            optimiser=self.given.optimizer,
            schedule=self.given.schedule,
        )

    def client_setup(self, method: Method, make: MakeMethod) -> ClientSetup:
        """What the side of the clients must know; `make` makes the method in another process."""
        config = self.config
        return ClientSetup(
            method=make,
            agreement=self.agreement,
            kinds=[self._kind(method, cost, *each) for cost, each in zip(self._costs, self.kinds, strict=True)],
            kind_of=self.kind_of,
            device=config.device,
            evaluation=Evaluation(config.eval_every, config.rounds),
            faults=FaultInjection(
                seed=config.seed,
                clients=len(self.data.train),
                dropout=config.dropout,
                wipe=config.wipe,
                abstain=config.abstain,
                hostile=config.hostile,
                attack=config.attack,
            ),
            clients_in_memory=config.clients_in_memory,
        )

    def model_of(self, client: int) -> str:
        """The name of a client's architecture."""
        return self.architectures[self.kinds[int(self.kind_of[client])][0]].name

    def _kind(self, method: Method, cost: int, place: int, preprocessing: Preprocessing) -> Kind:
        its, training = self.architectures[place], self.training(method, preprocessing)
        try_training(training, its.factory, some_inputs(self.data))
        together = None
        if its.engine.name == "batched":
            few = some_inputs(self.data)
            check_stackable(its.factory, few, training)
            together = clients_at_once(its.factory, few, training)
        return Kind(its.name, its.factory, self.weights[place], training, cost, its.engine.channels_last, together)

    @cached_property
    def _costs(self) -> list[int]:
        few = some_inputs(self.data)
        return relative_costs([(self.architectures[at].factory, its.scale(few.clone())) for at, its in self.kinds])


def prepare(
    config: Config,
    given: Given = NOTHING_GIVEN,
    method: Method | None = None,
    *,
    terms: str = "",
    nonce: str = "",
) -> Federation:
    """Load what was not given, share it out among the clients, and fill in what follows from it.

    `method` says whether a public dataset is needed, whether one client holds all data, and whether all models must be
    alike; None: the usual ones. `terms` and `nonce` are parts of the agreement.
    """
    if given.optimizer is not None and (config.momentum or config.weight_decay):
        raise ConfigError(
            "momentum and weight_decay are options of SGD, and an optimizer is given; give them to your optimizer"
        )
    check_machine(config)  # before data is loaded, which may take long
    made_of = gather(config, given, needs_public=method is None or method.uses_public)
    sites, data = made_of.sites, made_of.data
    counts = np.array([np.bincount(part.labels, minlength=data.classes) for part in data.train], np.int64)
    prepared = Preprocessing(given.augment or made_of.augment, given.scale or scaled)
    kinds, kind_of, found, server = _models(config, given, sites, data, prepared)
    places = {place for place, _ in kinds}
    data = hold_out(data, config.private_validation, config.seed)
    if method is not None and method.pooled:
        data = data.pooled()
        kinds, kind_of = [(server, prepared)], np.zeros(1, np.int32)
    elif method is not None and method.uplink.sends_parameters:
        check_one_architecture(found)
    resolved = _resolved(config, given, counts, len(data.public), found, server, places)
    workers = worker_count(config.workers, len(data.train), config.device)
    if workers > 1 and (why := _cannot_be_sent(found, kinds, given)):
        print(f"scarlet: running in one process, because {why}", file=sys.stderr)
        workers = 1
    return Federation(
        config=resolved,
        data=data,
        counts=counts,
        architectures=found,
        server=server,
        kinds=kinds,
        kind_of=kind_of,
        preprocessing=prepared,
        given=given,
        workers=workers,
        split_already=made_of.split_already,
        terms=terms,
        nonce=nonce,
    )


def check_machine(config: Config) -> None:
    """Raise ConfigError for a device that this machine does not have, or for more workers than it can run."""
    try:
        torch.zeros(1, device=torch.device(config.device)).item()
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device {config.device!r} cannot be used ({reason}); use cpu") from None
    worker_count(config.workers, config.clients, config.device)


def some_inputs(data: FederatedData) -> torch.Tensor:
    """A few inputs of the first client whose data is here, or else public ones."""
    here = next((part for part in (*data.train, data.held_out) if part), None)
    return torch.from_numpy(np.array((data.public if here is None else here.of.inputs)[:_FEW]))


def _models(
    config: Config, given: Given, sites: Sequence[Site], data: FederatedData, usual: Preprocessing
) -> tuple[list[tuple[int, Preprocessing]], npt.NDArray[np.int32], list[Architecture], int]:
    """The kinds of clients, the kind of each, all architectures, and the place of the server's."""
    found = Architectures(config.engine, data.classes, some_inputs(data))
    models = _model_of_each(config, given, sites, data.train[0].of.inputs.shape[1:])
    named = (*config.models, models[0])[0]
    first: ModelFactory | str = given.server_model or config.server_model or given.model or named
    server = found.place(first, usual.scale, "the server")
    kinds: dict[tuple[int, Augment | int, int], int] = {}  # architecture, augmentation and the identity of scaling
    listed: list[tuple[int, Preprocessing]] = []
    kind_of = np.empty(len(sites), np.int32)
    for number, (site, model) in enumerate(zip(sites, models, strict=True)):
        own = Preprocessing(site.augment or usual.augment, site.scale or usual.scale)
        place = found.place(model, own.scale, f"site {site.name!r}")
        _check_augment(own.augment, data)
        key = place, own.augment if isinstance(own.augment, Augment) else id(own.augment), id(own.scale)
        if key not in kinds:
            kinds[key] = len(listed)
            listed.append((place, own))
        kind_of[number] = kinds[key]
    return listed, kind_of, found.all, server


def _model_of_each(
    config: Config, given: Given, sites: Sequence[Site], shape: tuple[int, ...]
) -> list[ModelFactory | str]:
    """The model of each client: its own, or the one given for all, or one of those that the config names."""
    if given.model is None and any(site.model is None for site in sites):
        known = None if given.sites is not None else paired(config.private)
        usual = None if known is None else known.model
        names = config.models or [usual or default_model(shape)]
        others: Sequence[ModelFactory | str] = named_models(names, config.model_shares, len(sites), config.seed)
    else:
        others = [given.model or ""] * len(sites)  # only used where it is given
    return [site.model or other for site, other in zip(sites, others, strict=True)]


def _resolved(
    config: Config,
    given: Given,
    counts: npt.NDArray[np.int64],
    public_size: int,
    found: Sequence[Architecture],
    server: int,
    places: Collection[int],
) -> Config:
    """The config with what follows from the data and from what was given; `places` are the clients' architectures."""
    clients, own = len(counts), given.sites is not None
    per_round = config.public_per_round or max(1, min(2, public_size), round(public_size / 10))
    if public_size:
        check_per_round(per_round, public_size)
    known, names = None if own else paired(config.private), [each.name for each in found]
    public = config.public or (None if known is None else known.public)
    apart = given.server_model is not None or config.server_model is not None
    own_names = [name for place, name in enumerate(names) if place in places]  # of the clients
    from_names = bool(config.models) and not any(is_from_python(name) for name in names)
    engines = {each.engine.name for each in found}
    return replace(
        config,
        private=FROM_PYTHON if own else config.private,
        public=FROM_PYTHON if given.public is not None else public,
        clients=clients,
        min_answers=min(config.min_answers, Participation(config.participation).asked(clients)),
        public_size=public_size or None,
        public_per_round=per_round,
        samples_per_client=round(counts.sum() / clients) or None,  # None: the data is elsewhere
        model=config.model if from_names else ",".join(own_names),
        server_model=names[server] if apart else None,
        engine=engines.pop() if len(engines) == 1 else config.engine,
    )


def _check_augment(augment: Augment | Scale, data: FederatedData) -> None:
    inputs = data.train[0].of.inputs
    shape = inputs.shape[1:]
    padded = isinstance(augment, Augment) and augment.padding and inputs.dtype != np.uint8
    if padded and len(inputs) and inputs.min() >= 0:
        raise ConfigError(
            "augment pads images with -1, the black of images from -1 to 1, and the smallest value of these is "
            f"{inputs.min():g}; give bytes, or scale images of 0 to 1 by 2 * x - 1"
        )
    if isinstance(augment, Augment) and (augment.padding or augment.flip) and len(shape) != 3:
        raise ConfigError(f"augment crops and flips images [C, H, W], and the inputs have shape {list(shape)}")


def _cannot_be_sent(
    found: Sequence[Architecture], kinds: Sequence[tuple[int, Preprocessing]], given: Given
) -> str | None:
    """Why worker processes cannot be sent a function that the caller gave; None if they can."""
    functions = [each.factory for each in found], list(kinds), given.optimizer, given.schedule
    try:
        cloudpickle.dumps(functions)
    except Exception as error:  # whatever a closure holds
        return f"a function that was given cannot be sent to another one ({type(error).__name__}: {error})"
    return None
