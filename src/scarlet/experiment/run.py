"""One run of one method: everything is put together here, and the rounds are in `loop.py`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from pathlib import Path
from secrets import token_hex
from typing import Any

import torch

from scarlet.config import Config
from scarlet.data.sites import Augment, Scale, Site
from scarlet.experiment.checkpoints import Checkpoint, Checkpoints
from scarlet.experiment.config_json import described, flatten, identifying
from scarlet.experiment.estimate import estimate
from scarlet.experiment.federation import Federation, prepare
from scarlet.experiment.given import Given
from scarlet.experiment.locked import locked
from scarlet.experiment.loop import run_rounds
from scarlet.experiment.models import bytes_of
from scarlet.experiment.result import Result, Trained
from scarlet.experiment.round_log import RoundLog, Watcher
from scarlet.experiment.run_directory import RunDirectory
from scarlet.experiment.run_directory import make as make_directory
from scarlet.experiment.stopping import Stopping, check_rules
from scarlet.experiment.tracking import tracked
from scarlet.experiment.validation import public_validation
from scarlet.methods.registry import assemble, check_method, entry_of
from scarlet.models.registry import ModelFactory
from scarlet.node import model_part
from scarlet.protocol.codec_registry import codec
from scarlet.protocol.method import Method
from scarlet.protocol.server import Server
from scarlet.records import summarise
from scarlet.training.optimisers import MakeOptimizer, MakeSchedule
from scarlet.training.server_model import ServerModel
from scarlet.training.tensors import resident, samples, weights_digest, weights_of
from scarlet.transport.client_setup import BUDGET, ClientSetup
from scarlet.transport.local import LocalTransport
from scarlet.transport.transport import Transport
from scarlet.wire.ledger import Ledger


def run(
    method: object,
    config: Config,
    *,
    sites: Sequence[Site] | None = None,
    public: Any = None,
    test: Any = None,
    model: ModelFactory | str | None = None,
    server_model: ModelFactory | str | None = None,
    classes: int | None = None,
    augment: Augment | Scale | None = None,
    scale: Scale | None = None,
    optimizer: MakeOptimizer | None = None,
    schedule: MakeSchedule | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    watchers: Sequence[Watcher] = (),
    track: str | Sequence[str] = (),
    transport: Callable[..., Transport] = LocalTransport,
) -> Result:
    """Run one method; `method` is its config object, such as ScarletConfig(beta=2).

    `sites` are the clients with their data, `public` is the unlabelled public dataset, and `test` is what the server's
    model is tested on (by default, all that the sites are tested on); without them `config` names datasets of ours.
    `model` makes the model of clients that name none, and `server_model` the server's (by default `model`, or the first
    site's). `classes` is inferred from the labels unless it is given. `augment` and `scale` prepare inputs where a site
    does not do so itself (see `Site`).

    `optimizer` makes an optimiser from parameters and a learning rate, as the classes of torch.optim do; `schedule`
    makes a schedule of torch.optim.lr_scheduler for it, which takes one step a round. Both stay with a model from round
    to round, once for local training and once for distillation.

    With `out`, that directory holds the results and a page about them. Ctrl-C ends the run after its last whole round,
    with the results so far. `resume` continues from the last checkpoint in `out`. `track` names trackers that record
    the run below `out`, such as ("tensorboard", "mlflow"); `watchers` are told of every round. `transport` makes the
    transport; a benchmark may pass one that measures time.
    """
    given = Given(sites, public, test, model, server_model, classes, augment, scale, optimizer, schedule)
    if not resume:  # a run that began goes on as it is
        check_rules([(assemble(method, config.uplink_bits, config.downlink_bits)[1](), config)])
    out = None if out is None else Path(out)
    with tracked(track, out, resume=resume) as trackers:
        watchers = [*watchers, *trackers]
        return run_with(given, method, config, out=out, resume=resume, watchers=watchers, transport=transport)


def run_with(
    given: Given,
    method: object,
    config: Config,
    *,
    out: Path | str | None = None,
    resume: bool = False,
    watchers: Sequence[Watcher] = (),
    transport: Callable[..., Transport] = LocalTransport,
) -> Result:
    """`run`, with what the caller gave in one value."""
    out = None if out is None else Path(out)
    directory = None if out is None else RunDirectory(out, resume=resume)
    method, make = assemble(method, config.uplink_bits, config.downlink_bits)
    built = make()
    nonce = directory.nonce() if directory is not None and resume else None
    federation = prepare(config, given, built, terms=json.dumps(described(method)), nonce=nonce or token_hex(8))
    check_method(built, federation.asked)
    stopping = Stopping.of(config)
    config, flat = federation.config, flatten(method, federation.config) | given.described()
    if directory is not None and resume:
        directory.check_options(identifying(flat))
    if directory is not None:
        watchers = [directory, *watchers]
    with _one_thread(), ExitStack() as stack:
        setup = federation.client_setup(built, make)  # refuses what an engine cannot train, before anything is written
        if directory is not None:
            stack.enter_context(locked(make_directory(directory.path), "out"))
            directory.check_begun(resume=resume)
        learner = stack.enter_context(_server_model(federation, built))
        wire = codec(config.codec, built, setup.agreement)
        taught = learner if built.server_learns else None
        server = Server(built, setup.agreement, wire, Ledger(), taught, federation.participation)
        if watchers:  # an estimate trains a few steps, and nobody else wants to know it
            expected = estimate(built, federation, setup)
            for watcher in watchers:
                watcher.start(flat, federation, expected)
        checkpoints: Checkpoints | None = None
        saved: Checkpoint | None = None
        if directory is not None and config.checkpoint_every:
            identity = {"options": identifying(flat), "data": federation.data.fingerprint}
            folder = directory.path / "checkpoint"
            checkpoints = stack.enter_context(Checkpoints(folder, identity, config.checkpoint_every))
            saved = checkpoints.load() if resume else None
        if saved is not None:
            saved.restore_server(server)
            learner.restore(saved.server_model())
        mixed = len({place for place, _ in federation.kinds}) > 1
        log = RoundLog(watchers, checkpoints, learner.arrays(), federation.model_of if mixed else None)
        if directory is not None and resume:
            log.records = directory.rewind(server.state.round)
        digest: str | None = None
        clients: dict[int, Trained] = {}
        states = {} if saved is None else saved.clients()
        try:
            with transport(setup, federation.data, federation.workers, saved=states) as connected:
                run_rounds(server, connected, learner, log, setup.evaluation, checkpoints, config.deadline, stopping)
                clients = _client_models(federation, setup, connected)
                digest = _digest(learner, connected)  # the last, because it makes a run a finished one
        except KeyboardInterrupt:
            log.write()
        summary = summarise(log.records, digest)
        summary["stopped"] = stopping.reason(log.records)
        summary["public_fingerprint"] = federation.data.public_fingerprint
        known = entry_of(method)
        own = federation.architectures[federation.server]
        trained = Trained(own.name, own.factory, weights_of(log.model)) if built.server_learns else None
        names = federation.data.names
        result = Result(known.name, known.title, flat, log.records, summary, out, names, trained, clients)
        for watcher in watchers:
            watcher.finish(result)
        if checkpoints is not None and not result.interrupted:
            checkpoints.discard()
    return result


def _server_model(federation: Federation, method: Method) -> ServerModel:
    own, device, data = federation.architectures[federation.server], federation.config.device, federation.data
    model = own.factory()
    model.load_state_dict(federation.weights[federation.server])
    model.to(device)
    return ServerModel(
        model,
        resident(data.public, model, device),
        None if data.held_out is None else samples(data.held_out.arrays(), model, device),
        federation.training(method),
        apart=federation.workers > 1,
        validation=public_validation(len(data.public), federation.config.public_validation, federation.config.seed),
    )


def _client_models(federation: Federation, setup: ClientSetup, transport: Transport) -> dict[int, Trained]:
    """The models of clients on this machine; none where they would take too much memory and nobody asked for them."""
    numbers = range(len(federation.data.train))
    size = sum(bytes_of(setup.kind(number).weights) for number in numbers)
    if transport.local is None or (size > BUDGET and not federation.config.save_clients):
        return {}
    kinds = {number: setup.kind(number) for number in numbers}
    states = transport.states(numbers)
    return {
        number: Trained(
            kind.model, kind.factory, weights_of(model_part(states[number])) if number in states else kind.weights
        )
        for number, kind in kinds.items()
    }


def _digest(learner: ServerModel, transport: Transport) -> str:
    """A digest of all final weights that are on this machine: the server's and, in a local run, the clients'."""
    clients = transport.local.digests() if transport.local is not None else []
    parts = [weights_digest(learner.model.state_dict()), *clients]
    return blake2b(b"".join(parts), digest_size=16).hexdigest()


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread in this process too: workers have the other cores, and results must not depend on their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
