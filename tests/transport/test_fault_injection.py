"""Dropouts happen as often as asked for, half of them on either side of the training; false labels are well formed."""

from __future__ import annotations

import numpy as np
import pytest

from scarlet.arrays import Labels
from scarlet.distributions import check_distributions
from scarlet.job import Job, Result
from scarlet.transport.fault_injection import Attack, FaultInjection

NOTHING = Labels(np.empty(0, np.int64), np.empty((0, 3), np.float32))


def job(client: int, round: int) -> Job:
    return Job(client, round, 0, NOTHING, np.arange(4))


def test_half_of_the_dropouts_come_before_training_and_half_after() -> None:
    faults, jobs = FaultInjection(seed=0, clients=20, dropout=0.3), [job(c, r) for c in range(20) for r in range(200)]
    before = np.mean([faults.lost_before_training(each) for each in jobs])
    after = np.mean([faults.lost_after_training(each) for each in jobs])
    assert before == pytest.approx(0.15, abs=0.02) and after == pytest.approx(0.15, abs=0.02)
    assert not any(faults.lost_before_training(each) and faults.lost_after_training(each) for each in jobs)


def test_without_troubles_nothing_happens() -> None:
    faults, result = FaultInjection(seed=0, clients=5), Result(np.full((4, 3), 1 / 3, np.float32), {})
    assert not faults.lost_before_training(job(1, 1)) and not faults.lost_after_training(job(1, 1))
    assert all(faults.falsified(job(client, 1), result) is result for client in range(5))


@pytest.mark.parametrize("attack", ["flip", "random"])
def test_the_same_share_of_clients_lies_in_every_round_with_labels_that_pass_for_real(attack: Attack) -> None:
    faults = FaultInjection(seed=1, clients=10, hostile=0.2, attack=attack)
    honest = Result(np.random.default_rng(0).dirichlet(np.ones(3), 4).astype(np.float32), {"accuracy": 0.5})
    liars = []
    for round in (1, 2, 3):
        sent = [faults.falsified(job(client, round), honest) for client in range(10)]
        liars.append([client for client, result in enumerate(sent) if not np.array_equal(result.value, honest.value)])
        for result in sent:
            check_distributions(result.value, "a client")
            assert result.metrics == honest.metrics
    assert liars[0] == liars[1] == liars[2] and len(liars[0]) == 2
