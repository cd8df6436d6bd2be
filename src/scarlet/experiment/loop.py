"""The rounds of a run, top to bottom."""

from __future__ import annotations

import math
import time
from collections import Counter

from scarlet.errors import ScarletError
from scarlet.experiment.checkpoints import Checkpoints
from scarlet.experiment.round_log import RoundLog
from scarlet.experiment.stopping import ALL_ROUNDS, Stopping
from scarlet.protocol.server import ClosedRound, Server
from scarlet.training.server_model import ServerModel
from scarlet.transport.client_setup import Evaluation
from scarlet.transport.transport import Failure, Transport

ATTEMPTS = 10  # how often a round is tried before the run gives up


def run_rounds(
    server: Server,
    transport: Transport,
    learner: ServerModel,
    log: RoundLog,
    evaluation: Evaluation,
    checkpoints: Checkpoints | None = None,
    deadline: float | None = None,  # seconds after which an attempt at a round no longer waits for answers
    stopping: Stopping = ALL_ROUNDS,
) -> None:
    """Run all rounds that are left, or until a rule ends the run.

    The labels of round t are taught by the broadcast of round t + 1, and the server's model learns them while the
    clients are at work on that round.
    """
    ledger, local = server.ledger, transport.local
    changed: set[int] = set()  # clients that were asked since the last checkpoint
    log.begin()
    while server.state.round < evaluation.last and stopping.reason(log.records) is None:
        due = checkpoints is not None and checkpoints.due(server.state.round + 1)
        if due and local is not None:
            local.collect()
        closed, asked, failures = _run_round(server, transport, log, deadline)
        overhead = transport.overhead()
        ledger.carried(uplink=overhead.uplink, downlink=overhead.downlink)
        changed |= asked
        snapshot = None
        if checkpoints is not None and due:
            snapshot = checkpoints.snapshot(server, changed, transport.states(sorted(changed)))
            changed = set()
        learned = learner.finish(measure=server.method.server_learns and evaluation.due(closed.round))
        log.add(closed, ledger, failures, learned, snapshot)
        if local is None:  # clients that keep their own state must never be ahead of what the server can go back to
            log.save()
        if stopping != ALL_ROUNDS:
            log.write()
    log.finish()


def _run_round(
    server: Server, transport: Transport, log: RoundLog, deadline: float | None
) -> tuple[ClosedRound, set[int], Counter[str]]:
    """One round, in as many attempts as it takes; with the clients that were asked, and those that failed."""
    asked: set[int] = set()
    failures: Counter[str] = Counter()
    last: Failure | None = None
    for _ in range(ATTEMPTS):
        available = transport.available()  # it may wait for clients, and that is no part of the time they have
        until = math.inf if deadline is None else time.monotonic() + deadline
        downlinks = server.open_round(available)
        asked |= set(downlinks)
        failed: set[int] = set()
        while downlinks and time.monotonic() < until:
            for sender, answer in transport.exchange(downlinks, until):
                if isinstance(answer, Failure):
                    if sender in downlinks and sender not in failed:
                        failures[answer.reason] += 1
                        failed.add(sender)
                    last = answer
                else:
                    server.take(sender, answer)
                log.write_if_learned()
            downlinks = server.resets()
        closed = server.close_round()
        if closed is not None:
            return closed, asked, failures
    raise ScarletError(_hopeless(server, failures, last))


def _hopeless(server: Server, failures: Counter[str], last: Failure | None) -> str:
    """Why a run gives up."""
    rejected, failed = dict(server.rejections) or "nothing", dict(failures) or "none"
    return (
        f"round {server.state.round + 1} failed {ATTEMPTS} times with fewer than {server.participation.min_answers} "
        f"answers (rejected: {rejected}; failed clients: {failed}); where labels are not finite a smaller lr may help, "
        "otherwise lower min_answers or dropout, give more time until the deadline, or ask more clients"
        + (f"\nthe last client that failed:\n{last.trace}" if last is not None and last.trace else "")
    )
