from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from scarlet.methods.cfd import CfdConfig, cfd
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.protocol.downlink.shared import Shared
from scarlet.protocol.method import Method
from scarlet.transport.client_setup import BUDGET, Evaluation, client_bytes, clients_in_memory
from tests.transport.five_clients import AGREEMENT, kind

LARGE = replace(AGREEMENT, public_size=10_000)
METHOD = scarlet(ScarletConfig())


@pytest.mark.parametrize(
    ("method", "a_sample"),
    [
        (METHOD, 4 * 3 + 3 * 4),  # its entry in the cache, and three stamps
        (replace(METHOD, downlink=Shared(METHOD.downlink.policy, teachers=3)), 4 * 9 + 3 * 4),
        (cfd(CfdConfig(delta=True)), 4 * 3 + 3 * 4 + 4 * 3 + 1),  # and its last answer
    ],
    ids=["scarlet", "three teachers", "delta coding"],
)
def test_the_bytes_of_a_client_are_those_of_the_largest_model_its_images_and_its_labels(
    method: Method, a_sample: int
) -> None:
    kinds = [kind(weights={"weight": torch.zeros(count)}) for count in (90, 250, 3)]
    held = client_bytes(method, replace(LARGE, codec="compact"), kinds, 500) - 1000 - 500
    assert 0 <= held - LARGE.public_size * a_sample < 1000, "the rest is the names of fields"


def test_as_many_clients_are_in_memory_as_the_budget_has_room_for() -> None:
    assert clients_in_memory(None, 10_000, int(BUDGET / 100)) == 100
    assert clients_in_memory(None, 10, int(BUDGET / 100)) == 10
    assert clients_in_memory(None, 10, int(3 * BUDGET)) == 1
    assert clients_in_memory(7, 10_000, int(3 * BUDGET)) == 7


def test_accuracy_is_measured_in_every_third_round_and_in_the_last() -> None:
    assert [round for round in range(1, 9) if Evaluation(every=3, last=8).due(round)] == [3, 6, 8]
