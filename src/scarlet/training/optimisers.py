"""The optimisers of one model, and what they remember from round to round."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from scarlet.arrays import Array
from scarlet.errors import ConfigError, WrongTypeError

Stage = Literal["local", "distil"]
MakeOptimizer = Callable[..., Optimizer]  # (parameters, learning rate) -> an optimiser, as torch.optim's classes do
MakeSchedule = Callable[[Optimizer], LRScheduler]
Update = Callable[[Sequence[Tensor | None]], None]  # takes the gradients of all weights, in their order

_TEXT = "(text)"  # the name of what is not a tensor


def sgd(momentum: float, weight_decay: float) -> MakeOptimizer | None:
    """SGD with momentum and weight decay; None where there is neither, because plain SGD remembers nothing."""
    if not momentum and not weight_decay:
        return None
    return partial(torch.optim.SGD, momentum=momentum, weight_decay=weight_decay)


class Optimisers:
    """One optimiser for local training and one for distillation, each made when it is first used.

    What an optimiser remembers belongs to the weights: whoever replaces these calls `reset`.
    """

    def __init__(
        self,
        model: nn.Module,
        rates: Mapping[Stage, float],
        make: MakeOptimizer | None = None,
        schedule: MakeSchedule | None = None,
    ) -> None:
        self.model = model
        self._rates, self._make, self._schedule = rates, make, schedule
        self._made: dict[Stage, tuple[Optimizer, LRScheduler | None]] = {}

    def update(self, stage: Stage) -> Update:
        """What takes a step, given the gradients of the weights that are trained."""
        weights = trained_weights(self.model)
        if self._make is None and self._schedule is None:
            return partial(_plain_step, weights, self._rates[stage])
        return partial(_step, weights, self.optimiser(stage))

    def end(self, stage: Stage) -> None:
        """A round's training is over: a schedule takes its step."""
        schedule = self._made[stage][1] if stage in self._made else None
        if schedule is not None:
            schedule.step()

    def reset(self) -> None:
        """Forget what was learned of the weights, because they were replaced; schedules go on."""
        for optimiser, _ in self._made.values():
            optimiser.state.clear()

    def optimiser(self, stage: Stage) -> Optimizer:
        """The torch optimiser of a stage."""
        if stage not in self._made:
            weights, make = trained_weights(self.model), self._make or torch.optim.SGD
            made = make(weights, self._rates[stage])
            if not isinstance(made, Optimizer):
                raise WrongTypeError(f"optimizer must make a torch.optim.Optimizer, got {type(made).__name__}")
            self._made[stage] = made, None if self._schedule is None else self._schedule(made)
        return self._made[stage][0]

    def momentum(self, stage: Stage) -> dict[str, Tensor]:
        """The momentum of each weight by its name, to be changed in place; SGD's only, zero before its first step."""
        state = self.optimiser(stage).state
        named = {name: weight for name, weight in self.model.named_parameters() if weight.requires_grad}
        for weight in named.values():
            if state[weight].get("momentum_buffer") is None:
                state[weight]["momentum_buffer"] = torch.zeros_like(weight)
        return {name: state[weight]["momentum_buffer"] for name, weight in named.items()}

    def arrays(self) -> dict[str, Array]:
        """All that they remember; nothing under plain SGD."""
        if not self._made:
            return {}
        arrays: dict[str, Array] = {}
        tree = {
            stage: [optimiser.state_dict(), None if schedule is None else schedule.state_dict()]
            for stage, (optimiser, schedule) in self._made.items()
        }
        arrays[_TEXT] = np.frombuffer(json.dumps(_packed(tree, "", arrays)).encode(), np.uint8)
        return arrays

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Bring them to what was saved."""
        self._made.clear()
        if _TEXT not in arrays:
            return
        for stage, (state, of_schedule) in _unpacked(json.loads(arrays[_TEXT].tobytes()), arrays).items():
            self.optimiser(stage).load_state_dict(state)
            schedule = self._made[stage][1]
            if schedule is not None:
                schedule.load_state_dict(of_schedule)


def trained_weights(model: nn.Module) -> list[nn.Parameter]:
    """The weights that training changes."""
    return [weight for weight in model.parameters() if weight.requires_grad]


@torch.no_grad()
def _plain_step(weights: Sequence[Tensor], lr: float, gradients: Sequence[Tensor | None]) -> None:
    for weight, gradient in zip(weights, gradients, strict=True):
        if gradient is not None:
            weight.sub_(gradient, alpha=lr)


def _step(weights: Sequence[Tensor], optimiser: Optimizer, gradients: Sequence[Tensor | None]) -> None:
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.grad = gradient
    optimiser.step()
    for weight in weights:
        weight.grad = None


def _packed(value: Any, path: str, arrays: dict[str, Array]) -> Any:
    """What stands in the text for a value, whose tensors are added to `arrays`."""
    if isinstance(value, Tensor):
        arrays[path] = value.detach().cpu().numpy()
        return {"tensor": path}
    if isinstance(value, Mapping):
        return {"table": [[key, _packed(part, f"{path}.{key}", arrays)] for key, part in value.items()]}
    if isinstance(value, list | tuple):
        parts = [_packed(part, f"{path}.{at}", arrays) for at, part in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": parts}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ConfigError(
        f"optimizer or schedule remembers a {type(value).__name__} ({path.strip('.')}), which no checkpoint can hold; "
        "use others, or checkpoint_every=0 and one worker"
    )


def _unpacked(tree: Any, arrays: Mapping[str, Array]) -> Any:
    match tree:
        case {"tensor": path}:
            return torch.from_numpy(np.array(arrays[path]))
        case {"table": entries}:
            return {key: _unpacked(part, arrays) for key, part in entries}
        case {"list": parts}:
            return [_unpacked(part, arrays) for part in parts]
        case {"tuple": parts}:
            return tuple(_unpacked(part, arrays) for part in parts)
        case _:
            return tree
