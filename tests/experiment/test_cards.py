from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import scarlet
from scarlet.errors import ConfigError, DataError, ScarletError
from scarlet.experiment.cards import read_card
from scarlet.experiment.saved_model import load_model
from scarlet.records import RoundRecord
from tests.experiment.saved import CLASSES, IMAGES, NAMES, ROWS, copied, expected, inputs, tiny_run

pytestmark = pytest.mark.xdist_group("saved models")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> scarlet.Result:
    return tiny_run(tmp_path_factory.mktemp("cards") / "run", "cnn32")


def where(run: scarlet.Result) -> Path:
    assert run.directory is not None
    return run.directory


def test_a_card_says_what_the_model_is(run: scarlet.Result) -> None:
    card = json.loads((where(run) / "server.json").read_text())
    assert list(card) == [
        *("format", "role", "accuracy", "architecture", "classes", "class_names", "input", "preprocessing", "bytes"),
        *("config", "public_fingerprint", "versions"),
    ]
    assert card["role"] == "server" and card["architecture"] == "cnn32" and card["classes"] == CLASSES
    assert card["input"] == {"shape": list(IMAGES), "dtype": "uint8"}
    assert card["preprocessing"] == "bytes are scaled to [-1, 1]"
    assert card["config"]["rounds"] == 3
    assert card["bytes"]["cumulative_bytes"] == run.records[-1].cumulative_bytes > 0


def test_a_card_has_the_accuracy_of_the_weights_beside_it(run: scarlet.Result) -> None:
    tests = [inputs(12, IMAGES, "uint8", 10 + seed) for seed in range(3)]
    x, labels = np.concatenate([x for x, _ in tests]), np.concatenate([y for _, y in tests])
    saved = load_model(where(run))
    right = float((saved.predict(x).argmax(axis=1) == labels).mean())
    assert saved.card.content["accuracy"] == pytest.approx(right) == run.records[-1].server_accuracy
    for number, (x, labels) in enumerate(tests):
        client = load_model(where(run), NAMES[number])
        assert client.card.content["accuracy"] == pytest.approx((client.predict(x).argmax(axis=1) == labels).mean())


def test_the_accuracy_is_of_the_last_round_and_no_mean_over_rounds(run: scarlet.Result) -> None:
    accuracies = [record.server_accuracy for record in run.records]
    assert len(set(accuracies)) > 1, "or the test says nothing"
    assert read_card(where(run) / "server.json").content["accuracy"] == accuracies[-1]


def test_a_loaded_model_predicts_what_the_run_s_own_does(run: scarlet.Result) -> None:
    x, _ = inputs(150, IMAGES, "uint8", 99)
    np.testing.assert_allclose(load_model(where(run)).predict(x), expected(run.server_model, x), atol=1e-6)


def test_inputs_in_any_memory_order_are_predicted_alike(tmp_path: Path) -> None:
    result = tiny_run(tmp_path / "run", "mlp", ROWS, "float32")
    x, _ = inputs(20, ROWS, "float32", 99)
    saved = load_model(tmp_path / "run")
    np.testing.assert_array_equal(saved.predict(x.copy(order="F")), saved.predict(x))
    np.testing.assert_allclose(saved.predict(x), expected(result.server_model, x), atol=1e-6)
    assert saved.card.preprocessing == "none"


@pytest.mark.parametrize(
    ("client", "number"), [("0", 0), ("1", 1), ("2", 0), ("7", 1), ("north", 2)], ids=lambda value: str(value)
)
def test_a_client_is_found_by_its_name_or_else_by_its_number(client: str, number: int, run: scarlet.Result) -> None:
    card = load_model(where(run), client).card
    assert (card.content["client"], card.name, card.content["role"]) == (number, NAMES[number], "client")
    assert card.content["samples"] == 30
    x, _ = inputs(20, IMAGES, "uint8", 99)
    own = expected(run.client_model(NAMES[number]), x)
    assert np.allclose(load_model(where(run), client).predict(x), own, atol=1e-6)


