"""Inputs of any shape, augmentation and scaling of one's own, and what may write to the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from scarlet.arrays import Labels
from scarlet.data.sites import Augment, Scale
from scarlet.job import Job, Result
from scarlet.training.server_model import ServerModel
from scarlet.training.train import Samples, Task, Training, evaluate, predict, work
from tests.training.easy import CLASSES, TRAINING, distil, fit, same, teacher, weights

COUNT = 60
LABELS = torch.arange(COUNT) % CLASSES


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """A model that is made in a test has the same weights every time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def noise(*shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).normal(0, 0.3, shape).astype(np.float32))


def rows() -> Tensor:
    """f32[n, 5]: the class is the column that is large."""
    return noise(COUNT, 5) + 2 * functional.one_hot(LABELS, 5)


def sequences() -> Tensor:
    """f32[n, 7, 5]: the class is the column that is large at every step."""
    return noise(COUNT, 7, 5) + functional.one_hot(LABELS, 5)[:, None]


def tokens() -> Tensor:
    """i64[n, 7]: the class is the remainder of all tokens."""
    drawn = np.random.default_rng(0).integers(0, 20, (COUNT, 7))
    return 3 * torch.from_numpy(drawn) + LABELS[:, None]


class LastStep(nn.Module):
    """The scores after the last step of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.steps, self.head = nn.GRU(5, 8, batch_first=True), nn.Linear(8, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.head(self.steps(inputs)[0][:, -1])
        return scores


class MeanToken(nn.Module):
    """The scores of the mean of the tokens' embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(64, 8), nn.Linear(8, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.head(self.tokens(inputs).mean(dim=1))
        return scores


def with_batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Linear(8, CLASSES))


FORMS: dict[str, tuple[Callable[[], Tensor], Callable[[], nn.Module]]] = {
    "rows": (rows, with_batch_norm),
    "sequences": (sequences, LastStep),
    "tokens": (tokens, MeanToken),
}
every_form = pytest.mark.parametrize(("inputs", "model"), FORMS.values(), ids=FORMS.keys())
every_augmentation = pytest.mark.parametrize(
    "augment", [Augment(), Augment(padding=2, flip=True), torch.clone], ids=["none", "for images", "a function"]
)


@every_augmentation
@every_form
def test_a_model_learns_inputs_that_are_not_images(
    inputs: Callable[[], Tensor], model: Callable[[], nn.Module], augment: Augment | Scale
) -> None:
    given, made, untrained = inputs(), model(), model()
    training = replace(TRAINING, lr=0.3, local_epochs=30, augment=augment)
    before, samples = given.clone(), Samples(given, LABELS)
    _, first = evaluate(made, samples)
    loss = fit(made, samples, training, np.random.default_rng(0))
    accuracy, last = evaluate(made, samples)
    assert accuracy > 0.95 and last < first / 2 and loss < first / 2
    student_training = replace(training, distil_lr=0.3, distil_epochs=30)
    index = np.arange(0, COUNT, 2)
    taught = Labels(index, predict(made, given, index))
    distil(untrained, given, taught, student_training, np.random.default_rng(1))
    agreed = predict(untrained, given, np.arange(COUNT)).argmax(1) == predict(made, given, np.arange(COUNT)).argmax(1)
    assert agreed.mean() > 0.9
    assert torch.equal(given, before)


@every_form
def test_predictions_and_measures_are_those_of_the_model_itself(
    inputs: Callable[[], Tensor], model: Callable[[], nn.Module]
) -> None:
    given, made, index = inputs(), model().eval(), np.array([41, 3, 3, 17])
    with torch.no_grad():
        scores = made(given)
    np.testing.assert_allclose(predict(made, given, index), scores.softmax(1)[index].numpy(), atol=1e-6)
    accuracy, loss = evaluate(made, Samples(given, LABELS))
    assert accuracy == pytest.approx(float((scores.argmax(1) == LABELS).double().mean()))
    assert loss == pytest.approx(float(functional.cross_entropy(scores, LABELS)), rel=1e-5)


