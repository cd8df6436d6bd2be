"""Clients answer with their models (FedAvg): the server sends its weights to all, and takes their mean."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from scarlet.arrays import Labels, Values
from scarlet.errors import MessageError
from scarlet.job import Job, Result
from scarlet.protocol.aggregation import Aggregate
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.codec import Codec, Context, Layout, Layouts
from scarlet.protocol.messages import EVERYBODY, Message
from scarlet.protocol.slots import Learner, NoState, Round
from scarlet.wire import frame
from scarlet.wire.body import Body, f4

_HEAD = struct.Struct("<III")  # client, samples, numbers
# Numbers are summed as whole ones and as integers of 2^-30 for the rest, because integer addition gives the same sum in
# every order of arrival. In one integer of 63 bits there would be no room for what batch normalisation counts.
_SCALE = float(2**30)


@dataclass(frozen=True, slots=True)
class Parameters:
    """A model's weights and buffers: the server's to everybody, or a client's to the server."""

    round: int
    attempt: int
    client: int  # the sender, or EVERYBODY
    samples: int  # that the client trained on: its weight in the mean
    value: Values  # f32[M]


class MeanOfModels:
    """w = sum_k n_k w_k / sum_k n_k, with n_k the samples that client k trained on. Memory: O(M), whatever the clients.

    Buffers of batch normalisation are averaged like weights.
    """

    def __init__(self, numbers: int, clients: int) -> None:
        self._whole, self._rest = np.zeros(numbers, np.int64), np.zeros(numbers, np.int64)
        self._samples = 0
        # So large that even the sum of all clients fits into 63 bits.
        self._limit = 2.0**62 / max(1, clients)

    def add(self, message: Parameters) -> None:
        """Add a client's model, or raise MessageError if it is not one."""
        who, value = f"client {message.client}", message.value
        if len(value) != len(self._whole):
            raise MessageError(f"{who} sends {len(value)} numbers, not {len(self._whole)}", "wrong shape")
        if message.samples < 1:
            raise MessageError(f"{who} says that it trained on no sample", "wrong shape")
        with np.errstate(invalid="ignore"):  # what is not a number is rejected below
            weighted = value.astype(np.float64) * message.samples
        if not (np.abs(weighted) <= self._limit).all():  # NaN is not, either
            raise MessageError(
                f"{who} sends weights that are not finite, or too large; a smaller lr may keep them from diverging",
                "not finite",
            )
        whole = np.floor(weighted)
        self._whole += whole.astype(np.int64)
        self._rest += np.rint((weighted - whole) * _SCALE).astype(np.int64)
        self._samples += message.samples

    def finish(self) -> Values:
        """The mean, f32[M]."""
        total = self._whole + self._rest / _SCALE
        return np.asarray(total / max(1, self._samples), np.float32)


@dataclass(frozen=True, slots=True)
class Weights:
    """Every client trains the server's model, which becomes the mean of theirs."""

    message = Parameters
    sends_parameters = True

    @property
    def layouts(self) -> Sequence[Layouts]:
        return ({"reference": _LAYOUT, "compact": _LAYOUT},)

    def server(self, aggregate: Aggregate, agreement: Agreement, codec: Codec) -> WeightsServer:
        return WeightsServer(aggregate, codec)

    def client(self, agreement: Agreement, codec: Codec) -> WeightsClient:
        return WeightsClient(codec)


class WeightsServer:
    """Sends the server's model to all, and collects theirs."""

    def __init__(self, aggregate: Aggregate, codec: Codec) -> None:
        self.state = NoState()
        self._aggregate, self._codec = aggregate, codec

    def open(self, now: Round, learner: Learner | None) -> Models:
        assert learner is not None, "there are no weights without a model"
        return Models(now, learner, self._aggregate(now.request, self._codec.classes).finish(), self._codec)

    def personal(self, now: Round, client: int) -> Iterable[Message]:
        return ()


class Models:
    """The models of one attempt at a round."""

    def __init__(self, now: Round, learner: Learner, no_labels: Labels, codec: Codec) -> None:
        model = Parameters(now.number, now.attempt, EVERYBODY, 0, learner.parameters())
        self.shared = (model,)
        self.limit = frame.SIZE + _HEAD.size + 4 * len(model.value) + codec.slack
        self._learner, self._no_labels = learner, no_labels
        self._mean = MeanOfModels(len(model.value), len(now.asked))

    def add(self, message: Parameters, data: bytes) -> None:
        self._mean.add(message)

    def finish(self) -> Labels:
        self._learner.load(self._mean.finish())
        return self._no_labels

    def commit(self) -> None: ...


class WeightsClient:
    """Trains the server's model, and sends what has become of it."""

    def __init__(self, codec: Codec) -> None:
        self.state = NoState()
        self._codec = codec

    def read(self, messages: Sequence[Message]) -> Values:
        for message in messages:
            if isinstance(message, Parameters):
                return message.value
        raise MessageError("the downlink has a Broadcast without the Parameters that go with it")

    def apply(self, received: Values) -> Values | None:
        return received

    def answer(self, job: Job, labels: Labels, result: Result) -> bytes:
        assert result.parameters is not None
        return self._codec.encode(Parameters(job.round, job.attempt, job.client, result.samples, result.parameters))


def _write(message: Parameters, codec: Codec, context: Context) -> bytes:
    return _HEAD.pack(message.client, message.samples, len(message.value)) + f4(message.value)


def _read(body: Body, codec: Codec, context: Context) -> Parameters:
    client, samples, count = body.head(_HEAD)
    value = np.frombuffer(body.raw(4 * count), "<f4").astype(np.float32, copy=False)
    return Parameters(body.round, body.attempt, client, samples, value)


_LAYOUT = Layout(message=Parameters, kind=6, column="downlink", fixed=_HEAD.size, write=_write, read=_read)
