from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from scarlet.arrays import Labels, Values
from scarlet.data.sites import Augment
from scarlet.job import Job, Result
from scarlet.rng import stream
from scarlet.training.train import (
    Samples,
    Task,
    Training,
    ends_of_batches,
    evaluate,
    parameters_of,
    predict,
    scaled,
    work,
)
from tests.training.easy import CLASSES, NO_LABELS, TRAINING, distil, easy, fit, network, same, teacher, weights


def job(client: int = 0, round: int = 1, taught: Labels = NO_LABELS) -> Job:
    return Job(client, round, 0, taught, np.arange(5))


def test_fit_lowers_the_loss_and_separates_an_easy_set() -> None:
    model, samples = network(), easy(60)
    _, before = evaluate(model, samples)
    reported = fit(model, samples, replace(TRAINING, local_epochs=10), stream(0, "client", purpose="fit"))
    accuracy, after = evaluate(model, samples)
    assert before > 0.9 and reported < 0.2 and after < 0.2
    assert accuracy == 1.0


@pytest.mark.parametrize("size", [1, 2, 3, 50])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 49, 50, 51, 52, 100, 101])
def test_batches_are_full_but_for_the_last_and_none_is_of_one_image(count: int, size: int) -> None:
    batches = [len(batch) for batch in np.split(np.arange(count), ends_of_batches(count, size))]
    assert sum(batches) == count and all(length == size for length in batches[:-1])
    assert 0 < batches[-1] <= size + 1
    assert (batches[-1] == 1) == (count == 1 or size == 1)
    assert (batches[-1] == size + 1) == (size > 1 and count > 1 and count % size == 1)


def test_a_model_whose_batch_norm_needs_two_images_is_trained_on_one_more_than_a_batch() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, CLASSES))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        model.train()(torch.zeros(1, 1, 6, 6))
    samples = easy(TRAINING.batch_size + 1)
    losses = [fit(model, samples, TRAINING, np.random.default_rng(epoch)) for epoch in range(20)]
    assert losses[-1] < losses[0] / 2


def test_fit_reports_the_mean_loss_of_its_last_epoch() -> None:
    model, samples = network(), easy(20)  # two batches of 8 and one of 4
    still = replace(TRAINING, lr=1e-30)  # the weights stand still, so the last epoch's loss can be computed afterwards
    reported = fit(model, samples, replace(still, batch_size=20), stream(0, "client"))
    model.train()
    with torch.no_grad():
        expected = functional.cross_entropy(model(scaled(samples.inputs)), samples.labels)
    assert reported == pytest.approx(float(expected), rel=1e-5)


def literal_distil(
    model: nn.Module, public: Tensor, labels: Labels, training: Training, rng: np.random.Generator
) -> float:
    """Step by step: shuffle, take a batch, KL(teacher || model) averaged over its images, one plain gradient step."""
    model.train()
    total = 0.0
    for _ in range(training.distil_epochs):
        order = rng.permutation(len(labels.index))
        total = 0.0
        for first in range(0, len(order), training.batch_size):
            batch = order[first : first + training.batch_size]
            images = torch.stack([public[labels.index[i]] for i in batch]).double() / 127.5 - 1
            target = torch.from_numpy(labels.value[batch])
            log_model = torch.log_softmax(model(images.float()), dim=1)
            divergence = (torch.xlogy(target, target) - target * log_model).sum()
            gradients = torch.autograd.grad(divergence / len(batch), list(model.parameters()))
            with torch.no_grad():
                for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                    parameter.sub_(training.distil_lr * gradient)
            total += float(divergence.detach())
    return total / len(labels.index)


def test_distil_takes_the_steps_of_a_literal_loop() -> None:
    public, labels = easy(40).inputs, teacher(np.arange(1, 40, 2))  # two batches of 8 and one of 4
    ours, literal = network(), network()
    training = replace(TRAINING, distil_epochs=3)
    loss = distil(ours, public, labels, training, stream(5, "client", purpose="distil"))
    expected = literal_distil(literal, public, labels, training, stream(5, "client", purpose="distil"))
    assert not same(weights(ours), weights(network()))
    for name, value in weights(ours).items():
        torch.testing.assert_close(value, weights(literal)[name], atol=1e-6, rtol=0)
    assert loss == pytest.approx(expected, abs=1e-5)


