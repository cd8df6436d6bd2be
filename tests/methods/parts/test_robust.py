"""The robust averages against literal loops, and against answers that are false."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scarlet.arrays import Index, Labels
from scarlet.errors import ConfigError
from scarlet.methods.dsfl import DsflConfig
from scarlet.methods.parts.mean import mean
from scarlet.methods.parts.robust import Average, average
from scarlet.methods.parts.sharpening import Power, Sharpen
from scarlet.methods.scarlet import ScarletConfig

Rows = npt.NDArray[np.float64]
IDENTITY: Sharpen = Power(1.0)


def answers(seed: int, clients: int, samples: int, classes: int) -> tuple[Index, list[Labels]]:
    """A request, and answers that each leave out some of it."""
    rng = np.random.default_rng(seed)
    request = np.sort(rng.choice(100, samples, replace=False)).astype(np.int64)
    given = []
    for _ in range(clients):
        answered = rng.random(samples) < 0.8
        value = rng.dirichlet(np.full(classes, 0.5), samples).astype(np.float32)
        given.append(Labels(request[answered], value[answered]))
    return request, given


def literal(request: Index, given: list[Labels], classes: int, trim: float) -> dict[int, list[float]]:
    """Sample by sample and entry by entry: sort, cut both ends, average, normalise."""
    result: dict[int, list[float]] = {}
    for sample in request.tolist():
        rows = [each.value[np.flatnonzero(each.index == sample)[0]] for each in given if sample in each.index]
        if not rows:
            continue
        cut = min(int(trim * len(rows)), (len(rows) - 1) // 2)
        entries = []
        for entry in range(classes):
            ordered = sorted(float(row[entry]) for row in rows)
            kept = ordered[cut : len(ordered) - cut]
            entries.append(sum(kept) / len(kept))
        total = sum(entries)
        result[sample] = [entry / total for entry in entries]
    return result


@pytest.mark.parametrize(
    ("kind", "trim", "as_trim"), [("median", 0.2, 0.5), ("trimmed", 0.2, 0.2), ("trimmed", 0.0, 0.0)]
)
@given(seed=st.integers(0, 10_000), clients=st.integers(1, 9), samples=st.integers(0, 8), classes=st.integers(2, 5))
def test_an_average_is_the_literal_one_whatever_is_missing(
    kind: Average, trim: float, as_trim: float, seed: int, clients: int, samples: int, classes: int
) -> None:
    request, given = answers(seed, clients, samples, classes)
    aggregation = average(kind, trim, then=IDENTITY)(request, classes)
    for labels in given:
        aggregation.add(0, labels)
    found = aggregation.finish()
    expected = literal(request, given, classes, as_trim)
    assert found.index.tolist() == list(expected)
    assert np.allclose(found.value, np.array(list(expected.values())).reshape(-1, classes), atol=1e-6)


def test_the_order_of_arrival_does_not_matter() -> None:
    request, given = answers(3, 7, 6, 4)
    results = []
    for order in (given, given[::-1]):
        aggregation = average("trimmed", 0.2, then=IDENTITY)(request, 4)
        for labels in order:
            aggregation.add(0, labels)
        results.append(aggregation.finish().value.tobytes())
    assert results[0] == results[1]


@pytest.mark.parametrize("kind", ["median", "trimmed"])
def test_two_liars_of_ten_cannot_move_what_eight_agree_on(kind: Average) -> None:
    index = np.array([4], np.int64)
    honest, false = np.array([[0.8, 0.1, 0.1]], np.float32), np.array([[0.0, 0.0, 1.0]], np.float32)
    aggregations = average(kind, 0.2, then=IDENTITY)(index, 3), mean(then=IDENTITY)(index, 3)
    for value in [honest] * 8 + [false] * 2:
        for aggregation in aggregations:
            aggregation.add(0, Labels(index, value))
    robust, plain = (aggregation.finish().value for aggregation in aggregations)
    assert np.allclose(robust, honest, atol=1e-6)
    assert plain[0, 2] == pytest.approx(0.28)


def test_certain_answers_with_nothing_in_common_are_averaged() -> None:
    index = np.array([0], np.int64)
    aggregation = average("median", 0.2, then=IDENTITY)(index, 3)
    for entry in range(3):
        aggregation.add(0, Labels(index, np.eye(3, dtype=np.float32)[[entry]]))
    assert np.allclose(aggregation.finish().value, 1 / 3)


def test_no_answer_at_all_leaves_nothing() -> None:
    found = average("median", 0.2, then=IDENTITY)(np.array([1, 2], np.int64), 3).finish()
    assert found.index.shape == (0,) and found.value.shape == (0, 3)


@pytest.mark.parametrize("trim", [-0.1, 0.5, float("nan")])
def test_a_share_to_trim_outside_its_range_is_refused(trim: float) -> None:
    with pytest.raises(ConfigError, match=r"^trim must be at least 0 and less than 0.5, got "):
        average("trimmed", trim, then=IDENTITY)


@pytest.mark.parametrize("config", [ScarletConfig, DsflConfig])
def test_an_unknown_average_is_refused_by_its_name_and_with_the_choices(config: Callable[..., object]) -> None:
    with pytest.raises(ConfigError, match=r"^average must be mean, median or trimmed, got 'mode'$"):
        config(average="mode")
