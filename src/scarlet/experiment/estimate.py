"""What a run will take, before its first round: time, memory and megabytes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from scarlet.experiment.costs import play
from scarlet.experiment.federation import Federation
from scarlet.protocol.codec_registry import CODECS
from scarlet.protocol.method import Method
from scarlet.training.tensors import samples
from scarlet.training.train import evaluate, fit
from scarlet.transport.client_setup import client_bytes, clients_in_memory

_PROCESS_BYTES = 300e6  # resident memory of a Python process that has torch loaded


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds and bytes of memory are rough; the bytes on the wire are exact if every client answers.

    Where labels are entropy coded their bytes depend on what they say, and are counted as if they said nothing.
    """

    seconds: float
    memory_bytes: float
    uplink_bytes: int
    downlink_bytes: int
    exact: bool  # the bytes on the wire; otherwise there will be more

    def __str__(self) -> str:
        return (
            f"about {_duration(self.seconds)}, {self.memory_bytes / 1e9:.1f} GB of memory, "
            f"{'' if self.exact else 'at least '}"
            f"{self.uplink_bytes / 1e6:.1f} MB up and {self.downlink_bytes / 1e6:.1f} MB down"
        )


def estimate(method: Method, federation: Federation) -> Estimate:
    """Time a few training steps of the real model, and play the protocol's messages without training."""
    config = federation.config
    size = sum(value.numel() for value in federation.factory().state_dict().values())
    traffic = play(method, federation.agreement, config.rounds, config.codec, federation.participation, model_size=size)
    return Estimate(
        seconds=_seconds(method, federation),
        memory_bytes=_memory(method, federation),
        uplink_bytes=int(traffic.uplink.sum()),
        downlink_bytes=int(traffic.downlink.sum()),
        exact=not CODECS[config.codec].derives,
    )


def _seconds(method: Method, federation: Federation) -> float:
    config, data = federation.config, federation.data
    assert config.public_per_round is not None
    train, predict = _seconds_per_image(method, federation)
    labelled = config.public_per_round if method.uses_public else 0
    distilled = config.distil_epochs * labelled
    client = (config.local_epochs * len(data.train[0]) + distilled) * train
    client += labelled * predict + len(data.test[0]) * predict / config.eval_every
    tested = len(data.private.test_labels) if method.server_learns else 0
    server = distilled * train + tested * predict / config.eval_every
    return config.rounds * (client * -(-federation.asked // federation.workers) + server)


def _seconds_per_image(method: Method, federation: Federation) -> tuple[float, float]:
    """Seconds of training and of prediction for one image, on one thread."""
    config, private = federation.config, federation.data.private
    model = federation.factory().to(config.device)
    images, labels = private.train_images[: config.batch_size], private.train_labels[: config.batch_size]
    batch = samples(images, labels, model, config.device)
    one_epoch, rng = replace(federation.training(method), local_epochs=1), np.random.default_rng(0)
    train = _seconds_of(lambda: fit(model, batch, one_epoch, rng))
    predict = _seconds_of(lambda: evaluate(model, batch))
    return train / len(batch.labels), predict / len(batch.labels)


def _seconds_of(step: Callable[[], object]) -> float:
    step()  # the first time is not typical
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def _memory(method: Method, federation: Federation) -> float:
    data, agreement, config, workers = federation.data, federation.agreement, federation.config, federation.workers
    private = data.private
    images = 2 * (private.train_images.nbytes + private.test_images.nbytes) + (1 + workers) * data.public.nbytes
    if federation.engine.channels_last:  # the server's model reads copies
        images += private.test_images.nbytes + data.public.nbytes
    weights = federation.initial_weights()
    each = client_bytes(method, agreement, config.codec, weights, data.bytes_of_a_client())
    ever_asked = min(agreement.clients, config.rounds * federation.asked)
    clients = max(workers, clients_in_memory(config.clients_in_memory, ever_asked, each))
    indices = 8 * sum(len(share) for share in [*data.train, *data.test])
    server = sum(int(value.nbytes) for value in weights.values())
    server += 4 * agreement.public_size * (agreement.classes + 1)
    return images + indices + clients * each + server + (1 + workers) * _PROCESS_BYTES


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
