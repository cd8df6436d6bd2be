"""Messages of every kind: small ones, and strategies for any; each with a codec that knows it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from scarlet.arrays import DIGEST_BYTES, Index, Labels, Values
from scarlet.errors import MessageError
from scarlet.methods.parts.mean import mean
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.codec import Codec
from scarlet.protocol.codec_registry import codec
from scarlet.protocol.downlink.personal import Lesson, Personal
from scarlet.protocol.messages import Broadcast, CatchUp, Message, Report, Resync, Signal, Sync
from scarlet.protocol.method import Method
from scarlet.protocol.uplink.delta import NOTHING, Accepted, DeltaAnswer, DeltaLabels
from scarlet.protocol.uplink.labels import Answer
from scarlet.protocol.uplink.weights import Parameters, Weights

MOST_CLASSES = 2**16
AGREEMENT = Agreement(clients=2, public_size=24, public_per_round=8, classes=MOST_CLASSES, seed=0)
METHODS: dict[type, Method] = {
    Lesson: Method(mean(), downlink=Personal(2)),
    DeltaAnswer: Method(mean(), uplink=DeltaLabels()),
    Accepted: Method(mean(), uplink=DeltaLabels()),
    Parameters: Method(mean(), uplink=Weights()),
}


def reference(kind: type, uplink_bits: int = 32, downlink_bits: int = 32, agreement: Agreement = AGREEMENT) -> Codec:
    """A reference codec for messages of a kind."""
    method = replace(METHODS.get(kind, Method(mean())), uplink_bits=uplink_bits, downlink_bits=downlink_bits)
    return codec("reference", method, agreement)


def encoded(message: Message, bits: int = 32) -> bytes:
    return reference(type(message), bits, bits).encode(message)


def decode_or_refuse(codec: Codec, data: bytes) -> Message | None:
    try:
        return codec.decode(data)
    except MessageError:
        return None


def content(value: object) -> object:
    """A message as nested tuples, its arrays as shape, type and bytes, so that NaN and -0.0 count as they are."""
    if isinstance(value, np.ndarray):
        return value.shape, str(value.dtype), value.tobytes()
    if is_dataclass(value):
        return type(value), tuple(content(getattr(value, field.name)) for field in fields(value))
    return value


def as_decoded(message: Message, codec: Codec) -> Message:
    """The message with its labels as the other side is said to decode them."""
    match message:
        case Answer() | DeltaAnswer():
            value = codec.decoded_by_server(message.labels.value)
            return replace(message, labels=replace(message.labels, value=value))
        case CatchUp() | Lesson():
            value = codec.decoded_by_clients(message.labels.value)
            return replace(message, labels=replace(message.labels, value=value))
        case Broadcast() if message.sync is not None:
            return replace(message, sync=replace(message.sync, fresh=codec.decoded_by_clients(message.sync.fresh)))
    return message


def payload(message: Message, uplink_bits: int, downlink_bits: int) -> int:
    """What the paper counts of a message: int64 indices and signals, labels as they are written, models in float32."""
    match message:
        case Broadcast():
            paid, sync = 8 * len(message.request), message.sync
            if sync is not None:
                paid += 8 * len(sync.index) + 8 * len(sync.dropped) + bytes_of_labels(sync.fresh, downlink_bits)
                paid += 8 * len(sync.index) if sync.signal is not None else 0
            return paid
        case CatchUp() | Lesson():
            return 8 * len(message.labels.index) + bytes_of_labels(message.labels.value, downlink_bits)
        case Answer() | DeltaAnswer():
            paid = 8 * len(message.labels.index) + bytes_of_labels(message.labels.value, uplink_bits)
            if isinstance(message, DeltaAnswer) and message.base != NOTHING:
                paid += 8 + 4 + 8 * len(message.same)  # a name, a count and the samples that are not sent
            return paid
        case Accepted():
            return 8
        case Parameters():
            return 4 * len(message.value)
    return 0


def bytes_of_labels(value: Values, bits: int) -> int:
    """From 24 bits on four bytes an entry; at one bit an int64 a label; else so many bits an entry, in whole bytes."""
    if bits >= 24:
        return 4 * value.size
    if bits == 1:
        return 8 * math.prod(value.shape[:-1])
    return math.ceil(bits * value.size / 8)


# Any message

rounds = st.integers(0, 2**32 - 1)
attempts = st.integers(0, 2**16 - 1)
clients = st.integers(0, 2**32 - 1)
digests = st.binary(min_size=DIGEST_BYTES, max_size=DIGEST_BYTES)
names = digests.filter(lambda name: name != NOTHING)
indices = st.sets(st.integers(0, 50) | st.integers(0, 2**63 - 1), max_size=8).map(
    lambda chosen: np.array(sorted(chosen), np.int64)
)
shapes = st.tuples(st.integers(1, 5)) | st.tuples(st.integers(1, 3), st.integers(1, 5))  # of a label: N, or C and N
bits = st.sampled_from([1, 2, 3, 8, 23, 24, 31, 32]) | st.integers(2, 23)
Filled = Callable[[tuple[int, ...]], st.SearchStrategy[Values]]


def any_floats(shape: tuple[int, ...]) -> st.SearchStrategy[Values]:
    return hnp.arrays(np.float32, shape, elements=st.floats(width=32))  # float32 carries any: NaN too


def distributions(shape: tuple[int, ...]) -> st.SearchStrategy[Values]:
    """Rows of any sharpness, from a tie of all classes to certainty."""
    weights = hnp.arrays(np.float64, shape, elements=st.sampled_from([0.0, 1.0]) | st.floats(0.001, 1))
    return weights.map(normalised)


def normalised(weights: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Values:
    weights[..., -1] += weights.sum(axis=-1) == 0
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True), np.float32)


@st.composite
def syncs(draw: st.DrawFn, filled: Filled) -> Sync:
    index = draw(indices)
    signal = draw(st.none() | hnp.arrays(np.int64, len(index), elements=st.sampled_from([int(s) for s in Signal])))
    fresh = len(index)
    if signal is not None:
        fresh -= sum(each in (Signal.CACHED, Signal.UNCHANGED) for each in signal.tolist())
    dropped = draw(indices) if signal is not None else index[:0]  # without a cache they are not named
    return Sync(draw(rounds), index, signal, draw(filled((fresh, *draw(shapes)))), dropped)


@st.composite
def labels(draw: st.DrawFn, filled: Filled) -> Labels:
    index = draw(indices)
    return Labels(index, draw(filled((len(index), *draw(shapes)))))


metrics = st.dictionaries(st.text(max_size=10), st.floats(allow_nan=False, allow_infinity=False), max_size=5)
reports = st.builds(Report, rounds, attempts, clients, metrics)
resyncs = st.builds(Resync, rounds, attempts, clients)
accepted = st.builds(Accepted, rounds, attempts, clients, digests)
floats = st.integers(0, 6).flatmap(lambda count: any_floats((count,)))
parameters = st.builds(Parameters, rounds, attempts, clients, st.integers(0, 2**32 - 1), floats)


def broadcasts(filled: Filled) -> st.SearchStrategy[Broadcast]:
    return st.builds(Broadcast, rounds, attempts, indices, st.none() | syncs(filled), digests, digests)


def catch_ups(filled: Filled) -> st.SearchStrategy[CatchUp]:
    return st.builds(CatchUp, rounds, attempts, clients, st.booleans(), labels(filled))


def lessons(filled: Filled) -> st.SearchStrategy[Lesson]:
    return st.builds(Lesson, rounds, attempts, clients, labels(filled), attempts)


def answers(filled: Filled) -> st.SearchStrategy[Answer]:
    return st.builds(Answer, rounds, attempts, clients, labels(filled))


def delta_answers(filled: Filled) -> st.SearchStrategy[DeltaAnswer]:
    whole = st.builds(DeltaAnswer, rounds, attempts, clients, labels(filled))
    return whole | st.builds(DeltaAnswer, rounds, attempts, clients, labels(filled), indices, names)


def counted(filled: Filled) -> st.SearchStrategy[Message]:
    """All but reports, which are for people."""
    with_labels = broadcasts(filled) | catch_ups(filled) | lessons(filled) | answers(filled) | delta_answers(filled)
    return with_labels | accepted | parameters | resyncs


def messages(filled: Filled) -> st.SearchStrategy[Message]:
    return counted(filled) | reports


# Small ones


def i64(*numbers: int) -> Index:
    return np.array(numbers, np.int64)


def f32(*rows: list[float]) -> Values:
    return np.array(rows, np.float32).reshape(len(rows), -1)


DIGEST = bytes(range(DIGEST_BYTES))
PUBLIC = bytes(range(0xA0, 0xA0 + DIGEST_BYTES))
FIRST = Broadcast(1, 0, i64(0, 2), None, bytes(DIGEST_BYTES), PUBLIC)
NO_SIGNALS = Broadcast(2, 0, i64(3), Sync(1, i64(0, 2), None, f32([0.25, 0.75], [1, 0]), i64()), DIGEST, PUBLIC)
SIGNALS = Broadcast(
    9, 1, i64(4, 7), Sync(8, i64(1, 4, 6), i64(0, 1, 2), f32([0.25, 0.75], [0.5, 0.5]), i64(3, 5)), DIGEST, PUBLIC
)
TWO_TEACHERS = np.array([[[0.25, 0.75], [1, 0]]], np.float32)
UNCHANGED = Broadcast(9, 1, i64(4), Sync(8, i64(1, 4, 6), i64(3, 1, 3), TWO_TEACHERS, i64()), DIGEST, PUBLIC)
ANSWER = Answer(9, 1, 3, Labels(i64(4, 7), f32([0.25, 0.75], [1, 0])))
DELTA = DeltaAnswer(9, 1, 3, Labels(i64(7), f32([1, 0])), i64(4, 5), DIGEST)
CATCH_UP = CatchUp(9, 1, 3, False, Labels(i64(1, 6), f32([0.25, 0.75], [1, 0])))
RESET = CatchUp(2, 0, 3, True, Labels(i64(), np.empty((0, 2), np.float32)))
LESSON = Lesson(9, 1, 3, ANSWER.labels)
ACCEPTED = Accepted(9, 1, 3, DIGEST)
PARAMETERS = Parameters(9, 1, 3, 500, np.array([0.25, -1, 2], np.float32))
RESYNC = Resync(9, 1, 3)
REPORT = Report(9, 1, 3, {"loss": 0.5})
SMALL: dict[str, Message] = {
    "first": FIRST,
    "no signals": NO_SIGNALS,
    "signals": SIGNALS,
    "unchanged": UNCHANGED,
    "catch-up": CATCH_UP,
    "reset": RESET,
    "lesson": LESSON,
    "accepted": ACCEPTED,
    "answer": ANSWER,
    "delta, whole": DeltaAnswer(9, 1, 3, ANSWER.labels),
    "delta": DELTA,
    "parameters": PARAMETERS,
    "resync": RESYNC,
    "report": REPORT,
}