def test_tokens_stay_whole_numbers_on_their_way_to_the_model() -> None:
    seen = Watched()
    for augment in (Augment(), torch.clone):
        done(seen, training=replace(TRAINING, augment=augment), inputs=tokens())
    assert {inputs.dtype for inputs in seen.seen} == {torch.int64}


class Watched(nn.Module):
    """A model that keeps what it is given, in training and otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(1, CLASSES)
        self.taught: list[Tensor] = []
        self.asked: list[Tensor] = []

    @property
    def seen(self) -> list[Tensor]:
        return [*self.taught, *self.asked]

    def forward(self, inputs: Tensor) -> Tensor:
        (self.taught if self.training else self.asked).append(inputs.clone())
        scores: Tensor = self.head(inputs.flatten(1)[:, :1].float())
        return scores


def done(
    model: nn.Module,
    training: Training = TRAINING,
    inputs: Tensor | None = None,
    *,
    name: str = "a",
    round: int = 1,
) -> Result:
    """A client's part of a round, on inputs that are the public dataset and the test split, too."""
    given = numbered() if inputs is None else inputs
    samples = Samples(given, LABELS)
    job = Job(0, round, 0, teacher(np.arange(0, COUNT, 3)), np.arange(30))
    task = Task(name, job, model, training.optimisers(model), samples, samples)
    return work(task, given, training, {})


def numbered() -> Tensor:
    """f32[n, 2]: rows that can be told from each other."""
    return torch.arange(2 * COUNT, dtype=torch.float32).view(COUNT, 2)


def plus_1000(inputs: Tensor) -> Tensor:
    return inputs + 1000


def plus_1000_in_place(inputs: Tensor) -> Tensor:
    return inputs.add_(1000)


def plus_a_half(inputs: Tensor) -> Tensor:
    return inputs + 0.5


def plus_a_half_in_place(inputs: Tensor) -> Tensor:
    return inputs.add_(0.5)


def values(seen: list[Tensor]) -> set[float]:
    return set(torch.cat(seen).flatten().tolist())


@pytest.mark.parametrize("scale", [plus_1000, plus_1000_in_place])
@pytest.mark.parametrize(
    ("augment", "added"),
    [(Augment(), 0.0), (Augment(padding=1, flip=True), 0.0), (plus_a_half, 0.5), (plus_a_half_in_place, 0.5)],
    ids=["none", "for images", "a function", "in place"],
)
def test_inputs_are_scaled_exactly_once_and_only_training_inputs_are_augmented(
    augment: Augment | Scale, added: float, scale: Scale
) -> None:
    given, seen = numbered(), Watched()
    training = replace(TRAINING, augment=augment, scale=scale)
    for round in (1, 2):  # also where the same tensors are used again
        done(seen, training, given, round=round)
    own = set(numbered().flatten().tolist())
    assert values(seen.taught) == {value + 1000 + added for value in own}
    assert values(seen.asked) == {value + 1000 for value in own}
    assert torch.equal(given, numbered())


@pytest.mark.parametrize("scale", [plus_1000, plus_1000_in_place])
def test_the_servers_model_is_given_inputs_that_are_scaled_exactly_once(scale: Scale) -> None:
    given, seen = numbered(), Watched()
    server = ServerModel(seen, given, Samples(given, LABELS), replace(TRAINING, scale=scale, augment=plus_a_half))
    for round in (1, 2):
        server.learn(teacher(np.arange(COUNT)), round)
        server.finish(measure=True)
    server.predict(np.arange(COUNT))
    own = set(numbered().flatten().tolist())
    assert values(seen.taught) == {value + 1000.5 for value in own}
    assert values(seen.asked) == {value + 1000 for value in own}
    assert torch.equal(given, numbered())


def test_augmentation_comes_before_scaling() -> None:
    given = torch.arange(COUNT, dtype=torch.uint8).view(COUNT, 1)
    types = []

    def augment(inputs: Tensor) -> Tensor:
        types.append(inputs.dtype)
        return inputs

    seen = Watched()
    done(seen, replace(TRAINING, augment=augment), given)
    assert set(types) == {torch.uint8}
    assert {inputs.dtype for inputs in seen.seen} == {torch.float32}
    assert min(values(seen.seen)) >= -1 and max(values(seen.seen)) < 1


