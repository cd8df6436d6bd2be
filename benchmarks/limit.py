"""The machine's own limit: how fast two cores multiply matrices, and how much multiplying a round's training needs."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.synchronize import Barrier
from types import TracebackType

import torch

from scarlet.experiment.problem import Problem
from scarlet.training.flops import step_flops
from scarlet.training.train import scaled

CORES = 2
_SIDE = 2048
_SECONDS = 2.0


class Gauge:
    """Two processes of one thread each that multiply matrices at the same time. Use it as a context manager."""

    def __init__(self, seconds: float = _SECONDS) -> None:
        context = multiprocessing.get_context("spawn")
        self._seconds = seconds
        self._queue: multiprocessing.SimpleQueue[float] = context.SimpleQueue()
        self._barrier = context.Barrier(CORES + 1)
        self._processes = [
            context.Process(target=_multiply, args=(self._barrier, self._queue, seconds), daemon=True)
            for _ in range(CORES)
        ]
        for process in self._processes:
            process.start()

    def flops(self) -> float:
        """Floating-point operations a second, single precision, of both cores together: the best of some seconds."""
        self._barrier.wait()
        return sum(self._queue.get() for _ in range(CORES))

    def __enter__(self) -> Gauge:
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
        # The other core may already be at rest while the last product ends.
        queue.put(2 * _SIDE**3 / min(times[:-1] if len(times) > 2 else times))


def training_images(problem: Problem) -> int:
    """Images that pass forward and backward in a round, on all clients and the server, once something is taught."""
    config = problem.config
    taught = problem.federation.public_per_round
    private = sum(len(share) for share in problem.private)
    learners = len(problem.private) + 1
    return config.local_epochs * private + learners * config.distil_epochs * taught


def training_flops(problem: Problem) -> int:
    """Floating-point operations of a round's training; prediction and evaluation are not among them."""
    image = scaled(torch.from_numpy(problem.data.public[:1]))
    return step_flops(problem.factory(), image) * training_images(problem)
