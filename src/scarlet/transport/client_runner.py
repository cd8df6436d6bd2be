"""Runs clients in one process: it keeps their models, caches and data from round to round."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import nn

from scarlet.arrays import Array
from scarlet.data.federated import FederatedData
from scarlet.errors import MessageError
from scarlet.job import Job, Result
from scarlet.node import Node, model_part
from scarlet.protocol.client import Client
from scarlet.protocol.codec_registry import codec
from scarlet.rng import stream
from scarlet.training.engines.batched import work_together
from scarlet.training.tensors import model_arrays, resident, samples, weights_digest, weights_of
from scarlet.training.train import Samples, Task, work
from scarlet.transport.client_setup import ClientSetup, client_bytes, clients_in_memory
from scarlet.transport.client_store import Arrays, ClientStore, ScratchError
from scarlet.transport.transport import Failure


@dataclass(frozen=True, slots=True)
class TorchState:
    """A torch model as a node saves it."""

    model: nn.Module

    def arrays(self) -> Mapping[str, Array]:
        return model_arrays(self.model.state_dict())

    def restore(self, arrays: Mapping[str, Array]) -> None:
        self.model.load_state_dict(weights_of(arrays))


@dataclass(frozen=True, slots=True)
class LocalClient:
    """One client with all that it needs to take part in a round."""

    node: Node
    model: nn.Module
    private: Samples
    test: Samples

    def arrays(self) -> Arrays:
        return self.node.arrays()


Received = tuple[LocalClient, Job] | list[bytes] | Failure  # what became of a downlink


class ClientRunner:
    """Runs the clients that it is sent downlinks for, one after another or some together."""

    def __init__(self, setup: ClientSetup, data: FederatedData, saved: Mapping[int, Arrays], workers: int = 1) -> None:
        self._setup, self._data = setup, data
        self._method = setup.method()
        self._codec = codec(setup.codec, self._method, setup.agreement)
        model = self._new_model()
        self._initial = weights_digest(model.state_dict())
        self._public = resident(data.public, model, setup.device)
        limit = self._limit(workers)
        self._at_once = min(setup.clients_at_once or 1, limit)  # clients trained together are in memory together
        self._clients = ClientStore(limit, self._start, saved)

    def exchange(self, downlinks: Mapping[int, bytes]) -> Iterator[tuple[int, list[bytes] | Failure]]:
        """Let each client do its part of a round; its messages come when it, and who trains with it, is done."""
        numbers = list(downlinks)
        for first in range(0, len(numbers), self._at_once):
            group = range(first, min(first + self._at_once, len(numbers)))
            received = [self._received(numbers[at], downlinks[numbers[at]], numbers[at + 1 : at + 2]) for at in group]
            for at, messages in zip(group, self._answers(received), strict=True):
                yield numbers[at], messages

    def states(self, clients: Sequence[int]) -> dict[int, dict[str, Array]]:
        """All that some clients remember: their protocol state, and their models; nothing of one never asked."""
        return {
            number: {name: np.array(array, order="C") for name, array in arrays.items()}
            for number in clients
            if (arrays := self._clients.arrays(number)) is not None
        }

    def release(self, clients: Sequence[int]) -> dict[int, dict[str, Array]]:
        """The states of some clients, which are run elsewhere from now on."""
        states = self.states(clients)
        for number in clients:
            self._clients.forget(number)
        return states

    def take_over(self, states: Mapping[int, Arrays]) -> None:
        """Run clients that were run elsewhere."""
        for number, arrays in states.items():
            self._clients.take_over(number, arrays)

    def digests(self, clients: Sequence[int]) -> dict[int, bytes]:
        """For each client, a digest of its model's weights."""
        return {number: self._digest(self._clients.arrays(number)) for number in clients}

    def close(self) -> None:
        """Forget the clients."""
        self._clients.close()

    def _digest(self, arrays: Arrays | None) -> bytes:
        return self._initial if arrays is None else weights_digest(weights_of(model_part(arrays)))

    def _limit(self, workers: int) -> int:
        """How many clients this process keeps in memory: if not all, its share, and at least one."""
        setup, clients = self._setup, len(self._data.train)
        images = self._data.bytes_of_a_client()
        bytes_each = client_bytes(self._method, setup.agreement, setup.codec, setup.weights, images)
        limit = clients_in_memory(setup.clients_in_memory, clients, bytes_each)
        return limit if limit == clients else max(1, limit // workers)

    def _received(self, number: int, downlink: bytes, following: Sequence[int]) -> Received:
        """What a client is to do, or to send at once, which is nothing if it drops out."""
        try:
            client = self._clients[number]
            for each in following:
                self._clients.expect(each)
            task = client.node.begin(downlink)
        except ScratchError:  # all clients share the disk
            raise
        except Exception as error:  # whatever a model, a dataset or a method may raise
            return _failure(error)
        if not isinstance(task, Job):
            return task
        return [] if self._setup.faults.lost_before_training(task) else (client, task)

    def _answers(self, received: Sequence[Received]) -> list[list[bytes] | Failure]:
        """What each client sends when the jobs among what they received are done."""
        jobs = [each for each in received if isinstance(each, tuple)]
        outcomes = iter(self._results(jobs))
        return [self._reply(*each, next(outcomes)) if isinstance(each, tuple) else each for each in received]

    def _results(self, jobs: Sequence[tuple[LocalClient, Job]]) -> Sequence[Result | Failure]:
        """What came of each job; where one of a group fails, the others are done without it."""
        try:
            return self._work(jobs)
        except Exception as error:  # whatever a model may raise
            if len(jobs) == 1:
                return [_failure(error)]
            return [result for job in jobs for result in self._results([job])]

    def _work(self, jobs: Sequence[tuple[LocalClient, Job]]) -> list[Result]:
        setup = self._setup
        tasks = [
            Task(client.model, job, client.private, client.test if setup.evaluation.due(job.round) else None)
            for client, job in jobs
        ]
        if setup.clients_at_once is not None and tasks:
            return work_together(tasks, self._public, setup.training, setup.weights)
        return [work(task, self._public, setup.training, setup.weights) for task in tasks]

    def _reply(self, client: LocalClient, job: Job, outcome: Result | Failure) -> list[bytes] | Failure:
        """A client's answer to a job, which may get lost."""
        if isinstance(outcome, Failure):
            return outcome
        faults = self._setup.faults
        try:
            messages = client.node.finish(job, faults.falsified(job, outcome))
        except Exception as error:  # whatever a method's filter may raise
            return _failure(error)
        return [] if faults.lost_after_training(job) else messages

    def _new_model(self) -> nn.Module:
        model = self._setup.factory()
        model.load_state_dict(self._setup.weights)
        return model

    def _start(self, number: int, saved: Arrays | None) -> LocalClient:
        setup, data, private = self._setup, self._data, self._data.private
        model = self._new_model()
        train, test = data.train[number], data.test[number]

        def prepare() -> Mapping[str, Array]:
            rng = stream(setup.agreement.seed, "client", client=number, purpose="prepare")
            return self._method.filter.prepare(private.train_images[train], data.public, rng)

        node = Node(Client(number, self._method, setup.agreement, self._codec), TorchState(model), prepare)
        if saved is not None:
            node.restore(saved)
        return LocalClient(
            node,
            model.to(setup.device),
            samples(private.train_images[train], private.train_labels[train], model, setup.device),
            samples(private.test_images[test], private.test_labels[test], model, setup.device),
        )


def _failure(error: Exception) -> Failure:
    known = error.reason if isinstance(error, MessageError) else error  # a client's number makes no other reason
    reason = f"{type(error).__name__}: {known}".splitlines()[0]
    return Failure(reason, "".join(traceback.format_exception(error)))
