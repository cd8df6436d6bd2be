"""The round loop."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

import torch

from scarlet.checkpointing import Checkpoints, client_states, server_part
from scarlet.config import Config
from scarlet.core.persist import Array, restore_server
from scarlet.core.server import ClosedRound, Server
from scarlet.core.train import ServerModel
from scarlet.errors import ScarletError
from scarlet.estimate import Estimate, estimate
from scarlet.flat import flatten, without_place
from scarlet.methods.registry import Entry, assemble, entry_of
from scarlet.models.registry import ModelFactory, Weights, initial_weights
from scarlet.problem import Data, Problem, prepare
from scarlet.records import RoundRecord, RunResult, summarise
from scarlet.run_directory import RunDirectory
from scarlet.transport.host import Setup, samples, weights_digest, weights_of
from scarlet.transport.local import LocalTransport, default_workers
from scarlet.transport.troubles import Troubles
from scarlet.wire.codecs import codec
from scarlet.wire.ledger import Ledger

ATTEMPTS = 10  # how often a round is tried before the run gives up


class Watcher(Protocol):
    """Somebody who follows a run: a display, a directory, a tracker."""

    def start(self, config: Mapping[str, object], problem: Problem, expected: Estimate) -> None: ...

    def round(self, record: RoundRecord, ledger: Ledger) -> None: ...

    def finish(self, result: RunResult, weights: Weights | None) -> None:
        """`weights` are those of the server's model, if the method has one."""
        ...


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
    workers = config.workers or default_workers(len(problem.private))
    flat = flatten(method, config)
    method, built = assemble(method, config)
    ledger = Ledger()
    with _one_thread(), ExitStack() as stack:
        bits = built.uplink_bits, built.downlink_bits
        setup = _setup(method, entry, problem, bits, initial_weights(problem.factory, config.seed))
        learner = _server_model(setup, problem)
        wire = codec(config.codec, *bits, classes=problem.federation.classes)
        server = Server(built, problem.federation, wire, ledger, learner)
        checkpoints: Checkpoints | None = None
        saved: Mapping[int, Mapping[str, Array]] = {}
        records: list[RoundRecord] = []
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
            records = directory.rewind(server.state.round)

        digest: str | None = None
        learned = learner.weights()  # after the last whole round
        changed: set[int] = set()
        try:
            with carrier(setup, problem.resident, workers, saved=saved, deadline=config.deadline) as transport:
                while server.state.round < config.rounds:
                    started = time.perf_counter()
                    closed, asked = _round(server, transport)
                    uplink, downlink = transport.overhead()
                    ledger.carried(uplink=uplink, downlink=downlink)
                    measured = None
                    if built.has_server_model and setup.evaluates(closed.round):
                        measured = learner.evaluate()
                    record = _record(closed, measured, ledger, time.perf_counter() - started)
                    learned = learner.weights()
                    records.append(record)
                    for watcher in watchers:
                        watcher.round(record, ledger)
                    changed |= asked
                    if checkpoints is not None and closed.round % config.checkpoint_every == 0:
                        checkpoints.save(server, learner, transport.states(sorted(changed)))
                        changed.clear()
                digest = _digest([weights_digest(learner.model.state_dict()), *transport.digests()])
        except KeyboardInterrupt:
            pass
        summary = summarise(records, digest)
        result = RunResult(entry.name, flat, records, summary | {"public_fingerprint": problem.public_fingerprint})
        for watcher in watchers:
            watcher.finish(result, learned if built.has_server_model else None)
        if checkpoints is not None and not result.interrupted:
            checkpoints.discard()
    return result


def _round(server: Server, transport: LocalTransport) -> tuple[ClosedRound, set[int]]:
    """One round, in as many attempts as it takes; and the clients that were asked."""
    asked: set[int] = set()
    for _ in range(ATTEMPTS):
        downlinks = server.open_round()
        asked |= set(downlinks)
        while downlinks:
            for sender, message in transport.exchange(downlinks):
                server.take(sender, message)
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


def _record(closed: ClosedRound, measured: tuple[float, float] | None, ledger: Ledger, seconds: float) -> RoundRecord:
    accuracies = [report["accuracy"] for report in closed.reports.values() if "accuracy" in report]
    uplink, downlink = ledger.round_total("uplink"), ledger.round_total("downlink")
    report = ledger.round_total("report")
    catch_up = ledger.round_total("catch_up")
    entropy = closed.teacher_entropy
    return RoundRecord(
        round=closed.round,
        server_accuracy=measured[0] if measured else None,
        # Summed exactly, because reports arrive in any order.
        client_accuracy=math.fsum(accuracies) / len(accuracies) if accuracies else None,
        server_loss=measured[1] if measured else None,
        uplink_bytes=uplink.payload,
        downlink_bytes=downlink.payload + catch_up.payload,
        cumulative_bytes=ledger.cumulative_payload,
        cache_hit_ratio=closed.hit_ratio,
        mean_teacher_entropy=None if math.isnan(entropy) else entropy,
        uplink_frame_bytes=uplink.frame,
        downlink_frame_bytes=downlink.frame + catch_up.frame,
        uplink_transport_bytes=ledger.uplink_transport,
        downlink_transport_bytes=ledger.downlink_transport,
        report_bytes=report.size,
        catch_up_bytes=catch_up.payload,
        rejected_bytes=ledger.round_total("rejected").size,
        attempt=closed.attempt,
        answers=closed.answers,
        resets=closed.resets,
        rejections=dict(closed.rejections),
        seconds=seconds,
    )


def _setup(
    method: object,
    entry: Entry[Any],
    problem: Problem,
    bits: tuple[int | None, int | None],
    weights: Weights,
) -> Setup:
    config = problem.config
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
    )


def _server_model(setup: Setup, problem: Problem) -> ServerModel:
    model = setup.factory()
    model.load_state_dict(setup.weights)
    private = problem.data.private
    return ServerModel(
        model.to(setup.device),
        torch.from_numpy(problem.data.public).to(setup.device),
        samples(private.test_images, private.test_labels, setup.device),
        setup.training,
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
