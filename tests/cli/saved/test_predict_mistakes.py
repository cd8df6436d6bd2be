"""Whatever is wrong with a call of `scarlet predict` is one line, with a remedy."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import scarlet
from tests.cli.saved.files import OWN, at, complaint, saved_png
from tests.experiment.saved import IMAGES, ROWS, TOKENS, copied, inputs

pytestmark = pytest.mark.xdist_group("predict mistakes")


WORDS = "scarlet predict takes the directory of a run, then one FILE or more, then options; got "


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], WORDS + "neither"),
        (["RUN"], WORDS + "'RUN' only"),
        (["RUN", "--json"], WORDS + "'RUN' only"),
        (["absent", "a.png"], "RUN must be the directory of a run, and absent does not exist; check the path"),
        (["a.png", "a.png"], "RUN must be the directory of a run, and a.png is a file; check the path"),
        (["empty", "a.png"], "empty is not the directory of a run: it has no server.json; check the path"),
        (
            ["empty", "a.png", "--client", "0"],
            "client '0' has no model in empty; " + ("run with --save-clients to keep those of clients"),
        ),
        (["RUN", "a.png", "--client", "9"], "client '9' is not among the 3 clients in RUN; use its number or its name"),
        (["RUN", "a.png", "b.png"], "FILE must be an image or an npz file, and b.png does not exist; check the path"),
        (["RUN", "empty"], "FILE must be an image or an npz file, and empty is a folder; name the files in it"),
        (
            ["RUN", "text.png"],
            "text.png cannot be read as an image (UnidentifiedImageError); replace or delete the file",
        ),
        (["RUN", "text.npz"], "text.npz cannot be read as an npz file (ValueError); write it with np.savez"),
        (["RUN", "array.npz"], "array.npz is one array, not an npz file; write it with np.savez, naming the arrays"),
        (["RUN", "other.npz"], "other.npz must have the arrays x; it has y, z, so add x"),
        (
            ["RUN", "objects.npz"],
            "objects.npz: x cannot be read (Object arrays cannot be loaded when allow_pickle=False); "
            "save an array of numbers with np.savez",
        ),
        (["RUN", "none.npz"], "none.npz: x must not be empty, got shape [0, 3, 16, 16]; leave the file out"),
        (
            ["RUN", "floats.npz"],
            "floats.npz: x must be uint8, as the model's inputs are, got float64; save x in that type",
        ),
        (["RUN", "words.npz"], "words.npz: x must be numbers, got <U1; turn them into numbers first"),
        (
            ["RUN", "one.npz"],
            "one.npz: x must have shape [n, 3, 16, 16], as the model's inputs have, got [3, 16, 16]; save it so",
        ),
        (
            ["ROWS", "a.png", "--client", "0"],
            "a.png must be an npz file with x: the model takes float32 inputs of shape [5], "
            "and how pixels became these is not known",
        ),
        (
            ["ROWS", "nan.npz", "--client", "0"],
            "nan.npz: x must be finite, got NaN or infinity; fill in or leave out what is missing",
        ),
        (["ROWS", "rows.npz"], "ROWS has no model on the server; use --client, one of the 3 that were saved"),
        (
            ["TOKENS", "a.png"],
            "model python:own_model of TOKENS/server.json was made by code of your own; "
            "give it as --factory MODULE:FUNCTION",
        ),
        (
            ["TOKENS", "a.png", "--factory", "own_model_wrong:make"],
            "a.png must be an npz file with x: the model takes int64 inputs of shape [6], which are not images",
        ),
        (
            ["TOKENS", "far.npz", "--factory", "own_model_wrong:make"],
            "model python:own_model cannot take these inputs: IndexError: index out of range in self",
        ),
        *(
            (
                ["TOKENS", "a.png", "--factory", text],
                f"--factory must be MODULE:FUNCTION, such as models:make, got {text!r}",
            )
            for text in ("models", "models:", ":make", "a b:make", "models:make()")
        ),
        (
            ["TOKENS", "a.png", "--factory", "no_such_module:make"],
            "--factory no_such_module:make cannot be imported from HERE "
            "(ModuleNotFoundError: No module named 'no_such_module'); check the module",
        ),
        (
            ["TOKENS", "a.png", "--factory", "own_model_exits:make"],
            "--factory own_model_exits:make cannot be imported from HERE (SystemExit: 3); check the module",
        ),
        (
            ["TOKENS", "a.png", "--factory", "own_model_wrong:absent"],
            "--factory own_model_wrong:absent must name a function, and module own_model_wrong has no such name; "
            "check the name",
        ),
        (
            ["TOKENS", "a.png", "--factory", "own_model_wrong:constant"],
            "--factory own_model_wrong:constant must name a function, and module own_model_wrong has constant of type "
            "int; check the name",
        ),
        (
            ["TOKENS", "a.png", "--factory", "own_model_wrong:raises"],
            "factory raises cannot make a model: RuntimeError: no model; it is called without arguments",
        ),
        (
            ["TOKENS", "a.png", "--factory", "own_model_wrong:number"],
            "factory number must return a torch.nn.Module, got int",
        ),
        (
            ["TOKENS", "a.png", "--factory", "own_model_wrong:other"],
            "TOKENS/server.safetensors is not the weights of python:own_model: weight has shape none, and in the model "
            "[2, 2]; copy it again from the run, or give the --factory that the run was made with",
        ),
        (
            ["RUN", "a.png", "--cleint", "0"],
            "unknown option '--cleint': did you mean '--client'? (see scarlet predict --help)",
        ),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str],
    said: str,
    run: scarlet.Result,
    rows: scarlet.Result,
    tokens: scarlet.Result,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = inputs(2, IMAGES, "uint8")[0]
    saved_png(x[0], "a.png")
    Path("text.png").write_text("no image")
    Path("text.npz").write_text("no npz")
    with Path("array.npz").open("wb") as file:
        np.save(file, x)
    np.savez("other.npz", y=x, z=x)
    np.savez("objects.npz", x=np.array([{}], dtype=object))
    np.savez("none.npz", x=x[:0])
    np.savez("floats.npz", x=x.astype(np.float64))
    np.savez("words.npz", x=np.array([["a"]]))
    np.savez("one.npz", x=x[0])
    np.savez("rows.npz", x=np.zeros((1, *ROWS)))
    np.savez("nan.npz", x=np.full((1, *ROWS), np.nan))
    np.savez("far.npz", x=np.full((1, *TOKENS), 1000))
    Path("empty").mkdir()
    Path("own_model_wrong.py").write_text(OWN.format(body=""))
    Path("own_model_exits.py").write_text(OWN.format(body="raise SystemExit(3)"))
    for module in ("own_model_wrong", "own_model_exits"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    places = {"RUN": at(run), "ROWS": at(rows), "TOKENS": at(tokens)}
    told = complaint(capsys, "predict", *(places.get(word, word) for word in arguments))
    for name, place in (*places.items(), ("HERE", str(Path.cwd()))):
        told = told.replace(place, name)
    assert told == said


def test_a_run_that_lacks_a_model_says_why(
    run: scarlet.Result, rows: scarlet.Result, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.directory is not None and rows.directory is not None
    saved_png(inputs(1, IMAGES, "uint8")[0][0], "a.png")
    copied(run.directory, Path("killed"), "config.json")
    copied(run.directory, Path("both/scarlet-0"), "config.json")
    copied(run.directory, Path("old"), "config.json", "server.safetensors", "summary.json")
    copied(rows.directory, Path("unsaved"), "config.json", "summary.json")
    for name, said in {
        "killed": "killed is not finished; run 'scarlet resume killed' first",
        "both": "both is a comparison; give one of its 1 runs, such as both/scarlet-0",
        "old": "old has server.safetensors without its card, server.json; copy both, or run again",
        "unsaved": "unsaved has no model on the server; run again with --save-clients, then use --client",
    }.items():
        assert complaint(capsys, "predict", name, "a.png") == said


def test_damaged_weights_are_one_line(run: scarlet.Result, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.directory is not None
    saved_png(inputs(1, IMAGES, "uint8")[0][0], "a.png")
    again = "copy it again from the run"
    weights = copied(run.directory, Path("copy")) / "server.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    told = complaint(capsys, "predict", "copy", "a.png")
    assert told.startswith("copy/server.safetensors is damaged (SafetensorError: ") and told.endswith(f"); {again}")
    weights.unlink()
    missing = f"cannot read copy/server.safetensors (No such file or directory); {again}"
    assert complaint(capsys, "predict", "copy", "a.png") == missing
    shutil.copy(run.directory / "server.safetensors", weights)
    copied(run.directory, Path("copy"), "server.json", architecture="cnn")
    assert complaint(capsys, "predict", "copy", "a.png") == (
        "copy/server.safetensors is not the weights of cnn: 0.weight has shape [32, 3, 3, 3], and in the model "
        "[16, 3, 5, 5]; copy it again from the run, or give the --factory that the run was made with"
    )
    card = json.loads(Path("copy/server.json").read_text())
    Path("copy/server.json").write_text(json.dumps(card)[:-5])
    assert complaint(capsys, "predict", "copy", "a.png") == f"copy/server.json is not JSON; {again}"
