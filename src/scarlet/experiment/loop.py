"""The round loop."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch

from scarlet.config import Config
from scarlet.errors import ScarletError
from scarlet.experiment.checkpoints import Checkpoints, client_states, server_part
from scarlet.experiment.estimate import estimate
from scarlet.experiment.flat import flatten, without_place
from scarlet.experiment.problem import Data, Problem, prepare
from scarlet.experiment.round_log import Books, Watcher, record_of
from scarlet.experiment.run_directory import RunDirectory
from scarlet.methods.registry import Entry, assemble, entry_of
from scarlet.models.registry import ModelFactory, Weights, initial_weights
from scarlet.protocol.persist import Array, restore_server
from scarlet.protocol.server import ClosedRound, Server
from scarlet.records import RunResult, summarise
from scarlet.training.batched import clients_at_once
from scarlet.training.server_model import ServerModel
from scarlet.transport.client_runner import Setup, resident, samples, weights_digest
from scarlet.transport.client_store import weights_of
from scarlet.transport.fault_injection import Troubles
from scarlet.transport.local import LocalTransport, default_workers
from scarlet.wire.codecs import codec
from scarlet.wire.ledger import Ledger

ATTEMPTS = 10  # how often a round is tried before the run gives up


def run(
    method: object,
    config: Config,
    *,
    out: Path | None = None,
    resume: bool = False,
    data: Data | None = None,
    model: ModelFactory | None = None,
    watchers: Sequence[Watcher] = (),
    carrier: Callable[..., LocalTransport] = LocalTransport,
) -> RunResult:
    """Run one method; `method` is its config object, such as ScarletConfig(beta=2).

    Ctrl-C ends the run after its last whole round, with all that was done until then. `resume` goes on from the last
    checkpoint in `out`. `carrier` makes the transport, for somebody who wants to look at it.
    """
    entry = entry_of(method)
    directory = None if out is None else RunDirectory(out, resume=resume)
    problem = entry.arrange(method, prepare(config, data, model))
    config = problem.config
    workers = config.workers or default_workers(len(problem.private), config.device)
    flat = flatten(method, config)
    method, built = assemble(method, config)
    ledger = Ledger()
    with _one_thread(), ExitStack() as stack:
        bits = built.uplink_bits, built.downlink_bits
        setup = _setup(method, entry, problem, bits, initial_weights(problem.factory, config.seed))
        learner = stack.enter_context(_server_model(setup, problem, apart=workers > 1))
        wire = codec(config.codec, *bits, classes=problem.federation.classes)
        server = Server(built, problem.federation, wire, ledger, learner)
        checkpoints: Checkpoints | None = None
        saved: Mapping[int, Mapping[str, Array]] = {}
        if directory is not None:
            watchers = [directory, *watchers]
        expected = estimate(built, problem, workers)
        for watcher in watchers:
            watcher.start(flat, problem, expected)
        if directory is not None and config.checkpoint_every:
            identity = {"options": without_place(flat), "data": problem.fingerprint}
            checkpoints = stack.enter_context(Checkpoints(directory.path / "checkpoint", identity))
        if directory is not None and resume:
            saved = _restore(checkpoints, server, learner)
        books = Books(watchers, checkpoints, learner.weights())
        if directory is not None and resume:
            books.records = directory.rewind(server.state.round)

        digest: str | None = None
        changed: set[int] = set()
        try:
            with carrier(setup, problem.resident, workers, saved=saved, deadline=config.deadline) as transport:
                books.begin()
                while server.state.round < config.rounds:
                    due = checkpoints is not None and (server.state.round + 1) % config.checkpoint_every == 0
                    closed, asked = _round(server, transport, books, keep=due)
                    uplink, downlink = transport.overhead()
                    ledger.carried(uplink=uplink, downlink=downlink)
                    changed |= asked
                    snapshot = None
                    if checkpoints is not None and due:
                        snapshot = checkpoints.snapshot(server, transport.states(sorted(changed)))
                        changed.clear()
                    learned = learner.finish(measure=built.has_server_model and setup.evaluates(closed.round))
                    books.close(record_of(closed, ledger), ledger.copy(), learned, snapshot)
                books.finish()
                digest = _digest([weights_digest(learner.model.state_dict()), *transport.digests()])
        except KeyboardInterrupt:
            books.settle()
        summary = summarise(books.records, digest)
        summary["public_fingerprint"] = problem.public_fingerprint
        result = RunResult(entry.name, flat, books.records, summary)
        for watcher in watchers:
            watcher.finish(result, books.weights if built.has_server_model else None)
        if checkpoints is not None and not result.interrupted:
            checkpoints.discard()
    return result


def _round(server: Server, transport: LocalTransport, books: Books, *, keep: bool) -> tuple[ClosedRound, set[int]]:
    """One round, in as many attempts as it takes; and the clients that were asked.

    `keep` has the transport collect what the clients remember, for a checkpoint.
    """
    asked: set[int] = set()
    for _ in range(ATTEMPTS):
        downlinks = server.open_round()
        asked |= set(downlinks)
        while downlinks:
            for sender, message in transport.exchange(downlinks, keep=keep):
                server.take(sender, message)
                books.settle_what_is_done()
            downlinks = server.resets()
        closed = server.close_round()
        if closed is not None:
            return closed, asked
    needed, rejected = server.federation.min_answers, dict(server.rejections) or "nothing"
    raise ScarletError(
        f"round {server.state.round + 1} failed {ATTEMPTS} times with fewer than {needed} answers "
        f"(rejected: {rejected}); where labels are not finite a smaller lr may help, otherwise "
        "lower min_answers or dropout, give more time until the deadline, or ask more clients"
    )


def _restore(
    checkpoints: Checkpoints | None, server: Server, learner: ServerModel
) -> Mapping[int, Mapping[str, Array]]:
    """Bring server and model to the last checkpoint, if there is one; return the clients' states."""
    snapshot = checkpoints.load() if checkpoints is not None else None
    if checkpoints is not None:
        instead = "beginning again" if snapshot is None else f"going on from round {snapshot.number}"
        for damage in checkpoints.store.damaged:
            print(f"scarlet: {damage}; {instead}", file=sys.stderr)
    if snapshot is None:
        return {}
    arrays = server_part(snapshot)
    restore_server(server.state, server.ledger, arrays, snapshot.meta)
    learner.model.load_state_dict(weights_of(arrays))
    return client_states(snapshot)


