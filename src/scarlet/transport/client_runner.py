"""A host runs clients: it keeps their models, caches and data from round to round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from scarlet.models.registry import ModelFactory, Weights
from scarlet.protocol.client import Client
from scarlet.protocol.federation import Federation
from scarlet.protocol.method import Method
from scarlet.protocol.persist import Array, restore_client
from scarlet.protocol.types import Images, Index, Job, Result
from scarlet.rng import stream
from scarlet.training.batched import Task, work_together
from scarlet.training.runtime import laid_out_for
from scarlet.training.train import Samples, Training, work
from scarlet.transport.client_store import Arrays, Site, Sites, in_memory, site_bytes, weights_of
from scarlet.transport.fault_injection import Troubles
from scarlet.wire.codecs import codec


@dataclass(frozen=True, slots=True)
class Resident:
    """The data of a federation; clients hold indices into it."""

    train_images: Images
    train_labels: npt.NDArray[np.int64]
    test_images: Images
    test_labels: npt.NDArray[np.int64]
    public: Images


@dataclass(frozen=True, slots=True)
class Setup:
    """All that a host needs to know, apart from the images, to run any client."""

    method: object  # its options; a method itself holds functions that cannot be sent to another process
    build: Callable[[Any], Method]
    factory: ModelFactory
    weights: Weights  # that all clients start from
    private: Sequence[Index]  # for each client: its training images
    test: Sequence[Index]  # for each client: its test images
    federation: Federation
    training: Training
    codec: str
    bits: tuple[int | None, int | None]  # of a label's entry, up and down; None: the codec's
    device: str
    rounds: int
    eval_every: int
    troubles: Troubles
    clients_in_memory: int | None = None  # over all workers; None: as many as fit into the budget
    workers: int = 1
    at_once: int | None = None  # clients that are trained together at most; None: one after another

    def evaluates(self, round: int) -> bool:
        """Whether accuracy is measured in a round: every `eval_every`-th, and the last."""
        return round % self.eval_every == 0 or round == self.rounds


class Host:
    """Runs the clients that it is sent messages for, one after another or some together."""

    def __init__(self, setup: Setup, data: Resident, saved: Mapping[int, Arrays]) -> None:
        self._setup = setup
        self._method = setup.build(setup.method)
        self._codec = codec(setup.codec, *setup.bits, classes=setup.federation.classes)
        self._data = data
        model = self._fresh_model()
        self._initial = weights_digest(model.state_dict())
        self._public = resident(data.public, model, setup.device)
        limit = self._limit()
        self._at_once = min(setup.at_once or 1, limit)  # who is trained together is in memory together
        self._sites = Sites(limit, self._start, saved)

    def exchange(self, downlinks: Mapping[int, bytes]) -> Iterator[tuple[int, list[bytes]]]:
        """Let each client do its part of a round; its messages come as soon as it, and who works with it, is done."""
        numbers = list(downlinks)
        for first in range(0, len(numbers), self._at_once):
            group = range(first, min(first + self._at_once, len(numbers)))
            received = []
            for at in group:
                site = self._sites[numbers[at]]
                if at + 1 < len(numbers):
                    self._sites.expect(numbers[at + 1])
                received.append((site, self._received(site.client, downlinks[numbers[at]])))
            for at, messages in zip(group, self._answers(received), strict=True):
                yield numbers[at], messages

    def states(self, clients: Sequence[int]) -> dict[int, dict[str, Array]]:
        """All that some clients remember: their protocol state, and their models; nothing of one never asked."""
        return {
            number: {name: np.array(array, order="C") for name, array in arrays.items()}
            for number in clients
            if (arrays := self._sites.arrays(number)) is not None
        }

    def release(self, clients: Sequence[int]) -> dict[int, dict[str, Array]]:
        """The states of some clients, which are run elsewhere from now on."""
        states = self.states(clients)
        for number in clients:
            self._sites.forget(number)
        return states

    def adopt(self, states: Mapping[int, Arrays]) -> None:
        """Run clients that were run elsewhere."""
        for number, arrays in states.items():
            self._sites.adopt(number, arrays)

    def digests(self, clients: Sequence[int]) -> dict[int, bytes]:
        """For each client, a digest of its model's weights."""
        return {number: self._digest(self._sites.arrays(number)) for number in clients}

    def close(self) -> None:
        """Forget the clients."""
        self._sites.close()

    def _digest(self, arrays: Arrays | None) -> bytes:
        return self._initial if arrays is None else weights_digest(weights_of(arrays))

    def _limit(self) -> int:
        """How many clients this worker keeps in memory: if not all, its share, and at least one."""
        setup, data = self._setup, self._data
        weights = sum(int(value.nbytes) for value in setup.weights.values())
        images = len(setup.private[0]) * data.train_images[0].nbytes + len(setup.test[0]) * data.test_images[0].nbytes
        a_client = site_bytes(self._method, setup.federation, weights, images)
        limit = in_memory(setup.clients_in_memory, len(setup.private), a_client)
        return limit if limit == len(setup.private) else max(1, limit // setup.workers)

    def _received(self, client: Client, downlink: bytes) -> Job | list[bytes]:
        """What a client is to do, or to send at once, which is nothing if it is lost."""
        task = client.receive(downlink)
        if isinstance(task, Job):
            if self._setup.troubles.lost_before_training(task):
                return []
            self._prepare(client)
        return task

    def _answers(self, received: Sequence[tuple[Site, Job | list[bytes]]]) -> list[list[bytes]]:
        """What each client sends when the jobs among the tasks are done."""
        results = iter(self._work([(site, task) for site, task in received if isinstance(task, Job)]))
        return [
            self._reply(site.client, task, next(results)) if isinstance(task, Job) else task for site, task in received
        ]

    def _work(self, jobs: Sequence[tuple[Site, Job]]) -> list[Result]:
        how, method, start = self._setup.training, self._method, self._setup.weights
        tasks = [
            Task(site.model, job, site.private, site.test if self._setup.evaluates(job.round) else None)
            for site, job in jobs
        ]
        if self._setup.at_once is not None and tasks:
            return work_together(tasks, self._public, how, method, start)
        return [work(task.model, task.job, task.private, task.test, self._public, how, method, start) for task in tasks]

    def _reply(self, client: Client, job: Job, result: Result) -> list[bytes]:
        """A client's answer to a job, which may get lost."""
        troubles = self._setup.troubles
        messages = client.reply(job, troubles.falsified(job, result))
        return [] if troubles.lost_after_training(job) else messages

    def _prepare(self, client: Client) -> None:
        """What the method has each client work out once."""
        if client.state.kept is None:
            rng = stream(self._setup.training.seed, "client", client=client.number, purpose="prepare")
            private = self._data.train_images[self._setup.private[client.number]]
            client.state.kept = self._method.answer.prepare(private, self._data.public, rng)

    def _fresh_model(self) -> nn.Module:
        model = self._setup.factory()
        model.load_state_dict(self._setup.weights)
        return model

    def _start(self, number: int, saved: Arrays | None) -> Site:
        setup, data = self._setup, self._data
        model = self._fresh_model()
        client = Client(number, self._method, setup.federation, self._codec)
        if saved is not None:
            restore_client(client.state, saved)
            model.load_state_dict(weights_of(saved))
        private, test = setup.private[number], setup.test[number]
        return Site(
            client,
            model.to(setup.device),
            samples(data.train_images[private], data.train_labels[private], model, setup.device),
            samples(data.test_images[test], data.test_labels[test], model, setup.device),
        )


def resident(images: Images, model: nn.Module, device: str) -> Tensor:
    """Images as a tensor on a device, where a model is to look at them."""
    return laid_out_for(model, torch.from_numpy(images).to(device))


def samples(images: Images, labels: npt.NDArray[np.int64], model: nn.Module, device: str) -> Samples:
    """The same of images with their classes."""
    return Samples(resident(images, model, device), torch.from_numpy(labels).to(device))


def weights_digest(weights: Weights) -> bytes:
    """A digest of names and values of all weights and buffers."""
    content = blake2b(digest_size=16)
    for name, value in sorted(weights.items()):
        content.update(name.encode())
        content.update(value.detach().cpu().contiguous().numpy().tobytes())
    return content.digest()
