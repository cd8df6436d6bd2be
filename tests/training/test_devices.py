"""Training on another device than the CPU, as far as it can be tested without one.

The meta device stands for a GPU. Its tensors have shapes but no values, and some of its operations accept tensors of
the CPU, so `Device` checks each operation. These tests cannot show whether a GPU has a kernel for each operation and
type, whether its numbers are right, and how much memory it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from scarlet.arrays import Index, Labels, Values
from scarlet.data import augment as augment_module
from scarlet.data.samples import Labelled
from scarlet.data.sites import Augment
from scarlet.job import Job
from scarlet.training.engines.batched import work_together
from scarlet.training.engines.memory_format import to_channels_last
from scarlet.training.server_model import ServerModel
from scarlet.training.tensors import model_arrays, resident, samples, weights_digest, weights_of
from scarlet.training.train import Samples, Task, parameters_of, work
from tests.training.easy import CLASSES, NO_LABELS, TRAINING, easy, network, teacher

DEVICE = torch.device("meta")
COPIES = {torch.ops.aten.to, torch.ops.aten._to_copy, torch.ops.aten.copy_}  # the operations between devices
READS = {torch.ops.aten.item, torch.ops.aten._local_scalar_dense}  # of one number
PUBLIC = 20
pytestmark = pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter")
AUGMENTS = [Augment(padding=0, flip=False), Augment(padding=2, flip=True)]


class Device(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses operations on tensors of two devices; what is read from the device is zeros, and is recorded."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.read: list[tuple[int, ...]] = []  # the shapes of what was copied to the CPU; a GPU makes the CPU wait

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        leaves = tree_leaves((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        # A number may meet any tensor, and vmap makes a tensor of the CPU of it.
        devices = {tensor.device for at, tensor in enumerate(tensors) if not at or tensor.dim() or tensor.is_meta}
        if func.overloadpacket in READS and devices == {DEVICE}:
            self.read.append(())
            return 0.0
        if func.overloadpacket in COPIES and devices == {DEVICE} and torch.device("cpu") in leaves:
            self.read.append(tuple(tensors[0].shape))
            return torch.zeros(tensors[0].shape, dtype=tensors[0].dtype)
        assert len(devices) <= 1 or func.overloadpacket in COPIES, f"{func} on tensors of {devices}"
        return func(*args, **(kwargs or {}))


def on_device(model: nn.Module, count: int, *, floats: bool = False) -> Samples:
    given = easy(count)
    images = given.inputs.float().numpy() if floats else given.inputs.numpy()
    return samples(Labelled(images, given.labels.numpy()), model, str(DEVICE))


def several(index: Index) -> Labels:
    return Labels(index, np.stack([teacher(index).value] * 2, axis=1))


def first(teachers: Labels, own: Values) -> Labels:
    assert own.shape == (len(teachers.index), CLASSES)
    return Labels(teachers.index, teachers.value[:, 0])


def tasks(prepared: Callable[[nn.Module], nn.Module], *, floats: bool = False) -> tuple[list[Task], Tensor]:
    """Clients that differ in the sizes of their data, so that some steps are of a part of the stack."""
    made = []
    jobs = [
        Job(0, 3, 0, several(np.arange(12)), np.arange(5), choose=first),
        Job(1, 3, 0, teacher(np.arange(1, 20, 2)), np.arange(7), restart=True),
        Job(2, 3, 0, NO_LABELS, np.arange(0), parameters=parameters_of(network(2)), send_parameters=True),
    ]
    for job, count in zip(jobs, (20, 17, 5), strict=True):
        model = prepared(network()).to(DEVICE)
        test = None if job.client == 1 else on_device(model, 6)
        private = on_device(model, count, floats=floats)
        made.append(Task(str(job.client), job, model, TRAINING.optimisers(model), private, test))
    images = easy(PUBLIC).inputs
    return made, resident((images.float() if floats else images).numpy(), made[0].model, str(DEVICE))


@pytest.mark.parametrize("augment", AUGMENTS)
@pytest.mark.parametrize("prepared", [nn.Identity(), to_channels_last], ids=["contiguous", "channels-last"])
@pytest.mark.parametrize("floats", [False, True])
def test_training_a_client_mixes_no_devices(
    augment: Augment, prepared: Callable[[nn.Module], nn.Module], floats: bool
) -> None:
    training = replace(TRAINING, augment=augment)
    made, public = tasks(prepared, floats=floats)
    for task in made:
        with Device() as device:
            result = work(task, public, training, network().state_dict())
        assert result.value.shape == (len(task.job.request), CLASSES)
        chosen = [(12, CLASSES)] if task.job.choose else []
        epochs = [()] * (4 if len(task.job.teacher.index) else 2)
        measured = [()] * 2 if task.test else []
        weights = [tuple(value.shape) for value in task.model.state_dict().values()] if task.job.send_parameters else []
        answered = [result.value.shape] if len(task.job.request) else []
        assert device.read == [*chosen, *epochs, *measured, *weights, *answered], "one read an epoch"


@pytest.mark.parametrize("augment", AUGMENTS)
@pytest.mark.parametrize("floats", [False, True])
def test_training_stacked_clients_mixes_no_devices(augment: Augment, floats: bool) -> None:
    made, public = tasks(nn.Identity(), floats=floats)
    with Device() as device:
        results = work_together(made, public, replace(TRAINING, augment=augment), network().state_dict())
    assert [result.value.shape for result in results] == [(5, CLASSES), (7, CLASSES), (0, CLASSES)]
    weights = [tuple(value.shape) for value in made[2].model.state_dict().values()]
    epochs, measured = [(3,)] * 4, [(2, 2)]
    assert device.read == [(12, CLASSES), *epochs, *measured, (12, CLASSES), *weights], "one read an epoch"


def test_augmenting_a_dataset_too_large_for_one_canvas_mixes_no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(augment_module, "_AT_ONCE", 10)
    test_training_a_client_mixes_no_devices(AUGMENTS[1], to_channels_last, False)
    test_training_stacked_clients_mixes_no_devices(AUGMENTS[1], False)


def test_training_the_servers_model_mixes_no_devices() -> None:
    model = network().to(DEVICE)
    server = ServerModel(model, on_device(model, PUBLIC).inputs, on_device(model, 6), TRAINING)
    with Device() as device:
        server.load(parameters_of(network(2)))
        server.learn(teacher(np.arange(10)), 1)
        learned = server.finish(measure=True).result()
        assert server.predict(np.arange(4)).shape == (4, CLASSES)
    copied = [tuple(value.shape) for value in model.state_dict().values()]
    assert [array.shape for array in learned.arrays.values()] == copied
    epochs, measured = [()] * 2, [()] * 2
    assert device.read == [*epochs, *measured, *copied, (4, CLASSES)], "the last are the soft-labels"


def test_a_models_arrays_and_digest_are_read_from_the_device() -> None:
    weights = network().to(DEVICE).state_dict()
    with Device() as device:
        arrays = model_arrays(weights)
        digest = weights_digest(weights)
    shapes = [tuple(value.shape) for value in weights.values()]
    assert device.read == [*shapes, *(tuple(value.shape) for _, value in sorted(weights.items()))]
    assert digest == weights_digest(weights_of(arrays))
