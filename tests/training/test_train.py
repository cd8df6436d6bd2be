from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from scarlet.data import Augment
from scarlet.methods.parts.aggregate import mean
from scarlet.protocol.method import Method
from scarlet.protocol.types import Index, Job, Labels
from scarlet.rng import stream
from scarlet.training.server_model import ServerModel
from scarlet.training.train import Samples, Training, distil, ends_of_batches, evaluate, fit, predict, scaled, work

CLASSES = 3
PLAIN = Method(aggregate=mean())
HOW = Training(
    local_epochs=2,
    distil_epochs=2,
    lr=0.1,
    distil_lr=0.05,
    batch_size=8,
    augment=Augment(padding=0, flip=False),
    seed=5,
)


pytestmark = pytest.mark.usefixtures("one_thread")


def network() -> nn.Module:
    """A small network with batch norm, always of the same weights."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, CLASSES)
        )


def easy(count: int) -> Samples:
    """Images of 6x6 bytes whose class is the band of rows that is bright."""
    rng = np.random.default_rng(0)
    labels = np.arange(count) % CLASSES
    images = rng.integers(0, 100, (count, 1, 6, 6), np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[:, 2 * label : 2 * label + 2] += 120
    return Samples(torch.from_numpy(images), torch.from_numpy(labels))


def teacher(index: Index) -> Labels:
    """Soft-labels drawn at random, some of them with an entry of exactly 0."""
    value = np.random.default_rng(9).dirichlet(np.ones(CLASSES), len(index)).astype(np.float32)
    value[:3] = np.eye(CLASSES)[0]
    return Labels(index, value)


def job(client: int = 0, round: int = 1, taught: Labels | None = None) -> Job:
    nothing = Labels(np.empty(0, np.int64), np.empty((0, CLASSES), np.float32))
    return Job(client, round, 0, taught if taught is not None else nothing, np.arange(5))


def weights(model: nn.Module) -> dict[str, Tensor]:
    return copy.deepcopy(model.state_dict())


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_fit_lowers_the_loss_and_separates_an_easy_set() -> None:
    model, samples = network(), easy(60)
    _, before = evaluate(model, samples)
    reported = fit(model, samples, replace(HOW, local_epochs=10), stream(0, "client", purpose="fit"))
    accuracy, after = evaluate(model, samples)
    assert before > 0.9 and reported < 0.2 and after < 0.2
    assert accuracy == 1.0


@pytest.mark.parametrize("size", [1, 2, 3, 50])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 49, 50, 51, 52, 100, 101])
def test_batches_are_full_but_for_the_last_and_nobody_is_left_alone(count: int, size: int) -> None:
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
    samples = easy(HOW.batch_size + 1)
    losses = [fit(model, samples, HOW, np.random.default_rng(epoch)) for epoch in range(20)]
    assert losses[-1] < losses[0] / 2


def test_fit_reports_the_mean_loss_of_its_last_epoch() -> None:
    model, samples = network(), easy(20)  # two batches of 8 and one of 4
    still = replace(HOW, lr=1e-30)  # the weights stand still, so the last epoch's loss can be computed afterwards
    reported = fit(model, samples, replace(still, batch_size=20), stream(0, "client"))
    model.train()
    with torch.no_grad():
        expected = functional.cross_entropy(model(scaled(samples.images)), samples.labels)
    assert reported == pytest.approx(float(expected), rel=1e-5)


def literal_distil(model: nn.Module, public: Tensor, labels: Labels, how: Training, rng: np.random.Generator) -> float:
    """Step by step: shuffle, take a batch, KL(teacher || model) averaged over its images, one plain gradient step."""
    model.train()
    total = 0.0
    for _ in range(how.distil_epochs):
        order = rng.permutation(len(labels.index))
        total = 0.0
        for first in range(0, len(order), how.batch_size):
            batch = order[first : first + how.batch_size]
            images = torch.stack([public[labels.index[i]] for i in batch]).double() / 127.5 - 1
            target = torch.from_numpy(labels.value[batch])
            log_model = torch.log_softmax(model(images.float()), dim=1)
            divergence = (torch.xlogy(target, target) - target * log_model).sum()
            gradients = torch.autograd.grad(divergence / len(batch), list(model.parameters()))
            with torch.no_grad():
                for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                    parameter.sub_(how.distil_lr * gradient)
            total += float(divergence.detach())
    return total / len(labels.index)


def test_distil_takes_the_steps_of_a_literal_loop() -> None:
    public, labels = easy(40).images, teacher(np.arange(1, 40, 2))  # two batches of 8 and one of 4
    ours, literal = network(), network()
    how = replace(HOW, distil_epochs=3)
    loss = distil(ours, public, labels, how, stream(5, "client", purpose="distil"))
    expected = literal_distil(literal, public, labels, how, stream(5, "client", purpose="distil"))
    assert not same(weights(ours), weights(network()))
    for name, value in weights(ours).items():
        torch.testing.assert_close(value, weights(literal)[name], atol=1e-6, rtol=0)
    assert loss == pytest.approx(expected, abs=1e-5)


def test_distil_makes_a_student_say_what_its_teacher_says() -> None:
    public, labels = easy(30).images, teacher(np.arange(30))
    student = network()
    loss = distil(student, public, labels, replace(HOW, distil_epochs=60, distil_lr=0.3), stream(0, "server"))
    assert loss < 0.1
    assert np.mean(predict(student, public, labels.index).argmax(1) == labels.value.argmax(1)) > 0.9


def test_training_sees_augmented_images() -> None:
    samples, how = easy(20), replace(HOW, augment=Augment(padding=2, flip=True))
    plain, augmented = network(), network()
    fit(plain, samples, replace(how, augment=Augment(0, False), batch_size=20, local_epochs=1), stream(0, "client"))
    fit(augmented, samples, replace(how, batch_size=20, local_epochs=1), stream(0, "client"))
    assert not same(weights(plain), weights(augmented))


def test_predict_answers_from_the_plain_images_in_eval_mode_and_leaves_batch_norm_alone() -> None:
    model, public, index = network(), easy(20).images, np.array([2, 3, 11])
    fit(model, easy(20), HOW, stream(0, "client"))
    before = weights(model)
    values = predict(model.train(), public, index)
    assert same(weights(model), before)
    with torch.no_grad():
        expected = torch.softmax(model.eval()(public[[2, 3, 11]].float() / 127.5 - 1), dim=1)
    np.testing.assert_allclose(values, expected.numpy(), atol=1e-6)


def test_predictions_are_distributions() -> None:
    values = predict(network(), easy(30).images, np.arange(30))
    assert values.dtype == np.float32 and values.shape == (30, CLASSES)
    assert (values >= 0).all()
    np.testing.assert_allclose(values.sum(axis=1), 1, atol=1e-6)


def test_a_long_request_is_answered_in_its_own_order() -> None:
    model, public, index = network(), easy(250).images, np.arange(0, 250, dtype=np.int64)[::-1].copy()
    one_by_one = np.concatenate([predict(model, public, index[[at]]) for at in range(len(index))])
    np.testing.assert_allclose(predict(model, public, index), one_by_one, atol=1e-6)


def test_an_empty_request_is_answered_with_no_rows() -> None:
    assert predict(network(), easy(5).images, np.empty(0, np.int64)).shape == (0, CLASSES)


def test_evaluate_counts_the_right_answers_and_averages_the_loss() -> None:
    scores = torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0], [0.0, 0.0]])
    labels = torch.tensor([0, 0, 0, 1])
    accuracy, loss = evaluate(nn.Flatten(), Samples(scores[:, None, None], labels))
    losses = [math.log(1 + math.exp(-2)), math.log(1 + math.e), math.log(1 + math.exp(-3)), math.log(2)]
    assert accuracy == 0.5  # of equal scores the first counts, so the last is wrong
    assert loss == pytest.approx(sum(losses) / 4)


def test_bytes_are_scaled_to_minus_one_to_one_and_floats_are_left_alone() -> None:
    images = torch.tensor([0, 51, 255], dtype=torch.uint8)
    assert scaled(images).tolist() == pytest.approx([-1, -0.6, 1])
    assert images.tolist() == [0, 51, 255]
    ready = torch.tensor([0.25, -3.0])
    assert torch.equal(scaled(ready), ready)


def after_work(how: Training = HOW, client: int = 0, round: int = 1) -> dict[str, Tensor]:
    model, samples = network(), easy(20)
    work(model, job(client, round, teacher(np.arange(10))), samples, None, samples.images, how, PLAIN, {})
    return weights(model)


def test_the_same_round_of_the_same_client_gives_the_same_weights() -> None:
    assert same(after_work(), after_work())


@pytest.mark.parametrize("other", ["round", "client", "seed"])
def test_another_round_client_or_seed_gives_other_weights(other: str) -> None:
    changed = {
        "round": lambda: after_work(round=2),
        "client": lambda: after_work(client=1),
        "seed": lambda: after_work(replace(HOW, seed=6)),
    }[other]()
    assert not same(after_work(), changed)


def test_no_local_epochs_and_an_empty_teacher_leave_the_weights_as_they_are() -> None:
    model, samples = network(), easy(20)
    result = work(model, job(), samples, samples, samples.images, replace(HOW, local_epochs=0), PLAIN, {})
    assert same(weights(model), weights(network()))
    assert "distil_loss" not in result.metrics and math.isnan(result.metrics["fit_loss"])


def test_no_distil_epochs_leave_the_weights_as_they_are() -> None:
    model, samples = network(), easy(20)
    taught = job(taught=teacher(np.arange(10)))
    work(model, taught, samples, None, samples.images, replace(HOW, local_epochs=0, distil_epochs=0), PLAIN, {})
    assert same(weights(model), weights(network()))


def test_a_client_distils_first_then_fits_then_answers_and_is_measured() -> None:
    samples, labels = easy(20), teacher(np.arange(10))
    model, by_hand = network(), network()
    result = work(model, job(client=2, round=3, taught=labels), samples, samples, samples.images, HOW, PLAIN, {})
    distil(by_hand, samples.images, labels, HOW, stream(5, "client", client=2, round=3, purpose="distil"))
    fit(by_hand, samples, HOW, stream(5, "client", client=2, round=3, purpose="fit"))
    assert same(weights(model), weights(by_hand))
    assert np.array_equal(result.value, predict(by_hand, samples.images, np.arange(5)))
    assert (result.metrics["accuracy"], result.metrics["loss"]) == evaluate(by_hand, samples)


def test_a_client_that_is_not_asked_to_measure_reports_no_accuracy() -> None:
    samples = easy(20)
    assert "accuracy" not in work(network(), job(), samples, None, samples.images, HOW, PLAIN, {}).metrics


def test_the_server_learns_a_rounds_labels_and_nothing_from_none() -> None:
    samples = easy(20)
    server = ServerModel(network(), samples.images, samples, HOW)
    server.learn(job().teacher, 1)
    assert same(weights(server.model), weights(network()))
    server.learn(teacher(np.arange(10)), 1)
    by_hand = network()
    distil(by_hand, samples.images, teacher(np.arange(10)), HOW, stream(5, "server", round=1, purpose="distil"))
    assert same(weights(server.model), weights(by_hand))
    assert server.evaluate() == evaluate(by_hand, samples)
