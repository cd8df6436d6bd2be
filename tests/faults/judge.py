"""What must be true of a federation, worked out again in the plainest way: samples and clients one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass

import numpy as np
import numpy.typing as npt

from scarlet.arrays import Labels, Values
from scarlet.distributions import SUM_TOLERANCE
from scarlet.job import Job
from scarlet.protocol.downlink.personal import Lessons, PersonalServerState
from scarlet.protocol.downlink.shared import Shared, SharedServerState
from scarlet.protocol.messages import Signal
from scarlet.protocol.method import Method
from scarlet.protocol.server import ClosedRound
from scarlet.protocol.uplink.weights import Weights
from scarlet.wire.quantise import RAW_BITS, quantise
from tests.faults.nodes import ServerNode

_TOLERANCE = 1e-5
Rows = npt.NDArray[np.float64]
Answers = Mapping[int, Labels | Values]  # client -> all that its accepted answer says


class Violation(AssertionError):
    """Something that must always be true was not."""


@dataclass(frozen=True, slots=True)
class Taught:
    """What the server teaches at the beginning of a round."""

    shared: Labels | None  # None: nothing yet, or to each client something else
    personal: Mapping[int, Labels]  # client -> its lesson
    parameters: Values

    @classmethod
    def by(cls, server: ServerNode) -> Taught:
        state, clients = server.server.state.downlink, range(server.world.agreement.clients)
        shared, personal = None, {}
        if isinstance(state, SharedServerState) and state.sync is not None:
            shared = _shared_labels(state)
        if isinstance(state, PersonalServerState) and state.lessons is not None:
            personal = {client: _lesson(state.lessons, client) for client in clients}
        return cls(shared, personal, server.model.parameters())


def _shared_labels(state: SharedServerState) -> Labels:
    assert state.sync is not None
    sync, fresh = state.sync, iter(state.sync.fresh)
    signals = [Signal.NEWLY_CACHED] * len(sync.index) if sync.signal is None else sync.signal.tolist()
    reused = Signal.CACHED, Signal.UNCHANGED
    rows = [
        state.cache.value[sample] if signal in reused else next(fresh)
        for sample, signal in zip(sync.index.tolist(), signals, strict=True)
    ]
    return Labels(sync.index, np.array(rows, np.float32).reshape(-1, *state.cache.value.shape[1:]))


def _lesson(lessons: Lessons, client: int) -> Labels:
    clients, mean = lessons.clients.tolist(), lessons.value.shape[1] - 1
    chosen = lessons.choice[clients.index(client)].tolist() if client in clients else [mean] * len(lessons.index)
    rows = [teachers[choice] for teachers, choice in zip(lessons.value, chosen, strict=True)]
    return Labels(lessons.index, np.array(rows, np.float32).reshape(-1, lessons.value.shape[2]))


def check_teacher(taught: Taught, job: Job) -> None:
    """Violation unless a client is taught what the server teaches."""
    expected = taught.personal.get(job.client, taught.shared)
    if expected is None:
        if len(job.teacher.index):
            raise Violation(f"client {job.client} is taught in round {job.round}, though the server taught nothing yet")
    elif not alike(job.teacher, expected):
        raise Violation(f"client {job.client} is taught other labels in round {job.round} than the server taught")
    if job.parameters is not None and not np.array_equal(job.parameters, taught.parameters):
        raise Violation(f"client {job.client} is sent another model in round {job.round} than the server's")


def check_distributions(server: ServerNode, closed: ClosedRound) -> None:
    """Violation unless all labels that the server taught, or keeps to be taught, are distributions."""
    state = server.server.state.downlink
    values = [closed.taught.value]
    if isinstance(state, SharedServerState):
        values.append(state.cache.value[state.cache.stamp >= 0])
    elif state.lessons is not None:
        values.append(state.lessons.value)
    for value in values:
        if not (np.isfinite(value).all() and (value >= 0).all() and _near(value.sum(axis=-1), 1, SUM_TOLERANCE)):
            raise Violation(f"a label of round {closed.round} is not a distribution")


def check_aggregate(server: ServerNode, closed: ClosedRound, accepted: Answers) -> None:
    """Violation unless the server learned and taught what its method makes of the answers that it accepted."""
    if isinstance(server.world.method.uplink, Weights):
        _check_model(server, closed, accepted)
        return
    answers = [said for said in accepted.values() if isinstance(said, Labels)]
    taught = dict(zip(closed.taught.index.tolist(), closed.taught.value, strict=True))
    for sample in sorted({sample for said in answers for sample in said.index.tolist()}):
        rows = np.stack([said.value[said.index == sample][0] for said in answers if sample in said.index])
        _check_sample(server, closed, sample, rows, taught.get(sample))


def _check_sample(server: ServerNode, closed: ClosedRound, sample: int, rows: Values, taught: Values | None) -> None:
    """What was learned and taught of a sample, given the labels in all answers."""
    downlink, state = server.world.method.downlink, server.server.state.downlink
    mean = rows.astype(np.float64).mean(axis=0)
    if isinstance(downlink, Shared) and not downlink.has_targets:
        _check_sharpened(server, closed, sample, mean, taught)
        return
    assert taught is not None, f"sample {sample} was answered and not taught"
    if not isinstance(downlink, Shared):  # each client has a teacher of its own, and the server's model has the mean
        _agree(taught, mean, f"mean of sample {sample}", closed)
        return
    _agree(state.target[sample], mean, f"target of sample {sample}", closed)
    if downlink.teach == "model":
        own = quantise(server.model.predict(np.array([sample])), server.world.codec.downlink_bits)
        _agree(taught, own[0], f"label of sample {sample}", closed)
    else:
        _check_centres(taught, rows, sample, closed, _step(server))


def _check_sharpened(server: ServerNode, closed: ClosedRound, sample: int, mean: Rows, taught: Values | None) -> None:
    method = server.world.method
    expected = _aggregate(method, sample, mean)
    if len(expected) != (taught is not None):
        # A label may lie on the very edge of what a selector keeps: then either verdict will do.
        pull = 1e-5 * (np.eye(mean.size)[mean.argmax()] - mean)
        verdicts = {len(_aggregate(method, sample, near_by)) for near_by in (mean + pull, mean - pull)}
        if (taught is not None) not in verdicts:
            raise Violation(f"sample {sample} of round {closed.round} should not have been taught, or should have")
    if len(expected) and taught is not None:
        _agree(taught, expected[0], f"label of sample {sample}", closed, _step(server))


def _aggregate(method: Method, sample: int, mean: Rows) -> Values:
    """What the method makes of one answer: its label, or nothing."""
    aggregation = method.aggregate(np.array([sample]), mean.size)
    aggregation.add(0, Labels(np.array([sample]), mean[np.newaxis].astype(np.float32)))
    return aggregation.finish().value


def _check_model(server: ServerNode, closed: ClosedRound, accepted: Answers) -> None:
    parameters = server.model.parameters()
    total, samples = np.zeros(parameters.size), 0
    for client, said in accepted.items():
        assert not isinstance(said, Labels)
        total += said.astype(np.float64) * (client + 1)
        samples += client + 1
    _agree(parameters, total / samples, "model", closed)


def _check_centres(centres: Values, rows: Values, sample: int, closed: ClosedRound, step: float) -> None:
    """Each teacher that anybody is nearest to is the mean of those who are."""
    distance = ((rows[:, np.newaxis].astype(np.float64) - centres) ** 2).sum(axis=2)
    first, second = np.sort(distance, axis=1)[:, :1], np.sort(distance, axis=1)[:, 1:2]
    if second.size and (second - first < 1e-6 + 4 * step).any():  # a tie: either will do
        return
    nearest = distance.argmin(axis=1)
    for centre in set(nearest.tolist()):
        expected = rows[nearest == centre].mean(axis=0)
        _agree(centres[centre], expected, f"teacher {centre} of sample {sample}", closed, step)


def _step(server: ServerNode) -> float:
    """How far quantisation may move an entry of a label."""
    bits = server.world.codec.downlink_bits
    return 0.0 if bits >= RAW_BITS else 1 / (2**bits - 1)


def _agree(value: Values, expected: Rows | Values, what: str, closed: ClosedRound, step: float = 0.0) -> None:
    if not _near(value, expected, _TOLERANCE + step):
        raise Violation(f"the {what} in round {closed.round} is {value}; the answers make it {expected}")


def _near(value: Values | Rows, expected: float | Rows | Values, tolerance: float) -> bool:
    return bool((np.abs(value - expected) <= tolerance).all())  # not so where there is a NaN


def alike(a: object, b: object) -> bool:
    """Whether two states are equal, bit for bit."""
    if isinstance(a, np.ndarray):
        same = isinstance(b, np.ndarray) and (a.dtype, a.shape) == (b.dtype, b.shape)
        return same and a.tobytes() == b.tobytes()  # type: ignore[attr-defined]
    if is_dataclass(a):
        return type(a) is type(b) and all(alike(getattr(a, each.name), getattr(b, each.name)) for each in fields(a))
    if isinstance(a, Mapping):
        return isinstance(b, Mapping) and a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a)
    if isinstance(a, Sequence) and not isinstance(a, str | bytes):
        return isinstance(b, Sequence) and len(a) == len(b) and all(map(alike, a, b))
    return a == b