def test_distil_makes_a_student_predict_what_its_teacher_predicts() -> None:
    public, labels = easy(30).inputs, teacher(np.arange(30))
    student = network()
    loss = distil(student, public, labels, replace(TRAINING, distil_epochs=60, distil_lr=0.3), stream(0, "server"))
    assert loss < 0.1
    assert np.mean(predict(student, public, labels.index).argmax(1) == labels.value.argmax(1)) > 0.9


def test_training_sees_augmented_images() -> None:
    samples, training = easy(20), replace(TRAINING, augment=Augment(padding=2, flip=True))
    plain, augmented = network(), network()
    fit(
        plain, samples, replace(training, augment=Augment(0, False), batch_size=20, local_epochs=1), stream(0, "client")
    )
    fit(augmented, samples, replace(training, batch_size=20, local_epochs=1), stream(0, "client"))
    assert not same(weights(plain), weights(augmented))


def test_predict_answers_from_the_plain_images_in_eval_mode_and_leaves_batch_norm_alone() -> None:
    model, public, index = network(), easy(20).inputs, np.array([2, 3, 11])
    fit(model, easy(20), TRAINING, stream(0, "client"))
    before = weights(model)
    values = predict(model.train(), public, index)
    assert same(weights(model), before)
    with torch.no_grad():
        expected = torch.softmax(model.eval()(public[[2, 3, 11]].float() / 127.5 - 1), dim=1)
    np.testing.assert_allclose(values, expected.numpy(), atol=1e-6)


def test_predictions_are_distributions() -> None:
    values = predict(network(), easy(30).inputs, np.arange(30))
    assert values.dtype == np.float32 and values.shape == (30, CLASSES)
    assert (values >= 0).all()
    np.testing.assert_allclose(values.sum(axis=1), 1, atol=1e-6)


def test_a_long_request_is_answered_in_its_own_order() -> None:
    model, public, index = network(), easy(250).inputs, np.arange(0, 250, dtype=np.int64)[::-1].copy()
    one_by_one = np.concatenate([predict(model, public, index[[at]]) for at in range(len(index))])
    np.testing.assert_allclose(predict(model, public, index), one_by_one, atol=1e-6)


def test_an_empty_request_is_answered_with_no_rows() -> None:
    assert predict(network(), easy(5).inputs, np.empty(0, np.int64)).shape == (0, CLASSES)


def test_evaluate_counts_the_right_answers_and_averages_the_loss() -> None:
    scores = torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0], [0.0, 0.0]])
    labels = torch.tensor([0, 0, 0, 1])
    accuracy, loss = evaluate(nn.Flatten(), Samples(scores[:, None, None], labels))
    losses = [math.log(1 + math.exp(-2)), math.log(1 + math.e), math.log(1 + math.exp(-3)), math.log(2)]
    assert accuracy == 0.5  # of equal scores the first counts, so the last is wrong
    assert loss == pytest.approx(sum(losses) / 4)