class Tied(nn.Module):
    """Two layers that share their weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 5), nn.Linear(5, 5)
        self.second.weight = self.first.weight
        self.last = nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.last(self.second(self.first(x)).relu())
        return scores


def test_layers_that_share_weights_are_saved_even_of_clients_that_never_took_part(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", Tied, ROWS, "float32", rounds=1, participation=0.34)
    for number in range(3):
        weights = load_file(tmp_path / "run" / "clients" / f"{number}.safetensors")
        assert torch.equal(weights["first.weight"], weights["second.weight"])
        loaded = load_model(tmp_path / "run", NAMES[number], Tied).model.state_dict()
        assert all(torch.equal(value, loaded[name]) for name, value in run.clients[number].weights.items())


class CtrlC:
    """Interrupts a run when its second round is written; a checkpoint has the first."""

    def start(self, *_: object) -> None: ...

    def round(self, record: RoundRecord, *_: object) -> None:
        if record.round == 2:
            raise KeyboardInterrupt

    def finish(self, *_: object) -> None: ...


def test_a_resumed_run_writes_the_cards_of_one_that_was_not_interrupted(tmp_path: Path) -> None:
    def cards(name: str) -> list[dict[str, object]]:
        paths = sorted((tmp_path / name).glob("**/*.json"))
        return [json.loads(path.read_text()) for path in paths if path.parent.name == "clients"]

    def asked(name: str) -> list[str]:
        return [row.split(",")[1] for row in (tmp_path / name / "clients.csv").read_text().splitlines()[1:]]

    options: dict[str, Any] = {
        "rounds": 3,
        "participation": 0.34,
        "seed": 2,
    }  # each round asks one client, the first another one
    tiny_run(tmp_path / "whole", "mlp", **options)
    tiny_run(tmp_path / "resumed", "mlp", watchers=[CtrlC()], **options)
    assert cards("resumed") == []
    table = tmp_path / "resumed" / "clients.csv"
    rows = table.read_text()
    table.write_text(rows.replace("accuracy", "precision"))
    with pytest.raises(DataError, match=r"clients\.csv is damaged: each line must have the columns round, client, "):
        tiny_run(tmp_path / "resumed", "mlp", resume=True, **options)
    table.write_text(rows)
    tiny_run(tmp_path / "resumed", "mlp", resume=True, **options)
    assert asked("whole")[0] not in asked("whole")[1:], "or the accuracy of the first is measured again"
    assert cards("resumed") == cards("whole")


def test_a_run_whose_inputs_go_through_a_function_of_the_user_s_is_refused(tmp_path: Path) -> None:
    def halved(x: Tensor) -> Tensor:
        return x.float() / 2

    tiny_run(tmp_path / "run", "mlp", ROWS, "float32", scale=halved)
    with pytest.raises(ConfigError) as caught:
        load_model(tmp_path / "run")
    assert str(caught.value) == (
        f"inputs of the model in {tmp_path}/run/server.json go through the function halved, given from Python; "
        "use result.server_model or result.client_model from Python"
    )


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"architecture": None}, "architecture must be text, got None"),
        ({"classes": 0}, "classes must be a number from 1, got 0"),
        ({"classes": "3"}, "classes must be a number from 1, got '3'"),
        ({"classes": True}, "classes must be a number from 1, got True"),
        ({"class_names": "abc"}, "class_names must be a list of names or null, got 'abc'"),
        ({"class_names": ["a", "b"]}, "class_names must be one for each of the 3 classes, got 2"),
        ({"input": [3, 16, 16]}, "input.shape must be a list of numbers from 1, got None"),
        ({"input__shape": [3, -1, 16]}, "input.shape must be a list of numbers from 1, got [3, -1, 16]"),
        ({"input__dtype": "float64"}, "input.dtype must be uint8, float32 or int64, got 'float64'"),
        ({"preprocessing": 1}, "preprocessing must be text, got 1"),
        ({"name": 7}, "name must be text or null, got 7"),
    ],
)
def test_what_a_damaged_card_lacks_is_named(
    changed: dict[str, object], complaint: str, run: scarlet.Result, tmp_path: Path
) -> None:
    damaged = copied(where(run), tmp_path, **changed)
    with pytest.raises(DataError) as caught:
        load_model(damaged)
    assert str(caught.value) == f"{tmp_path}/server.json is damaged: {complaint}; copy it again from the run"


def test_a_card_that_is_no_card_is_refused(run: scarlet.Result, tmp_path: Path) -> None:
    card = copied(where(run), tmp_path) / "server.json"
    other = f"{card} is not a model card that this version reads; use the version that wrote it"
    for content, complaint in (
        (b'{"format": 1', f"{card} is not JSON; copy it again from the run"),
        (b"\xff\xfe", f"{card} is not JSON; copy it again from the run"),
        (b'{"format": 2}', other),
        (b"[]", other),
    ):
        card.write_bytes(content)
        with pytest.raises(DataError) as caught:
            load_model(tmp_path)
        assert str(caught.value) == complaint


def test_a_model_that_gives_nan_is_refused(run: scarlet.Result) -> None:
    saved = load_model(where(run))
    with torch.no_grad():
        next(saved.model.parameters()).fill_(torch.nan)
    with pytest.raises(DataError) as caught:
        saved.predict(inputs(2, IMAGES, "uint8")[0])
    assert str(caught.value) == (
        f"{where(run)}/server.safetensors gives NaN: its training diverged; run again with a smaller --lr"
    )


class NoScores(nn.Sequential):
    """Weights of an mlp, and one number for each input."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :1]


class Raises(nn.Sequential):
    """Weights of an mlp, and no use for them."""

    def forward(self, x: Tensor) -> Tensor:
        raise ValueError("no\nscores")


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (
            NoScores,
            "model mlp must give one score for each of the 3 classes, got [1] for an input; "
            "give the --factory that the run was made with",
        ),
        (Raises, "model mlp cannot take these inputs: ValueError: no scores"),
    ],
)
def test_a_model_that_is_not_the_one_that_was_trained_is_refused_when_it_predicts(
    kind: type[nn.Sequential], complaint: str, tmp_path: Path
) -> None:
    from scarlet.models.mlp import mlp

    tiny_run(tmp_path / "run", "mlp", ROWS, "float32")
    saved = load_model(tmp_path / "run", factory=lambda: kind(*mlp(CLASSES, ROWS).children()))
    with pytest.raises(ScarletError) as caught:
        saved.predict(inputs(2, ROWS, "float32")[0])
    assert str(caught.value) == complaint
