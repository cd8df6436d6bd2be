"""The round loop."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

import torch

from scarlet.config import Config
from scarlet.core.server import ClosedRound, Server
from scarlet.core.train import ServerModel
from scarlet.estimate import Estimate, estimate
from scarlet.methods.registry import entry_of
from scarlet.models.registry import ModelFactory, Weights, initial_weights
from scarlet.problem import Data, Problem, prepare
from scarlet.records import RoundRecord, RunResult, summarise
from scarlet.run_directory import RunDirectory
from scarlet.transport.host import Setup, samples, weights_digest
from scarlet.transport.local import LocalTransport, default_workers
from scarlet.wire.codec import codec
from scarlet.wire.ledger import Ledger


class Watcher(Protocol):
    """Somebody who follows a run: a display, a directory, a tracker."""

    def start(self, config: Mapping[str, object], problem: Problem, expected: Estimate) -> None: ...

    def round(self, record: RoundRecord, ledger: Ledger) -> None: ...

    def finish(self, result: RunResult, weights: Weights) -> None: ...


def run(
    method: object,
    config: Config,
    *,
    out: Path | None = None,
    data: Data | None = None,
    model: ModelFactory | None = None,
    watchers: Sequence[Watcher] = (),
) -> RunResult:
    """Run one method; `method` is its config object, such as ScarletConfig(beta=2).

    Ctrl-C ends the run after its last whole round, with all that was done until then.
    """
    entry = entry_of(method)
    if out is not None:
        watchers = [RunDirectory(out), *watchers]
    problem = prepare(config, data, model)
    config = problem.config
    workers = config.workers or default_workers(config.clients)
    flat = flatten(entry.name, method, config)
    with _one_thread():
        built = entry.build(method)
        weights = initial_weights(problem.factory, config.seed)
        setup = _setup(problem, weights)
        learner = _server_model(setup, problem)
        ledger = Ledger()
        server = Server(built, problem.federation, codec(config.codec), ledger, learner)
        expected = estimate(built, problem, workers)
        for watcher in watchers:
            watcher.start(flat, problem, expected)

        records: list[RoundRecord] = []
        digest: str | None = None
        learned = weights  # of the server, after the last whole round
        try:
            with LocalTransport(setup, problem.resident, workers) as transport:
                for round in range(1, config.rounds + 1):
                    started = time.perf_counter()
                    for sender, message in transport.exchange(server.open_round()):
                        server.take(sender, message)
                    closed = server.close_round()
                    measured = learner.evaluate() if setup.evaluates(round) else None
                    record = _record(closed, measured, ledger, time.perf_counter() - started)
                    learned = {name: value.clone() for name, value in learner.model.state_dict().items()}
                    records.append(record)
                    for watcher in watchers:
                        watcher.round(record, ledger)
                digest = _digest([weights_digest(learner.model.state_dict()), *transport.digests()])
        except KeyboardInterrupt:
            pass
        summary = summarise(records, digest)
        result = RunResult(entry.name, flat, records, summary | {"public_fingerprint": problem.public_fingerprint})
        for watcher in watchers:
            watcher.finish(result, learned)
    return result


def flatten(name: str, method: object, config: Config) -> dict[str, object]:
    """All options of a run in one table, as config.json holds them."""
    assert is_dataclass(method) and not isinstance(method, type)
    options = {"method": name, **asdict(method), **asdict(config)}
    return {key: str(value) if isinstance(value, Path) else value for key, value in options.items()}


def _record(closed: ClosedRound, measured: tuple[float, float] | None, ledger: Ledger, seconds: float) -> RoundRecord:
    accuracies = [report["accuracy"] for report in closed.reports.values() if "accuracy" in report]
    uplink, downlink = ledger.round_total("uplink"), ledger.round_total("downlink")
    report = ledger.round_total("report")
    entropy = closed.teacher_entropy
    return RoundRecord(
        round=closed.round,
        server_accuracy=measured[0] if measured else None,
        # Summed exactly, because reports arrive in any order.
        client_accuracy=math.fsum(accuracies) / len(accuracies) if accuracies else None,
        server_loss=measured[1] if measured else None,
        uplink_bytes=uplink.payload,
        downlink_bytes=downlink.payload,
        cumulative_bytes=ledger.cumulative_payload,
        cache_hit_ratio=closed.hit_ratio,
        mean_teacher_entropy=None if math.isnan(entropy) else entropy,
        uplink_frame_bytes=uplink.frame,
        downlink_frame_bytes=downlink.frame,
        report_bytes=report.payload + report.frame,
        seconds=seconds,
    )


def _setup(problem: Problem, weights: Weights) -> Setup:
    config = problem.config
    return Setup(
        factory=problem.factory,
        weights=weights,
        private=problem.private,
        test=problem.test,
        classes=problem.data.private.classes,
        training=problem.training,
        codec=config.codec,
        device=config.device,
        rounds=config.rounds,
        eval_every=config.eval_every,
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