class Scaling(nn.Module):
    """A model that writes to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.head = nn.Parameter(torch.ones(1, 1, 1)), nn.Linear(36, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        images *= self.scale
        scores: Tensor = self.head(images.flatten(1))
        return scores


@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize("augment", [Augment(0, False), Augment(1, True)])
def test_a_model_may_write_to_its_input(floats: bool, augment: Augment) -> None:
    given = easy(40)
    given = replace(given, inputs=scaled(given.inputs)) if floats else given
    before = given.inputs.clone()
    loss = fit(Scaling(), given, replace(TRAINING, augment=augment), np.random.default_rng(0))
    assert np.isfinite(loss) and torch.equal(given.inputs, before)


def test_bytes_are_scaled_to_minus_one_to_one_and_floats_are_left_alone() -> None:
    images = torch.tensor([0, 51, 255], dtype=torch.uint8)
    assert scaled(images).tolist() == pytest.approx([-1, -0.6, 1])
    assert images.tolist() == [0, 51, 255]
    ready = torch.tensor([0.25, -3.0])
    assert torch.equal(scaled(ready), ready)


def done(model: nn.Module, job: Job, training: Training = TRAINING, *, measured: bool = False) -> Result:
    """`work` on an easy set, which is the public dataset too; the models started from `network(2)`."""
    samples = easy(20)
    test = samples if measured else None
    task = Task(str(job.client), job, model, training.optimisers(model), samples, test)
    return work(task, samples.inputs, training, network(2).state_dict())


def after_work(training: Training = TRAINING, client: int = 0, round: int = 1) -> dict[str, Tensor]:
    model = network()
    done(model, job(client, round, teacher(np.arange(10))), training)
    return weights(model)


def test_the_same_round_of_the_same_client_gives_the_same_weights() -> None:
    assert same(after_work(), after_work())


@pytest.mark.parametrize("other", ["round", "client", "seed"])
def test_another_round_client_or_seed_gives_other_weights(other: str) -> None:
    changed = {
        "round": lambda: after_work(round=2),
        "client": lambda: after_work(client=1),
        "seed": lambda: after_work(replace(TRAINING, seed=6)),
    }[other]()
    assert not same(after_work(), changed)


def test_no_local_epochs_and_an_empty_teacher_leave_the_weights_as_they_are() -> None:
    model = network()
    result = done(model, job(), replace(TRAINING, local_epochs=0))
    assert same(weights(model), weights(network()))
    assert "distil_loss" not in result.metrics and math.isnan(result.metrics["fit_loss"])


def test_no_distil_epochs_leave_the_weights_as_they_are() -> None:
    model = network()
    done(model, job(taught=teacher(np.arange(10))), replace(TRAINING, local_epochs=0, distil_epochs=0))
    assert same(weights(model), weights(network()))


def by_hand(model: nn.Module, taught: Labels, weight: float = 1.0) -> nn.Module:
    """Client 2 in round 3 distils, then fits."""
    samples = easy(20)
    rng = stream(5, "client", client=2, round=3, purpose="distil")
    distil(model, samples.inputs, taught, TRAINING, rng, weight)
    fit(model, samples, TRAINING, stream(5, "client", client=2, round=3, purpose="fit"))
    return model


def test_a_client_distils_first_then_fits_then_answers_and_is_measured() -> None:
    samples, labels, model = easy(20), teacher(np.arange(10)), network()
    result = done(model, job(2, 3, labels), measured=True)
    expected = by_hand(network(), labels)
    assert same(weights(model), weights(expected))
    assert np.array_equal(result.value, predict(expected, samples.inputs, np.arange(5)))
    assert (result.metrics["accuracy"], result.metrics["loss"]) == evaluate(expected, samples)
    assert result.samples == 20 and result.parameters is None


def test_a_client_without_a_test_split_reports_no_accuracy() -> None:
    assert "accuracy" not in done(network(), job()).metrics


def test_a_client_chooses_by_the_soft_labels_of_its_model_before_it_restarts() -> None:
    asked: list[Values] = []
    several = Labels(np.arange(10), np.stack([teacher(np.arange(10)).value] * 2, axis=1))

    def choose(teachers: Labels, own: Values) -> Labels:
        asked.append(own)
        return Labels(teachers.index, teachers.value[:, 1])

    model = network()
    done(model, replace(job(2, 3, several), choose=choose, restart=True))
    assert same(weights(model), weights(by_hand(network(2), teacher(np.arange(10)))))
    (own,) = asked
    assert np.array_equal(own, predict(network(), easy(20).inputs, np.arange(10)))
    done(network(), replace(job(), choose=choose))
    assert len(asked) == 1, "a client without a teacher has nothing to choose"


def test_the_distillation_loss_is_weighted() -> None:
    model = network()
    done(model, replace(job(2, 3, teacher(np.arange(10))), distil_weight=3.0))
    assert same(weights(model), weights(by_hand(network(), teacher(np.arange(10)), 3.0)))
    assert not same(weights(model), weights(by_hand(network(), teacher(np.arange(10)))))


def test_a_client_begins_with_the_parameters_that_it_is_sent_and_returns_its_own() -> None:
    model = network(7)
    sent = replace(job(2, 3, teacher(np.arange(10))), parameters=parameters_of(network()), send_parameters=True)
    result = done(model, sent)
    assert same(weights(model), weights(by_hand(network(), teacher(np.arange(10)))))
    assert result.parameters is not None and np.array_equal(result.parameters, parameters_of(model))


def test_dropout_draws_from_a_stream_of_its_own_and_leaves_torchs_generator_alone() -> None:
    found = []
    for seed, share in ((0, 0.5), (1, 0.5), (0, 0.0)):
        model = nn.Sequential(nn.Dropout(share), network())
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            before = torch.get_rng_state()
            done(model, job())
            assert torch.equal(torch.get_rng_state(), before)
        found.append(weights(model))
    assert same(found[0], found[1]) and not same(found[0], found[2])
