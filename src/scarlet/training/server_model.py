"""The server's own model: it distils a round's soft-labels while the clients train in the next round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from scarlet.arrays import Array, Index, Labels, Mask, Values
from scarlet.rng import stream
from scarlet.training.tensors import TorchState
from scarlet.training.train import (
    Samples,
    Training,
    distil,
    distillation_loss,
    evaluate,
    layers_draw_from,
    load_parameters,
    parameters_of,
)
from scarlet.training.train import predict as predicted

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Learned:
    """The server's model at the end of a round."""

    measured: tuple[float, float] | None  # accuracy and loss on what is held out; None: not measured
    validation_loss: float | None  # on the round's labels that it does not learn
    arrays: dict[str, Array]  # a copy of the model's weights, and of what its optimiser remembers


class ServerModel:
    """The model, and its training in the order of the calls to `learn`. Use it as a context manager.

    With `apart` the model is trained in a thread of its own, and whoever reads the model waits until that is done;
    this does not affect results.
    """

    def __init__(
        self,
        model: nn.Module,
        public: Tensor,
        test: Samples | None,
        training: Training,
        *,
        apart: bool = False,
        validation: Mask | None = None,  # bool[P]: public samples whose labels it does not learn
    ) -> None:
        self.model = model
        self._state = TorchState(model, training.optimisers(model))
        self._public = public
        self._test = test
        self._training = training
        self._thread = ThreadPoolExecutor(1, "learner", lambda: torch.set_num_threads(1)) if apart else None
        self._validation = validation
        self._held: Labels | None = None  # the labels of the last round that it did not learn
        self._begun: list[Future[None]] = []  # calls to `learn` since the last `finish`
        self._measured: tuple[float, float] | None = None  # None: the model has changed since

    def learn(self, labels: Labels, round: int) -> None:
        """Begin to distil the round's labels."""
        self._begun.append(self._submit(lambda: self._learn(labels, round)))

    def finish(self, *, measure: bool) -> Future[Learned]:
        """The model after all calls to `learn` so far."""
        begun, self._begun = self._begun, []
        return self._submit(lambda: self._finish(begun, measure))

    def predict(self, index: Index) -> Values:
        """The model's own soft-labels of public samples."""
        self._wait()
        return predicted(self.model, self._public, index, self._training.scale)

    def parameters(self) -> Values:
        """All weights and buffers in one row, f32[M]."""
        self._wait()
        return parameters_of(self.model)

    def load(self, parameters: Values) -> None:
        """Replace all weights and buffers."""
        self._wait()
        self._measured = None
        load_parameters(self.model, parameters)
        self._state.optimisers.reset()

    def arrays(self) -> dict[str, Array]:
        """A copy of the model's weights and buffers, and of what its optimiser remembers."""
        self._wait()
        return self._copy()

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Bring the model and its optimiser to what was saved."""
        self._wait()
        self._measured = None
        self._state.restore(arrays)

    def __enter__(self) -> ServerModel:
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)

    def _learn(self, labels: Labels, round: int) -> None:
        if self._validation is not None:
            held = self._validation[labels.index]
            self._held = Labels(labels.index[held], labels.value[held])
            labels = Labels(labels.index[~held], labels.value[~held])
        if not len(labels.index):
            return
        self._measured = None
        with layers_draw_from(stream(self._training.seed, "server", round=round, purpose="layers")):
            rng = stream(self._training.seed, "server", round=round, purpose="distil")
            distil(self._state.optimisers, self._public, labels, self._training, rng)

    def _finish(self, begun: list[Future[None]], measure: bool) -> Learned:
        for each in begun:
            each.result()  # raises an error of the training
        if not measure:
            return Learned(None, None, self._copy())
        return Learned(self._evaluate(), self._validation_loss(), self._copy())

    def _validation_loss(self) -> float | None:
        held, self._held = self._held, None
        if held is None or not len(held.index):
            return None
        return distillation_loss(self.model, self._public, held, self._training.scale)

    def _evaluate(self) -> tuple[float, float] | None:
        if self._measured is None and self._test is not None:
            self._measured = evaluate(self.model, self._test, self._training.scale)
        return self._measured

    def _copy(self) -> dict[str, Array]:
        return {name: array.copy() for name, array in self._state.arrays().items()}

    def _submit(self, do: Callable[[], T]) -> Future[T]:
        if self._thread is not None:
            return self._thread.submit(do)
        done: Future[T] = Future()
        done.set_result(do())
        return done

    def _wait(self) -> None:
        self._submit(lambda: None).result()
        for each in self._begun:
            each.result()
