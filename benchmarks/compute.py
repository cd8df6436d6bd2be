"""Processor seconds of a run's training, prediction and evaluation, added up over the server and all workers.

They are measured from outside: a runner and a server's model of this file take the place of those of the package.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from ctypes import c_double
from functools import partial
from multiprocessing import get_context
from unittest.mock import patch

from torch import Tensor, nn

from scarlet.arrays import Index, Labels, Mask, Values
from scarlet.data.federated import FederatedData
from scarlet.job import Job, Result
from scarlet.training.server_model import ServerModel
from scarlet.training.train import Samples, Training
from scarlet.transport.client_runner import ClientRunner, LocalClient
from scarlet.transport.client_setup import ClientSetup
from scarlet.transport.client_store import Arrays
from scarlet.transport.local import LocalTransport


class ComputeTime:
    """A sum of processor seconds that all processes of a run add to, in shared memory.

    It can be pickled only while a process is being started, as an argument of that process.
    """

    def __init__(self) -> None:
        self._sum = get_context("forkserver").Value(c_double)

    @property
    def seconds(self) -> float:
        return self._sum.value

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Add the processor seconds that the calling thread spends in the block."""
        started = time.thread_time()
        try:
            yield
        finally:
            with self._sum.get_lock():
                self._sum.value += time.thread_time() - started

    def transport(self) -> partial[LocalTransport]:
        """A factory of transports whose client runners are measured."""
        return partial(LocalTransport, runner=partial(MeasuredRunner, self))

    @contextmanager
    def server_measured(self) -> Iterator[None]:
        """Measure the server's model of each run that begins in the block."""
        with patch("scarlet.experiment.run.ServerModel", partial(MeasuredServerModel, self)):
            yield


class MeasuredRunner(ClientRunner):
    """Runs clients, and measures the computation of their jobs."""

    def __init__(
        self,
        compute: ComputeTime,
        setup: ClientSetup,
        data: FederatedData,
        saved: Mapping[int, Arrays],
        workers: int = 1,
    ) -> None:
        super().__init__(setup, data, saved, workers)
        self._compute = compute

    def _work(self, jobs: Sequence[tuple[LocalClient, Job]]) -> list[Result]:
        with self._compute.measured():
            return super()._work(jobs)


class MeasuredServerModel(ServerModel):
    """The server's model; its training, prediction and evaluation are measured."""

    def __init__(
        self,
        compute: ComputeTime,
        model: nn.Module,
        public: Tensor,
        test: Samples | None,
        training: Training,
        *,
        apart: bool = False,
        validation: Mask | None = None,
    ) -> None:
        super().__init__(model, public, test, training, apart=apart, validation=validation)
        self._compute = compute

    def predict(self, index: Index) -> Values:
        with self._compute.measured():
            return super().predict(index)

    def _learn(self, labels: Labels, round: int) -> None:
        with self._compute.measured():
            super()._learn(labels, round)

    def _evaluate(self) -> tuple[float, float] | None:
        with self._compute.measured():
            return super()._evaluate()
