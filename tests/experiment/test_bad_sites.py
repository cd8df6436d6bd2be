"""Mistakes in what a user gives: each is one line that names the argument, before any training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import nn

import scarlet
from tests.experiment.test_sites import FEATURES, PUBLIC, ROWS, SITES, rows, run, small

LABELLED = rows(20, 1)
ONE = small()
NAN = np.where(np.arange(100).reshape(20, 5) == 7, np.nan, LABELLED[0])


class Yields:
    """A Dataset of something else than pairs."""

    def __init__(self, item: Any) -> None:
        self.item = item

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.item, Exception):
            raise self.item
        return self.item


def site(**changes: Any) -> list[scarlet.Site]:
    return [*SITES[:2], replace(SITES[2], **changes)]


BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "more inputs than labels": (
        {"sites": site(train=(LABELLED[0], LABELLED[1][:10]))},
        ValueError,
        "train of site 'south' has 20 inputs and 10 labels; give each input one label",
    ),
    "NaN": ({"sites": site(train=(NAN, LABELLED[1]))}, ValueError, "inputs of train of site 'south' must be finite"),
    "NaN in public": ({"public": NAN}, ValueError, "public must be finite, got NaN or infinity"),
    "labels out of range": (
        {"sites": site(train=(LABELLED[0], LABELLED[1] + 5)), "classes": 3},
        ValueError,
        "labels must be from 0 to 2 for 3 classes, got 7 in train of site 'south'",
    ),
    "labels from 1 on": (
        {
            "sites": [
                replace(each, train=(each.train[0], each.train[1] + 1), test=(each.test[0], each.test[1] + 1))
                for each in SITES
            ]
        },
        ValueError,
        "labels must be numbered from 0, got 3 classes from 1 to 3; number them anew, or give classes",
    ),
    "codes as labels": (
        {"sites": site(train=(LABELLED[0], LABELLED[1] * 100))},
        ValueError,
        "labels must be numbered from 0, got 5 classes from 0 to 200; number them anew, or give classes",
    ),
    "a model that shares its layers with all others": (
        {"sites": site(model=lambda: nn.Sequential(ONE))},
        ValueError,
        "shares weights between two calls; make all its layers within the function",
    ),
    "a model that is frozen": (
        {"sites": site(model=lambda: small().requires_grad_(False))},
        ValueError,
        "has no weight that can be trained; set requires_grad of some",
    ),
    "negative labels": ({"sites": site(train=(LABELLED[0], LABELLED[1] - 1))}, ValueError, "must be 0 or more, got -1"),
    "labels of floats": (
        {"sites": site(train=(LABELLED[0], LABELLED[1] / 2))},
        TypeError,
        "labels of train of site 'south' must be whole numbers, the class of each sample, got float64",
    ),
    "one-hot labels": (
        {"sites": site(train=(LABELLED[0], np.eye(3, dtype=int)[LABELLED[1]]))},
        ValueError,
        "must be an array [n] of class numbers, got shape [20, 3]; of one-hot labels take y.argmax(1)",
    ),
    "one class": (
        {"sites": [scarlet.Site(train=(LABELLED[0], LABELLED[1] * 0))], "model": small},
        ValueError,
        "classes must be 2 or more, got 1",
    ),
    "an empty client": (
        {"sites": site(train=(LABELLED[0][:0], LABELLED[1][:0]))},
        ValueError,
        "inputs of train of site 'south' must not be empty, got shape [0, 5]",
    ),
    "an empty Dataset": (
        {"sites": site(train=torch.utils.data.TensorDataset(torch.empty(0, 5), torch.empty(0)))},
        ValueError,
        "train of site 'south' must not be empty, got a TensorDataset of length 0",
    ),
    "an empty public set": ({"public": PUBLIC[:0]}, ValueError, "public must not be empty, got shape [0, 5]"),
    "no public set": ({"public": None}, ValueError, "public must be given, the unlabelled dataset"),
    "public of another shape": (
        {"public": PUBLIC[:, :4]},
        ValueError,
        "public has inputs of shape [4], and train of site 'east' of [5]; bring all inputs",
    ),
    "a site of another shape": (
        {"sites": site(train=(LABELLED[0][:, :4], LABELLED[1]))},
        ValueError,
        "train of site 'south' has inputs of shape [4], and train of site 'east' of [5]",
    ),
    "a site of another type": (
        {"sites": site(train=(LABELLED[0].astype(np.uint8), LABELLED[1]))},
        ValueError,
        "train of site 'south' has inputs of uint8, and train of site 'east' of float32; use one type",
    ),
    "text": ({"sites": site(train=(np.full((4, 2), "x"), [0, 1, 0, 1]))}, TypeError, "must be numbers, got <U1"),
    "a Dataset without labels": (
        {"sites": site(train=Yields(LABELLED[0][0]))},
        TypeError,
        "train of site 'south' must yield pairs (input, label), got ndarray; return x, y from __getitem__",
    ),
    "a Dataset of triples": ({"sites": site(train=Yields((1, 2, 3)))}, TypeError, "got tuple of 3; return x, y"),
    "a Dataset of dictionaries": ({"sites": site(train=Yields({"x": 1}))}, TypeError, "got dict; return x, y"),
    "a Dataset that raises": (
        {"sites": site(train=Yields(KeyError("hidden")))},
        ValueError,
        "train of site 'south' cannot be read: its Yields raised KeyError: 'hidden'",
    ),
    "an array without labels": ({"sites": site(train=LABELLED[0])}, TypeError, "must be a pair (inputs, labels) of"),
    "three arrays": ({"sites": site(train=(1, 2, 3))}, TypeError, "or a torch Dataset, got tuple of 3"),
    "two sites of one name": (
        {"sites": [*SITES, SITES[0]]},
        ValueError,
        "sites must have different names, got 'north' twice",
    ),
    "no sites": ({"sites": []}, ValueError, "sites must not be empty, got none"),
    "no list of sites": (
        {"sites": [LABELLED]},
        TypeError,
        "sites must be a list of scarlet.Site, got tuple",
    ),
    "a model of too many outputs": (
        {"sites": site(model=lambda: nn.Linear(FEATURES, 7))},
        ValueError,
        "model of site 'south' (python:lambda) must give one score for each of the 3 classes, got [7] for a sample",
    ),
    "a model for other inputs": (
        {"sites": site(model=lambda: nn.Linear(4, 3))},
        ValueError,
        "model of site 'south' (python:lambda) cannot take inputs of shape [5]: RuntimeError: mat1 and mat2",
    ),
    "a model instead of a factory": (
        {"sites": site(model=small())},
        ValueError,
        "model of site 'south' (python:Linear) cannot be made: TypeError:",
    ),
    "a factory of something else": (
        {"sites": site(model=lambda: "model")},
        TypeError,
        "model of site 'south' (python:lambda) must be a torch.nn.Module, got str; return the model",
    ),
    "a number as a model": ({"sites": site(model=7)}, TypeError, "must be a function that makes a model, or a name"),
    "an unknown model": ({"sites": site(model="resnet21")}, ValueError, "unknown model 'resnet21': did you mean"),
    "a model for images": (
        {"sites": site(model="cnn")},
        ValueError,
        "model cnn takes images [C, H, W], and",
    ),
    "a server model of too few outputs": (
        {"server_model": lambda: nn.Linear(FEATURES, 2)},
        ValueError,
        "model of the server (python:lambda) must give one score for each of the 3 classes, got [2]",
    ),
    "FedAvg with mixed models": (
        {"method": scarlet.FedavgConfig()},
        ValueError,
        "for all clients and the server where weights are averaged, got python:large, python:small",
    ),
    "an optimizer of something else": (
        {"optimizer": lambda weights, lr: "SGD"},
        TypeError,
        "optimizer must make a torch.optim.Optimizer, got str",
    ),
    "a model that is one for all": (
        {"sites": site(model=lambda: ONE)},
        ValueError,
        "model of site 'south' (python:lambda) must be a new one at each call, got the same twice",
    ),
    "a lazy model": ({"sites": site(model=lambda: nn.LazyLinear(3))}, ValueError, "has lazy layers"),
    "a scale that raises": (
        {"scale": lambda batch: batch @ batch},
        ValueError,
        "scale cannot take a batch of shape [4, 5]: RuntimeError: mat1",
    ),
    "a scale of nothing": ({"scale": lambda batch: None}, ValueError, "scale must give a tensor with as many samples"),
    "an augment that raises": (
        {"augment": lambda batch: batch @ batch},
        ValueError,
        "augment cannot take a batch of shape [4, 5]: RuntimeError: mat1",
    ),
    "an augment of fewer samples": ({"augment": lambda batch: batch[:2]}, ValueError, "as it takes, 4, got [2, 5]"),
    "an augment for images": (
        {"augment": scarlet.Augment(padding=2)},
        ValueError,
        "augment crops and flips images [C, H, W], and the inputs have shape [5]",
    ),
    "an optimizer of one argument": ({"optimizer": lambda weights: None}, ValueError, "optimizer cannot take a step"),
    "an optimizer that needs a closure": ({"optimizer": torch.optim.LBFGS}, ValueError, "optimizer cannot take a step"),
    "a schedule that needs a loss": (
        {"schedule": torch.optim.lr_scheduler.ReduceLROnPlateau},
        ValueError,
        "schedule cannot take a step: TypeError",
    ),
    "momentum beside an optimizer": (
        {"optimizer": torch.optim.Adam, "config": replace(ROWS, momentum=0.9)},
        ValueError,
        "momentum and weight_decay are options of SGD, and an optimizer is given",
    ),
    "bytes beside floats": ({"public": (PUBLIC * 10).astype(np.uint8)}, ValueError, "public has inputs of uint8, and"),
    "classes that are no number": ({"classes": 2.5}, TypeError, "classes must be a whole number, got 2.5"),
    "one site and no list": (
        {"sites": SITES[0]},
        TypeError,
        "must be a list of scarlet.Site, got Site; use [site]",
    ),
    "a name of two lines": ({"sites": site(name="a\nb")}, ValueError, "names of printable characters, got 'a\\nb'"),
    "a sparse matrix": (
        {"sites": site(train=(sparse.csr_matrix(LABELLED[0]), LABELLED[1]))},
        TypeError,
        "inputs of train of site 'south' must be dense, got csr_matrix; use x.toarray()",
    ),
    "a folder that is not there": ({"sites": site(train="nowhere", test="nowhere")}, TypeError, "all in folders"),
    "batched with an optimizer": (
        {"optimizer": torch.optim.Adam, "config": replace(ROWS, engine="batched")},
        ValueError,
        "engine must not be batched with an optimizer of your own",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_is_one_line_before_any_training(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, kind, text = BAD[name]
    monkeypatch.setattr("scarlet.experiment.run.run_rounds", lambda *_: pytest.fail("nothing may be trained"))
    with pytest.raises(kind) as caught:
        run(**{"out": tmp_path / "out"} | given)
    assert isinstance(caught.value, scarlet.ScarletError)
    assert text in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "out" / "config.json").exists()


def test_images_from_0_to_1_are_not_padded_with_minus_1() -> None:
    images = np.random.default_rng(0).random((12, 1, 8, 8), np.float32)
    labels = np.arange(12) % 3
    config = replace(ROWS, model="cnn", rounds=1, public_per_round=4)

    def run_on(x: Any) -> None:
        sites = [scarlet.Site(train=(x, labels), test=(x, labels)) for _ in range(2)]
        scarlet.run(scarlet.ScarletConfig(), config, sites=sites, public=x, augment=scarlet.Augment(padding=2))

    with pytest.raises(ValueError, match=r"^augment pads images with -1, .*; give bytes, or scale images of 0 to 1 by"):
        run_on(images)
    run_on(2 * images - 1)
