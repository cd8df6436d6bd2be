"""Runs clients in one process: it keeps their models, caches and data from round to round."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, pairwise

import numpy as np
from torch import Tensor, nn

from scarlet.arrays import Array
from scarlet.data.federated import FederatedData
from scarlet.errors import MessageError
from scarlet.job import Job, Result
from scarlet.node import Node, model_part
from scarlet.protocol.client import Client
from scarlet.protocol.codec_registry import codec
from scarlet.rng import stream
from scarlet.store import Disk
from scarlet.training.engines.batched import work_together
from scarlet.training.engines.memory_format import has_channels_last
from scarlet.training.tensors import TorchState, resident, samples, weights_digest, weights_of
from scarlet.training.train import Samples, Task, work
from scarlet.transport.client_setup import ClientSetup, Kind, client_bytes, clients_in_memory
from scarlet.transport.client_store import Arrays, ClientStore, ScratchError
from scarlet.transport.transport import Failure
from scarlet.wire import frame


@dataclass(frozen=True, slots=True)
class LocalClient:
    """One client with all that it needs to take part in a round."""

    name: str
    kind: Kind
    node: Node
    state: TorchState
    private: Samples
    test: Samples | None
    validation: Samples | None

    def arrays(self) -> Arrays:
        return self.node.arrays()

    def task(self, job: Job, *, measured: bool) -> Task:
        """A job with what the client has for it."""
        test, validation = (self.test, self.validation) if measured else (None, None)
        return Task(self.name, job, self.state.model, self.state.optimisers, self.private, test, validation)


Received = tuple[LocalClient, Job] | list[bytes] | Failure  # what became of a downlink


class ClientRunner:
    """Runs the clients that it is sent downlinks for, one after another or some together."""

    def __init__(
        self,
        setup: ClientSetup,
        data: FederatedData,
        saved: Mapping[int, Arrays],
        workers: int = 1,
        *,
        disk: Disk | None = None,
        abstain: int = 0,
    ) -> None:
        self._setup, self._data = setup, data
        self._disk, self._abstain = disk, abstain  # of a client that is on this machine alone: see `Node`
        self._method = setup.method()
        self._codec = codec(setup.agreement.codec, self._method, setup.agreement)
        self._public: dict[bool, Tensor] = {}  # whether it is channels-last -> the public dataset
        self._limit = self._most_in_memory(workers)
        self._clients = ClientStore(self._limit, self._start, saved)

    def exchange(self, downlinks: Mapping[int, bytes]) -> Iterator[tuple[int, list[bytes] | Failure]]:
        """Let each client do its part of a round; its messages come when it, and who trains with it, is done."""
        groups = list(self._groups(list(downlinks)))
        following = dict(pairwise(chain.from_iterable(groups)))
        for group in groups:
            received = [self._received(number, downlinks[number], following.get(number)) for number in group]
            yield from zip(group, self._answers(received), strict=True)

    def _groups(self, numbers: list[int]) -> Iterator[list[int]]:
        """Who is trained with whom: alone, or with others of the same kind."""
        kind_of = self._setup.kind_of
        if self._setup.together:
            numbers = sorted(numbers, key=lambda number: int(kind_of[number]))
        for kind, members in groupby(numbers, key=lambda number: int(kind_of[number])):
            alike, most = list(members), min(self._setup.kinds[kind].clients_at_once or 1, self._limit)
            yield from (alike[first : first + most] for first in range(0, len(alike), most))

    def states(self, clients: Sequence[int]) -> dict[int, dict[str, Array]]:
        """All that some clients remember: their protocol state, and their models; nothing of one never asked."""
        return {
            number: {name: np.array(array, order="C") for name, array in arrays.items()}
            for number in clients
            if (arrays := self._clients.arrays(number, keep=True)) is not None
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
        return {number: self._digest(number) for number in clients}

    def close(self) -> None:
        """Forget the clients."""
        self._clients.close()

    def _digest(self, number: int) -> bytes:
        arrays = self._clients.arrays(number)
        weights = self._setup.kind(number).weights if arrays is None else weights_of(model_part(arrays))
        return weights_digest(weights)

    def _most_in_memory(self, workers: int) -> int:
        """How many clients this process keeps in memory: if not all, its share, and at least one."""
        setup, clients = self._setup, len(self._data.train)
        bytes_each = client_bytes(self._method, setup.agreement, setup.kinds, self._data.bytes_of_a_client())
        limit = clients_in_memory(setup.clients_in_memory, clients, bytes_each)
        return limit if limit == clients else max(1, limit // workers)

    def _received(self, number: int, downlink: bytes, following: int | None) -> Received:
        """What a client is to do, or to send at once, which is nothing if it drops out."""
        try:
            client = self._found(number, downlink)
            if following is not None:
                self._clients.expect(following)
            task = client.node.begin(downlink)
        except ScratchError:  # all clients share the disk
            raise
        except Exception as error:  # whatever a model, a dataset or a method may raise
            return _failure(error)
        if not isinstance(task, Job):
            return task
        return [] if self._setup.faults.lost_before_training(task) else (client, task)

    def _found(self, number: int, downlink: bytes) -> LocalClient:
        """A client as it was, or as it is without its disk."""
        client, faults = self._clients[number], self._setup.faults
        if client.node.client.state.answered and faults.wiped(number, *frame.round_of(downlink)):
            client = self._start(number, None)
            client.node.client.state.abstains = faults.abstain
            self._clients.replace(number, client)
        return client

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
        if not jobs:
            return []
        kind, evaluation = jobs[0][0].kind, self._setup.evaluation
        tasks = [client.task(job, measured=evaluation.due(job.round)) for client, job in jobs]
        public = self._public_for(tasks[0].model)
        if kind.clients_at_once is not None:
            return work_together(tasks, public, kind.training, kind.weights)
        return [work(task, public, kind.training, kind.weights) for task in tasks]

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

    def _public_for(self, model: nn.Module) -> Tensor:
        """The public dataset in a model's memory format."""
        channels_last = has_channels_last(model)
        if channels_last not in self._public:
            self._public[channels_last] = resident(self._data.public, model, self._setup.device)
        return self._public[channels_last]

    def _start(self, number: int, saved: Arrays | None) -> LocalClient:
        setup, data, kind, name = self._setup, self._data, self._setup.kind(number), self._data.names[number]
        model = kind.factory()
        model.load_state_dict(kind.weights)
        model.to(setup.device)
        state, train = TorchState(model, kind.training.optimisers(model)), data.train[number]

        def prepare() -> Mapping[str, Array]:
            rng = stream(setup.agreement.seed, "client", client=name, purpose="prepare")
            return self._method.filter.prepare(train.arrays().inputs, data.public, rng)

        client = Client(number, self._method, setup.agreement, self._codec)
        node = Node(client, state, prepare, self._disk, abstain=self._abstain)
        if saved is not None:
            node.restore(saved)
        private, test, validation = (
            samples(part.arrays(), model, setup.device) if part else None
            for part in (train, data.test[number], None if data.validation is None else data.validation[number])
        )
        assert private is not None
        return LocalClient(name, kind, node, state, private, test, validation)


def _failure(error: Exception) -> Failure:
    known = error.reason if isinstance(error, MessageError) else error  # a client's number makes no other reason
    reason = f"{type(error).__name__}: {known}".splitlines()[0]
    return Failure(reason, "".join(traceback.format_exception(error)))
