"""A message that was changed on its way is refused, or is a valid message; it never breaks its receiver."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from scarlet.protocol.codecs import CODECS
from tests.faults.mutations import Case, cases, outcome, outcomes


@pytest.fixture(scope="module", params=CODECS)
def every(request: pytest.FixtureRequest) -> list[Case]:
    return cases(request.param)


def test_whatever_is_done_to_a_message_it_is_refused_or_valid(every: list[Case]) -> None:
    found = Counter(outcomes(every, 4_000, np.random.default_rng(0)))
    for name in ("client: refused", "client: out of step", "client: read", "server: unreadable", "server: read"):
        assert found[name] > 20, found


def test_a_message_that_nobody_changed_is_not_refused(every: list[Case]) -> None:
    found = Counter(outcome(case, case.data) for case in every)
    assert not found["client: refused"] and not found["server: unreadable"], found
    assert found["client: read"] > 10 * found["client: out of step"]
    assert found["server: read"] > 100
