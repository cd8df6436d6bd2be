from __future__ import annotations

import numpy as np
import pytest

from scarlet.rng import stream
from scarlet.training.server_model import ServerModel
from scarlet.training.tensors import weights_of
from scarlet.training.train import evaluate, parameters_of, predict
from tests.training.easy import NO_LABELS, TRAINING, distil, easy, network, same, teacher, weights


@pytest.mark.parametrize("apart", [False, True])
def test_the_server_learns_a_rounds_labels_and_nothing_from_none(apart: bool) -> None:
    samples, by_hand = easy(20), network()
    with ServerModel(network(), samples.inputs, samples, TRAINING, apart=apart) as server:
        server.learn(NO_LABELS, 1)
        assert same(weights_of(server.arrays()), weights(by_hand))
        for round, count in ((1, 10), (2, 15)):
            server.learn(teacher(np.arange(count)), round)
            rng = stream(5, "server", round=round, purpose="distil")
            distil(by_hand, samples.inputs, teacher(np.arange(count)), TRAINING, rng)
        assert np.array_equal(server.predict(np.arange(4)), predict(by_hand, samples.inputs, np.arange(4)))
        assert same(weights_of(server.arrays()), weights(by_hand))
        assert server.finish(measure=True).result().measured == evaluate(by_hand, samples)


def test_the_model_is_measured_again_after_it_has_changed() -> None:
    samples, other = easy(20), network(2)
    with ServerModel(network(), samples.inputs, samples, TRAINING) as server:
        assert server.finish(measure=False).result().measured is None
        assert server.finish(measure=True).result().measured == evaluate(network(), samples)
        server.load(parameters_of(other))
        assert np.array_equal(server.parameters(), parameters_of(other))
        assert server.finish(measure=True).result().measured == evaluate(other, samples)
        server.learn(teacher(np.arange(10)), 1)
        learned = server.finish(measure=True).result()
        assert learned.measured == evaluate(server.model, samples) != evaluate(other, samples)
        server.learn(teacher(np.arange(10)), 2)
        assert not same(weights_of(learned.arrays), weights_of(server.arrays())), "a result is a copy"


def test_an_error_in_training_is_raised_at_the_end_of_the_round() -> None:
    samples = easy(20)
    with ServerModel(network(), samples.inputs, samples, TRAINING, apart=True) as server:
        server.learn(teacher(np.array([99])), 1)
        with pytest.raises(IndexError):
            server.finish(measure=False).result()