def _setup(
    method: object,
    entry: Entry[Any],
    problem: Problem,
    bits: tuple[int | None, int | None],
    weights: Weights,
) -> Setup:
    config, shape = problem.config, problem.data.public.shape[1:]
    batched = problem.engine.name == "batched"
    return Setup(
        method=method,
        build=entry.build,
        factory=problem.factory,
        weights=weights,
        private=problem.private,
        test=problem.test,
        federation=problem.federation,
        training=problem.training,
        codec=config.codec,
        bits=bits,
        device=config.device,
        rounds=config.rounds,
        eval_every=config.eval_every,
        troubles=Troubles(config.seed, len(problem.private), config.dropout, config.hostile, config.attack),
        clients_in_memory=config.clients_in_memory,
        at_once=clients_at_once(problem.factory, shape, config.batch_size) if batched else None,
    )


def _server_model(setup: Setup, problem: Problem, *, apart: bool) -> ServerModel:
    model = setup.factory()
    model.load_state_dict(setup.weights)
    private = problem.data.private
    return ServerModel(
        model.to(setup.device),
        resident(problem.data.public, model, setup.device),
        samples(private.test_images, private.test_labels, model, setup.device),
        setup.training,
        apart=apart,
    )


def _digest(parts: Sequence[bytes]) -> str:
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
