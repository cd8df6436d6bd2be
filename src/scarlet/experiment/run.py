"""One run of one method: everything is put together here, and the rounds are in `loop.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from pathlib import Path

import torch

from scarlet.config import Config
from scarlet.data.federated import Data
from scarlet.experiment.checkpoints import Checkpoint, Checkpoints
from scarlet.experiment.config_json import flatten, identifying
from scarlet.experiment.estimate import estimate
from scarlet.experiment.federation import Federation, prepare
from scarlet.experiment.loop import run_rounds
from scarlet.experiment.round_log import RoundLog, Watcher
from scarlet.experiment.run_directory import RunDirectory
from scarlet.methods.registry import assemble, check_method, entry_of
from scarlet.models.registry import ModelFactory, Weights
from scarlet.protocol.codec_registry import codec
from scarlet.protocol.method import Method
from scarlet.protocol.server import Server
from scarlet.records import RunResult, summarise
from scarlet.training.server_model import ServerModel
from scarlet.training.tensors import resident, samples, weights_digest
from scarlet.transport.local import LocalTransport
from scarlet.transport.transport import Transport
from scarlet.wire.ledger import Ledger


def run(
    method: object,
    config: Config,
    *,
    out: Path | None = None,
    resume: bool = False,
    data: Data | None = None,
    model: ModelFactory | None = None,
    watchers: Sequence[Watcher] = (),
    transport: Callable[..., Transport] = LocalTransport,
) -> RunResult:
    """Run one method; `method` is its config object, such as ScarletConfig(beta=2).

    With `out`, that directory holds the results and a page about them. Ctrl-C ends the run after its last whole round,
    with the results so far. `resume` continues from the last checkpoint in `out`. `transport` makes the transport; a
    benchmark may pass one that measures time.
    """
    directory = None if out is None else RunDirectory(out, resume=resume)
    method, make = assemble(method, config.uplink_bits, config.downlink_bits)
    built = make()
    check_method(built, config.asked)
    federation = prepare(config, data, model, pooled=built.pooled)
    config, flat = federation.config, flatten(method, federation.config)
    if directory is not None:
        watchers = [directory, *watchers]
    with _one_thread(), ExitStack() as stack:
        weights = federation.initial_weights()
        setup = federation.client_setup(built, make, weights)
        learner = stack.enter_context(_server_model(federation, built, weights))
        wire = codec(config.codec, built, setup.agreement)
        taught = learner if built.server_learns else None
        server = Server(built, setup.agreement, wire, Ledger(), taught, federation.participation)
        expected = estimate(built, federation)
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
            learner.model.load_state_dict(saved.server_weights())
        log = RoundLog(watchers, checkpoints, learner.weights())
        if directory is not None and resume:
            log.records = directory.rewind(server.state.round)
        digest: str | None = None
        states = {} if saved is None else saved.clients()
        try:
            with transport(setup, federation.data, federation.workers, saved=states) as clients:
                run_rounds(server, clients, learner, log, setup.evaluation, checkpoints, config.deadline)
                digest = _digest(learner, clients)
        except KeyboardInterrupt:
            log.write()
        summary = summarise(log.records, digest)
        summary["public_fingerprint"] = federation.data.public_fingerprint
        known = entry_of(method)
        result = RunResult(known.name, known.title, flat, log.records, summary, out)
        for watcher in watchers:
            watcher.finish(result, log.weights if built.server_learns else None)
        if checkpoints is not None and not result.interrupted:
            checkpoints.discard()
    return result


def _server_model(federation: Federation, method: Method, weights: Weights) -> ServerModel:
    model, device = federation.factory(), federation.config.device
    model.load_state_dict(weights)
    private = federation.data.private
    return ServerModel(
        model.to(device),
        resident(federation.data.public, model, device),
        samples(private.test_images, private.test_labels, model, device),
        federation.training(method),
        apart=federation.workers > 1,
    )


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
