"""What a round costs on the wire: 100 clients of CIFAR-10, real soft-labels through the real codec.

    python benchmarks/cifar_bytes.py --data-dir DIR --run RUN

Trains SCARLET (cnn32, alpha 0.05, CIFAR-100 as the public set, 1,000 of 10,000 samples a round, D = 50) for some
rounds, or goes on with what is in RUN, and takes the labels that each client's model then has for every public sample.
With those the protocol is played for as many rounds as it takes to be steady. The table gives the mean of the last
2 (D + 1) rounds, all clients together, and beside it what the labels would take under their order-0 entropy: one table
for each class and direction over the whole round, the table itself for nothing.

Reports, which are for people, are counted apart: in the steady rounds they carry no metrics.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

import scarlet
from scarlet.experiment.checkpoints import client_states
from scarlet.experiment.estimate import Estimate
from scarlet.experiment.problem import Problem, prepare
from scarlet.methods.scarlet import scarlet as build
from scarlet.models.registry import Weights
from scarlet.protocol.client import Client
from scarlet.protocol.federation import Federation
from scarlet.protocol.server import Server
from scarlet.protocol.types import Job, Result, Values
from scarlet.records import RoundRecord, RunResult
from scarlet.store import Folder, Store
from scarlet.training.train import predict
from scarlet.transport.client_runner import weights_of
from scarlet.wire.codec import Codec
from scarlet.wire.codecs import codec
from scarlet.wire.ledger import Ledger
from scarlet.wire.quantise import RAW_BITS, levels

METHOD = scarlet.ScarletConfig(cache_duration=50)
WINDOW = 2 * (METHOD.cache_duration + 1)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data-dir", type=Path, required=True)
    options.add_argument("--run", type=Path, required=True, help="where the trained clients are kept")
    options.add_argument("--train", type=int, default=20, help="rounds to train for")
    options.add_argument("--play", type=int, default=250, help="rounds of the protocol, with the labels of the trained")
    options.add_argument("--bits", default="4,5,6,8")
    options.add_argument("--workers", type=int)
    given = options.parse_args()
    config = scarlet.Config(
        private="cifar10",
        data_dir=given.data_dir,
        model="cnn32",
        clients=100,
        samples_per_client=500,
        alpha=0.05,
        public_size=10_000,
        public_per_round=1_000,
        rounds=given.play,
        local_epochs=1,
        distil_epochs=1,
        eval_every=10,
        checkpoint_every=1,
        codec="compact",
        workers=given.workers,
    )
    labels, federation = trained_labels(config, given.run, given.train)
    print(f"{labels.max(axis=-1).mean():.3f}: the mean certainty of the labels\n")
    print("codec, bits | up, MB | down, MB | both | order-0 entropy | frames | B a label, up, down | reports, MB")
    for name, bits in [("reference", 32), *(("compact", int(each)) for each in given.bits.split(","))]:
        print(play(labels, federation, codec(name, bits, bits), given.play), flush=True)


def trained_labels(config: scarlet.Config, run: Path, rounds: int) -> tuple[Values, Federation]:
    """f32[K, P, N]: what the clients' models say of each public sample after so many rounds of training."""
    begun = (run / "config.json").exists()
    snapshot = Store(Folder(run / "checkpoint")).load() if begun else None
    if snapshot is None or snapshot.number < rounds:
        scarlet.run(METHOD, config, out=run, resume=begun, watchers=[_Until(rounds)])
        snapshot = Store(Folder(run / "checkpoint")).load()
    assert snapshot is not None
    print(f"{snapshot.number} rounds of training", flush=True)
    kept = run / f"labels-{snapshot.number}.npy"
    problem = prepare(config)
    if not kept.exists():
        torch.set_num_threads(1)
        model, public, found = problem.factory(), torch.from_numpy(problem.data.public), []
        for _, state in sorted(client_states(snapshot).items()):
            model.load_state_dict(weights_of(state))
            found.append(predict(model, public, np.arange(len(public))))
        np.save(kept, np.stack(found))
    return np.load(kept), problem.federation


class _Until:
    """Ends a run when the checkpoint of a round has been begun."""

    def __init__(self, round: int) -> None:
        self._round = round

    def start(self, config: object, problem: Problem, expected: Estimate) -> None:
        print(f"training: {expected}", flush=True)

    def round(self, record: RoundRecord, ledger: Ledger) -> None:
        print(f"round {record.round}: {record.seconds:.0f} s, server {record.server_accuracy}", flush=True)
        if record.round > self._round:
            raise KeyboardInterrupt

    def finish(self, result: RunResult, weights: Weights | None) -> None:
        pass


def play(labels: Values, federation: Federation, wire: Codec, rounds: int) -> str:
    """A row of the table."""
    method, ledger = build(METHOD), Ledger()
    server = Server(method, federation, wire, ledger)
    clients = [Client(number, method, federation, wire) for number in range(federation.clients)]
    steady = []
    for round in range(1, rounds + 1):
        for number, downlink in server.open_round().items():
            job = clients[number].receive(downlink)
            assert isinstance(job, Job)
            for message in clients[number].reply(job, Result(labels[number, job.request], {})):
                server.take(number, message)
        request = server.request
        closed = server.close_round()
        assert closed is not None and closed.answers == federation.clients and not closed.resets
        assert server.state.sync is not None
        if round <= rounds - WINDOW:
            continue
        up, down = ledger.round_total("uplink"), ledger.round_total("downlink") + ledger.round_total("catch_up")
        ideal = order_0(labels[:, request], wire.uplink_bits)
        ideal += federation.clients * order_0(server.state.sync.fresh, wire.downlink_bits)
        report = ledger.round_total("report").size
        count = federation.clients * len(request)
        steady.append((up.size, down.size, ideal, up.frame + down.frame, up.payload, down.payload, count, report))
    up, down, ideal, frames, *payload, count, report = np.array(steady, np.float64).mean(axis=0)
    a_label = ", ".join(f"{each / count:.2f}" for each in payload)
    columns = f"{up / 1e6:.4f} | {down / 1e6:.4f} | {(up + down) / 1e6:.4f} | {ideal / 1e6:.4f} | {frames / 1e6:.4f}"
    name = "compact" if wire.derives else "reference"
    return f"{name}, {wire.uplink_bits} | {columns} | {a_label} | {report / 1e6:.4f}"


def order_0(values: Values, bits: int) -> float:
    """Bytes of the labels under one free table for each class, each entry coded by itself."""
    if bits >= RAW_BITS:
        return 4.0 * values.size
    rows: npt.NDArray[np.int64] = levels(values, bits).reshape(-1, values.shape[-1])
    total = 0.0
    for column in rows.T:
        count = np.bincount(column)
        share = count[count > 0] / len(rows)
        total -= len(rows) * float(share @ np.log2(share)) / 8
    return total


if __name__ == "__main__":
    main()
