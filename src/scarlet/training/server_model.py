"""The server's own model: it learns what the clients are taught, while they go on with the next round."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

import torch
from torch import Tensor, nn

from scarlet.arrays import Index, Labels, Values
from scarlet.rng import stream
from scarlet.training.train import Samples, Training, distil, evaluate, layers_draw_from, load_parameters, parameters_of
from scarlet.training.train import predict as predicted

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Learned:
    """The server's model at the end of a round."""

    measured: tuple[float, float] | None  # accuracy and loss on the whole test split, if wanted
    weights: dict[str, Tensor]  # a copy


class ServerModel:
    """Learns in the order in which it is told to, in a thread of its own if `apart`. Use it as a context manager.

    Whoever asks what the model says waits until it has learned all; the result is the same.
    """

    def __init__(self, model: nn.Module, public: Tensor, test: Samples, how: Training, *, apart: bool = False) -> None:
        self.model = model
        self._public = public
        self._test = test
        self._how = how
        self._thread = ThreadPoolExecutor(1, "learner", lambda: torch.set_num_threads(1)) if apart else None
        self._begun: list[Future[None]] = []  # since the last round's end
        self._measured: tuple[float, float] | None = None  # of the model as it is

    def learn(self, labels: Labels, round: int) -> None:
        """Distil the round's labels."""
        self._begun.append(self._submit(lambda: self._learn(labels, round)))

    def finish(self, *, measure: bool) -> Future[Learned]:
        """What has become of the model when it has learned all that it was told to."""
        begun, self._begun = self._begun, []
        return self._submit(lambda: self._finish(begun, measure))

    def predict(self, index: Index) -> Values:
        """The model's own soft-labels of public samples."""
        self._wait()
        return predicted(self.model, self._public, index)

    def parameters(self) -> Values:
        """All weights and buffers in one row."""
        self._wait()
        return parameters_of(self.model)

    def load(self, parameters: Values) -> None:
        """Replace all weights and buffers."""
        self._wait()
        self._measured = None
        load_parameters(self.model, parameters)

    def weights(self) -> dict[str, Tensor]:
        """A copy of the model's weights and buffers."""
        self._wait()
        return self._copy()

    def evaluate(self) -> tuple[float, float]:
        """Accuracy and loss on the whole test split."""
        self._wait()
        return self._evaluate()

    def __enter__(self) -> ServerModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)

    def _learn(self, labels: Labels, round: int) -> None:
        if not len(labels.index):
            return
        self._measured = None
        with layers_draw_from(stream(self._how.seed, "server", round=round, purpose="layers")):
            rng = stream(self._how.seed, "server", round=round, purpose="distil")
            distil(self.model, self._public, labels, self._how, rng)

    def _finish(self, begun: list[Future[None]], measure: bool) -> Learned:
        for each in begun:
            each.result()  # raises what went wrong
        return Learned(self._evaluate() if measure else None, self._copy())

    def _evaluate(self) -> tuple[float, float]:
        if self._measured is None:
            self._measured = evaluate(self.model, self._test)
        return self._measured

    def _copy(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}

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