@pytest.mark.parametrize(
    ("scale", "shape"),
    [
        (lambda inputs: inputs.transpose(1, 2), (5, 7)),
        (lambda inputs: inputs[:, ::2], (4, 5)),
        (lambda inputs: inputs.unsqueeze(1).expand(-1, 3, -1, -1), (3, 7, 5)),
        (lambda inputs: inputs.flatten(1), (35,)),
        (lambda inputs: inputs.double(), (7, 5)),
    ],
    ids=["transposed", "thinned", "repeated", "flat", "of another type"],
)
@every_augmentation
def test_scaling_may_change_the_shape_the_layout_and_the_type_of_inputs(
    augment: Augment | Scale, scale: Scale, shape: tuple[int, ...]
) -> None:
    given, seen = sequences(), Watched()
    result = done(seen, replace(TRAINING, augment=augment, scale=scale), given)
    assert {tuple(inputs.shape[1:]) for inputs in seen.seen} == {shape}
    whole = {each.numpy().tobytes() for each in scale(sequences())}
    assert {each.numpy().tobytes() for inputs in seen.seen for each in inputs} == whole, "no input is mixed up"
    assert result.value.shape == (30, CLASSES) and torch.equal(given, sequences())


def drawn(inputs: Tensor) -> Tensor:
    return inputs + torch.rand(len(inputs), 1)


def test_an_augmentation_draws_from_a_generator_that_is_seeded_for_the_client_and_the_round() -> None:
    found: dict[tuple[str, int, int], list[tuple[float, ...]]] = {}
    for name, round, seed in (("a", 1, 5), ("b", 1, 5), ("a", 2, 5), ("a", 1, 6)):
        for again in range(2):
            seen = Watched()
            torch.rand(again + 7)  # whatever was drawn before
            state = torch.get_rng_state()
            done(seen, replace(TRAINING, augment=drawn, seed=seed), name=name, round=round)
            assert torch.equal(torch.get_rng_state(), state)
            moved = torch.cat(seen.taught)[:, 0] % 1
            assert len(set(moved.tolist())) > 0.9 * len(moved), "each input of each batch has a draw of its own"
            found.setdefault((name, round, seed), []).append(tuple(moved.tolist()))
    assert all(first == second for first, second in found.values())
    assert len({first for first, _ in found.values()}) == 4


class Writes(nn.Module):
    """A model that writes to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.LazyLinear(CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        inputs.mul_(0)
        scores: Tensor = self.head(inputs.flatten(1).float())
        return scores


def as_it_is(inputs: Tensor) -> Tensor:
    return inputs


def a_view(inputs: Tensor) -> Tensor:
    return inputs.view(len(inputs), -1)


@every_augmentation
@pytest.mark.parametrize("scale", [None, as_it_is, a_view], ids=["default", "as it is", "a view"])
@pytest.mark.parametrize("inputs", [rows, sequences, tokens, lambda: noise(COUNT, 1, 6, 6)])
def test_a_model_that_writes_to_its_input_does_not_change_the_data(
    inputs: Callable[[], Tensor], scale: Scale | None, augment: Augment | Scale
) -> None:
    given, training = inputs(), replace(TRAINING, augment=augment)
    training = training if scale is None else replace(training, scale=scale)
    model = Writes()
    model(given.clone())  # it has no weights before
    done(model, training, given)
    assert torch.equal(given, inputs())


@every_form
def test_the_same_round_gives_the_same_weights_and_another_gives_others(
    inputs: Callable[[], Tensor], model: Callable[[], nn.Module]
) -> None:
    start, found = model().state_dict(), []
    for round in (1, 1, 2):
        made = model()
        made.load_state_dict(start)
        done(made, inputs=inputs(), round=round)
        found.append(weights(made))
    assert same(found[0], found[1]) and not same(found[0], found[2])
