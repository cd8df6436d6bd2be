"""Models that are run by torch.compile."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn


@dataclass(slots=True)
class Compilation:
    """Whether torch.compile accepts the models of one factory; each process finds out by itself."""

    failed: bool = False


_compilations: WeakKeyDictionary[nn.Module, Compilation] = WeakKeyDictionary()


def enable_compilation(model: nn.Module, compilation: Compilation) -> None:
    """Let `forward` compile the model, unless it failed for another model with the same `compilation`."""
    _compilations[model] = compilation


def forward(model: nn.Module, images: Tensor, batch_size: int) -> Tensor:
    """A model's scores of a batch of images.

    A model with compilation enabled is compiled for batches of `batch_size` images only, because each size takes as
    long to compile; batches of another size run uncompiled. All models of a process share the compiled code: the model
    is an argument of it, and its weights are read at each call.
    """
    compilation = _compilations.get(model)
    if compilation is None or compilation.failed or len(images) != batch_size:
        scores: Tensor = model(images)
        return scores
    try:
        return _compiled()(model, images)
    except torch._dynamo.exc.TorchDynamoException as error:
        compilation.failed = True
        reason = str(error).strip().partition("\n")[0]
        print(f"scarlet: this model cannot be compiled ({reason}); going on without", file=sys.stderr)
        return forward(model, images, batch_size)


@cache
def _compiled() -> Callable[[nn.Module, Tensor], Tensor]:
    torch._inductor.config.compile_threads = 1  # the other worker processes compile at the same time
    return torch.compile(lambda model, images: model(images), dynamic=False, fullgraph=True)
