"""What a run will take, before its first round: time, memory and megabytes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from scarlet.data.samples import Labelled
from scarlet.experiment.costs import play
from scarlet.experiment.federation import Federation, some_inputs
from scarlet.experiment.models import bytes_of
from scarlet.models.registry import ModelFactory
from scarlet.protocol.codec_registry import CODECS
from scarlet.protocol.method import Everything, Method
from scarlet.training.tensors import samples
from scarlet.training.train import Training, evaluate, fit
from scarlet.transport.client_setup import ClientSetup, client_bytes, clients_in_memory

_MOST_ASKED, _MOST_ROUNDS = 20, 200  # clients and rounds whose messages are played: some seconds
_PROCESS_BYTES = 300e6  # resident memory of a Python process that has torch loaded


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds and bytes of memory are rough; the bytes on the wire are exact if every client answers, in a short run.

    Where labels are entropy coded their bytes depend on what they say, and are counted as if they said nothing.
    """

    seconds: float
    memory_bytes: float
    uplink_bytes: int
    downlink_bytes: int
    traffic: Literal["exactly", "at least", "about"]  # what the bytes on the wire are

    def __str__(self) -> str:
        return (
            f"about {_duration(self.seconds)}, {self.memory_bytes / 1e9:.1f} GB of memory, "
            f"{'' if self.traffic == 'exactly' else f'{self.traffic} '}"
            f"{self.uplink_bytes / 1e6:.1f} MB up and {self.downlink_bytes / 1e6:.1f} MB down"
        )


def estimate(method: Method, federation: Federation, setup: ClientSetup) -> Estimate:
    """Time a few training steps of the real models, and play the protocol's messages without training."""
    config = federation.config
    size = sum(value.numel() for value in federation.weights[federation.server].values())
    up, down, whole = _traffic(method, federation, size)
    return Estimate(
        seconds=_seconds(method, federation, setup),
        memory_bytes=_memory(method, federation, setup),
        uplink_bytes=up,
        downlink_bytes=down,
        traffic=_kind(method, config.codec, whole=whole),
    )


def _kind(method: Method, codec: str, *, whole: bool) -> Literal["exactly", "at least", "about"]:
    if not isinstance(method.filter, Everything):  # clients send less than they are asked for
        return "about"
    if CODECS[codec].derives:
        return "at least"
    return "exactly" if whole else "about"


def _traffic(method: Method, federation: Federation, model_size: int) -> tuple[int, int, bool]:
    """Bytes up and down, and whether every message was played: of a large federation or a long run only some are."""
    agreement, participation, rounds = federation.agreement, federation.participation, federation.config.rounds
    played, share = agreement, 1.0
    if _MOST_ASKED < federation.asked < agreement.clients:
        played = replace(agreement, clients=round(agreement.clients * _MOST_ASKED / federation.asked))
        share = federation.asked / participation.asked(played.clients)
    count = min(rounds, _MOST_ROUNDS)
    found = play(method, played, count, federation.config.codec, participation, model_size=model_size)
    settled = slice(count // 2, None)
    up, down = (
        share * (float(each.sum()) + (rounds - count) * float(each[settled].mean()))
        for each in (found.uplink, found.downlink)
    )
    return round(up), round(down), count == rounds and played is agreement


def _seconds(method: Method, federation: Federation, setup: ClientSetup) -> float:
    config, data = federation.config, federation.data
    assert config.public_per_round is not None
    labelled = config.public_per_round if method.uses_public else 0
    distilled = config.distil_epochs * labelled
    tested = sum(len(part) for part in data.test if part is not None) / len(data.test)
    shares = np.bincount(federation.kind_of, minlength=len(setup.kinds)) / len(federation.kind_of)
    client = 0.0
    for share, kind in zip(shares.tolist(), setup.kinds, strict=True):
        train, predict = _seconds_per_sample(kind.factory, kind.training, federation)
        client += share * (config.local_epochs * data.samples_of_a_client() + distilled) * train
        client += share * (labelled + tested / config.eval_every) * predict
    server = 0.0
    if method.server_learns:
        own = federation.architectures[federation.server].factory
        train, predict = _seconds_per_sample(own, federation.training(method), federation)
        held_out = 0 if data.held_out is None else len(data.held_out)
        server = distilled * train + held_out * predict / config.eval_every
    return config.rounds * (client * -(-federation.asked // federation.workers) + server)


def _seconds_per_sample(factory: ModelFactory, training: Training, federation: Federation) -> tuple[float, float]:
    """Seconds of training and of prediction for one sample, on one thread."""
    config = federation.config
    with torch.random.fork_rng(devices=[]):
        model = factory().to(config.device)
        inputs = some_inputs(federation.data).numpy()
        rows = np.arange(max(2, config.batch_size)) % len(inputs)  # batch norm needs two
        batch = samples(Labelled(inputs[rows], np.zeros(len(rows), np.int64)), model, config.device)
        one_epoch, rng = replace(training, local_epochs=1, schedule=None), np.random.default_rng(0)
        optimisers = one_epoch.optimisers(model)
        train = _seconds_of(lambda: fit(optimisers, batch, one_epoch, rng))
        predict = _seconds_of(lambda: evaluate(model, batch, training.scale))
    return train / len(batch.labels), predict / len(batch.labels)


def _seconds_of(step: Callable[[], object]) -> float:
    step()  # the first time is not typical
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def _memory(method: Method, federation: Federation, setup: ClientSetup) -> float:
    data, agreement, config, workers = federation.data, federation.agreement, federation.config, federation.workers
    held_out = 0 if data.held_out is None else int(data.held_out.of.inputs.nbytes)
    inputs = 2 * data.nbytes() + (1 + workers) * data.public.nbytes
    if federation.architectures[federation.server].engine.channels_last:  # the server's model reads copies
        inputs += held_out + data.public.nbytes
    each = client_bytes(method, agreement, setup.kinds, data.bytes_of_a_client())
    ever_asked = min(agreement.clients, config.rounds * federation.asked)
    clients = max(workers, clients_in_memory(config.clients_in_memory, ever_asked, each))
    indices = 8 * sum(len(part) for part in (*data.train, *data.test) if part is not None)
    server = bytes_of(federation.weights[federation.server])
    server += 4 * agreement.public_size * (agreement.classes + 1)
    return inputs + indices + clients * each + server + (1 + workers) * _PROCESS_BYTES


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
