"""What a run will take, before its first round: time, memory and megabytes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from scarlet.experiment.costs import play
from scarlet.experiment.problem import Problem
from scarlet.protocol.method import Method
from scarlet.training.train import evaluate, fit
from scarlet.transport.client_runner import samples
from scarlet.transport.client_store import in_memory, site_bytes
from scarlet.wire.codecs import codec

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


def estimate(method: Method, problem: Problem, workers: int) -> Estimate:
    """Time a few training steps of the real model, and play the protocol's messages without training."""
    config = problem.config
    size = sum(value.numel() for value in problem.factory().state_dict().values())
    traffic = play(method, problem.federation, config.rounds, config.codec, model_size=size)
    return Estimate(
        seconds=_seconds(method, problem, workers),
        memory_bytes=_memory(method, problem, workers),
        uplink_bytes=int(traffic.uplink.sum()),
        downlink_bytes=int(traffic.downlink.sum()),
        exact=not codec(config.codec).derives,
    )


def _seconds(method: Method, problem: Problem, workers: int) -> float:
    config = problem.config
    assert config.public_per_round is not None
    train, look = _seconds_per_image(problem)
    labelled = config.public_per_round if method.exchange == "labels" else 0
    distilled = config.distil_epochs * labelled
    a_client = (config.local_epochs * len(problem.private[0]) + distilled) * train
    a_client += labelled * look + len(problem.test[0]) * look / config.eval_every
    tested = len(problem.data.private.test_labels) if method.has_server_model else 0
    a_server = distilled * train + tested * look / config.eval_every
    return config.rounds * (a_client * -(-problem.federation.asked // workers) + a_server)


def _seconds_per_image(problem: Problem) -> tuple[float, float]:
    """Seconds to train on one image, and to look at one, on one thread."""
    config, private = problem.config, problem.data.private
    model = problem.factory().to(config.device)
    images, labels = private.train_images[: config.batch_size], private.train_labels[: config.batch_size]
    batch = samples(images, labels, model, config.device)
    one_epoch, rng = replace(problem.training, local_epochs=1), np.random.default_rng(0)
    train = _seconds_of(lambda: fit(model, batch, one_epoch, rng))
    look = _seconds_of(lambda: evaluate(model, batch))
    return train / len(batch.labels), look / len(batch.labels)


def _seconds_of(step: Callable[[], object]) -> float:
    step()  # the first time is not typical
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def _memory(method: Method, problem: Problem, workers: int) -> float:
    resident, federation, config = problem.resident, problem.federation, problem.config
    data = 2 * (resident.train_images.nbytes + resident.test_images.nbytes) + (1 + workers) * resident.public.nbytes
    if problem.engine.channels_last:  # the server's model looks at copies
        data += resident.test_images.nbytes + resident.public.nbytes
    weights = sum(int(value.nbytes) for value in problem.factory().state_dict().values())
    images = len(problem.private[0]) * resident.train_images[0].nbytes
    images += len(problem.test[0]) * resident.test_images[0].nbytes
    a_client = site_bytes(method, federation, weights, images)
    ever_asked = min(federation.clients, config.rounds * federation.asked)
    clients = max(workers, in_memory(config.clients_in_memory, ever_asked, a_client))
    indices = 8 * sum(len(share) for share in [*problem.private, *problem.test])
    a_server = weights + 4 * federation.public_size * (federation.classes + 1)
    return data + indices + clients * a_client + a_server + (1 + workers) * _PROCESS_BYTES


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
