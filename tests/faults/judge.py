"""What a round must come to, worked out again from the clients' answers in the plainest way."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from scarlet.protocol.method import Method
from scarlet.protocol.server import ClosedRound
from scarlet.protocol.types import Labels, Values
from scarlet.wire.quantise import RAW_BITS
from tests.faults.nodes import ServerNode

_TOLERANCE = 1e-5
Rows = npt.NDArray[np.float64]


class Violation(AssertionError):
    """Something that must always be true was not."""


def check_aggregate(server: ServerNode, closed: ClosedRound, accepted: Mapping[int, Labels | Values]) -> None:
    """Violation unless the server learned and taught what its method makes of the answers that it accepted."""
    method = server.world.method
    if method.exchange == "weights":
        _check_model(server, closed, accepted)
    if method.exchange != "labels":
        return
    answers = {client: said for client, said in accepted.items() if isinstance(said, Labels)}
    taught = dict(zip(closed.taught.index.tolist(), closed.taught.value, strict=True))
    for sample in sorted({sample for said in answers.values() for sample in said.index.tolist()}):
        rows = np.stack([said.value[said.index == sample][0] for said in answers.values() if sample in said.index])
        mean = rows.astype(np.float64).mean(axis=0)
        if method.keeps_targets:
            assert server.server.state.target is not None
            _agree(server.server.state.target[sample], mean, f"target of sample {sample}", closed)
            if method.teach == "model":
                own = server.predict(np.array([sample]))
                _agree(taught[sample], server.server.codec.heard_by_clients(own)[0], f"label of {sample}", closed)
            elif not method.personal:
                _check_centres(taught[sample], rows, sample, closed, _step(server))
        else:
            expected = _aggregate(method, sample, mean)
            # A label may lie on the very edge of what a selector keeps: then either verdict will do.
            pull = 1e-5 * (np.eye(mean.size)[mean.argmax()] - mean)
            verdicts = {len(_aggregate(method, sample, near_by)) for near_by in (mean, mean + pull, mean - pull)}
            if (sample in taught) not in verdicts:
                raise Violation(f"sample {sample} of round {closed.round} should not have been taught, or should have")
            if len(expected) and sample in taught:
                _agree(taught[sample], expected[0], f"label of sample {sample}", closed, _step(server))


def _aggregate(method: Method, sample: int, mean: Rows) -> Values:
    """What the method makes of one answer: its label, or nothing."""
    fold = method.aggregate(np.array([sample]), mean.size)
    fold.add(0, Labels(np.array([sample]), mean[np.newaxis].astype(np.float32)))
    return fold.finish().value


def _check_model(server: ServerNode, closed: ClosedRound, accepted: Mapping[int, Labels | Values]) -> None:
    total, samples = np.zeros(server.weights.size), 0
    for client, said in accepted.items():
        assert not isinstance(said, Labels)
        total += said.astype(np.float64) * (client + 1)
        samples += client + 1
    _agree(server.weights.ravel(), total / samples, "model", closed)


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
    bits = server.server.codec.downlink_bits
    return 0.0 if bits >= RAW_BITS else 1 / (2**bits - 1)


def _agree(value: Values, expected: Rows | Values, what: str, closed: ClosedRound, step: float = 0.0) -> None:
    if not near(value, expected, _TOLERANCE + step):
        raise Violation(f"the {what} in round {closed.round} is {value}; the answers make it {expected}")


def near(value: Values | Rows, expected: float | Rows | Values, tolerance: float) -> bool:
    """Whether two arrays agree."""
    return bool(np.allclose(value, expected, rtol=0, atol=tolerance))
