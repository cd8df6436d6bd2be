"""Communication per round for 100 clients of CIFAR-10: soft-labels of trained models, encoded by each codec.

    python -m benchmarks.cifar_bytes --data-dir DIR --run RUN

SCARLET (cnn32, alpha 0.05, CIFAR-100 as the public dataset, 1,000 of 10,000 samples a round, D = 50) is trained for
some rounds, or resumed from RUN, and each client's model then predicts every public sample. The protocol is simulated
with these soft-labels, without further training, until its cost is stationary. The table gives the mean of the last
2 (D + 1) rounds, summed over all clients, and the order-0 entropy of the labels: one table for each class and direction
over the whole round, where the table itself costs nothing.

Reports are counted apart; in the simulated rounds they carry no metrics.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

import scarlet
from scarlet.arrays import Values
from scarlet.experiment.checkpoints import Checkpoint
from scarlet.experiment.estimate import Estimate
from scarlet.experiment.federation import Federation, prepare
from scarlet.experiment.round_log import Metrics
from scarlet.job import Job, Result
from scarlet.methods.scarlet import scarlet as build
from scarlet.node import model_part
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.client import Client
from scarlet.protocol.codec_registry import codec
from scarlet.protocol.server import Server
from scarlet.records import RoundRecord
from scarlet.store import Folder, Store
from scarlet.training.tensors import weights_of
from scarlet.training.train import predict
from scarlet.wire.ledger import Ledger
from scarlet.wire.quantise import RAW_BITS, levels

METHOD = scarlet.ScarletConfig(cache_duration=50)
WINDOW = 2 * (METHOD.cache_duration + 1)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data-dir", type=Path, required=True)
    options.add_argument("--run", type=Path, required=True, help="run directory of the training")
    options.add_argument("--train", type=int, default=20, help="rounds of training")
    options.add_argument("--play", type=int, default=250, help="simulated rounds")
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
    labels, agreement = trained_labels(config, given.run, given.train)
    print(f"{labels.max(axis=-1).mean():.3f}: mean confidence of the soft-labels\n")
    print("codec, bits | up, MB | down, MB | both | order-0 entropy | frames | B a label, up, down | reports, MB")
    for name, bits in [("reference", 32), *(("compact", int(each)) for each in given.bits.split(","))]:
        print(play(labels, agreement, name, bits, given.play), flush=True)


def trained_labels(config: scarlet.Config, run: Path, rounds: int) -> tuple[Values, Agreement]:
    """f32[K, P, N]: the clients' soft-labels of all public samples after some rounds of training."""
    begun = (run / "config.json").exists()
    snapshot = Store(Folder(run / "checkpoint")).load() if begun else None
    if snapshot is None or snapshot.number < rounds:
        scarlet.run(METHOD, config, out=run, resume=begun, watchers=[_Until(rounds)])
        snapshot = Store(Folder(run / "checkpoint")).load()
    assert snapshot is not None
    print(f"{snapshot.number} rounds of training", flush=True)
    kept = run / f"labels-{snapshot.number}.npy"
    federation = prepare(config)
    if not kept.exists():
        torch.set_num_threads(1)
        model = federation.architectures[federation.server].factory()
        public, found = torch.from_numpy(federation.data.public), []
        for _, state in sorted(Checkpoint(snapshot).clients().items()):
            model.load_state_dict(weights_of(model_part(state)))
            found.append(predict(model, public, np.arange(len(public))))
        np.save(kept, np.stack(found))
    return np.load(kept), federation.agreement


class _Until:
    """A watcher that ends a run after the checkpoint of a round."""

    def __init__(self, round: int) -> None:
        self._round = round

    def start(self, config: object, federation: Federation, expected: Estimate) -> None:
        print(f"training: {expected}", flush=True)

    def round(self, record: RoundRecord, ledger: Ledger, clients: Metrics) -> None:
        print(f"round {record.round}: {record.seconds:.0f} s, server {record.server_accuracy}", flush=True)
        if record.round > self._round:
            raise KeyboardInterrupt

    def finish(self, result: scarlet.Result) -> None:
        pass


def play(labels: Values, agreement: Agreement, name: str, bits: int, rounds: int) -> str:
    """Simulate rounds with one codec; return its row of the table."""
    method, ledger = replace(build(METHOD), uplink_bits=bits, downlink_bits=bits), Ledger()
    wire = codec(name, method, agreement)
    server = Server(method, agreement, wire, ledger)
    clients = [Client(number, method, agreement, wire) for number in range(agreement.clients)]
    steady = []
    for round in range(1, rounds + 1):
        for number, downlink in server.open_round().items():
            job = clients[number].receive(downlink)
            assert isinstance(job, Job)
            for message in clients[number].reply(job, Result(labels[number, job.request], {})):
                server.take(number, message)
        request = server.request
        closed = server.close_round()
        assert closed is not None and closed.answers == agreement.clients and not closed.resets
        if round <= rounds - WINDOW:
            continue
        up, down = ledger.round_total("uplink"), ledger.round_total("downlink") + ledger.round_total("catch_up")
        ideal = order_0(labels[:, request], wire.uplink_bits)
        ideal += agreement.clients * order_0(server.state.downlink.sync.fresh, wire.downlink_bits)
        report = ledger.round_total("report").size
        count = agreement.clients * len(request)
        steady.append((up.size, down.size, ideal, up.frame + down.frame, up.payload, down.payload, count, report))
    up, down, ideal, frames, *payload, count, report = np.array(steady, np.float64).mean(axis=0)
    a_label = ", ".join(f"{each / count:.2f}" for each in payload)
    columns = f"{up / 1e6:.4f} | {down / 1e6:.4f} | {(up + down) / 1e6:.4f} | {ideal / 1e6:.4f} | {frames / 1e6:.4f}"
    return f"{name}, {wire.uplink_bits} | {columns} | {a_label} | {report / 1e6:.4f}"


def order_0(values: Values, bits: int) -> float:
    """Bytes of the labels at their order-0 entropy, with one table for each class."""
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
