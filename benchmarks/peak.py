"""The machine's peak FLOPS: the rate at which two cores multiply matrices; and the FLOPs of a round's training."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.synchronize import Barrier
from types import TracebackType

import torch

from benchmarks.flops import step_flops
from scarlet.experiment.federation import Federation
from scarlet.training.train import scaled

CORES = 2
_SIDE = 2048
_SECONDS = 2.0


class PeakFlops:
    """Two processes of one thread each that multiply matrices at the same time. Use it as a context manager."""

    def __init__(self, seconds: float = _SECONDS) -> None:
        context = multiprocessing.get_context("spawn")
        self._queue: multiprocessing.SimpleQueue[float] = context.SimpleQueue()
        self._barrier = context.Barrier(CORES + 1)
        self._processes = [
            context.Process(target=_multiply, args=(self._barrier, self._queue, seconds), daemon=True)
            for _ in range(CORES)
        ]
        for process in self._processes:
            process.start()

    def measure(self) -> float:
        """Single-precision FLOPS of both cores together, by the fastest of the products in some seconds."""
        self._barrier.wait()
        return sum(self._queue.get() for _ in range(CORES))

    def __enter__(self) -> PeakFlops:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.terminate()
            process.join()


def _multiply(barrier: Barrier, queue: multiprocessing.SimpleQueue[float], seconds: float) -> None:
    torch.set_num_threads(1)
    a, b = torch.rand(_SIDE, _SIDE), torch.rand(_SIDE, _SIDE)
    out = a @ b
    while True:
        barrier.wait()
        end, times = time.perf_counter() + seconds, [float("inf")]
        while (started := time.perf_counter()) < end:
            torch.mm(a, b, out=out)
            times.append(time.perf_counter() - started)
        # The other core may already be idle while the last product ends.
        queue.put(2 * _SIDE**3 / min(times[:-1] if len(times) > 2 else times))


def training_images(federation: Federation) -> int:
    """Images of a round's forward and backward passes on all clients and the server, from the second round on."""
    config, clients = federation.config, federation.data.train
    taught = federation.agreement.public_per_round
    private = sum(len(share) for share in clients)
    return config.local_epochs * private + (len(clients) + 1) * config.distil_epochs * taught


def training_flops(federation: Federation) -> int:
    """FLOPs of a round's training, without prediction and evaluation."""
    image = scaled(torch.from_numpy(federation.data.public[:1]))
    return step_flops(federation.architectures[federation.server].factory(), image) * training_images(federation)
