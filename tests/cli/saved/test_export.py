from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from torch import Tensor, nn

import scarlet
from scarlet.arrays import Inputs
from tests.cli.saved.files import OWN, complaint, own_model
from tests.cli.test_bad_input import tree
from tests.cli.test_commands import call
from tests.experiment.saved import CLASSES, IMAGES, ROWS, TOKENS, expected, inputs, tiny_run

pytestmark = pytest.mark.xdist_group("export")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> scarlet.Result:
    return tiny_run(tmp_path_factory.mktemp("export") / "run", "mlp")


def export(run: scarlet.Result, *arguments: str) -> onnxruntime.InferenceSession:
    """Export a model, which writes one file and nothing else; the file, ready to run."""
    assert run.directory is not None
    before, run_before = tree(Path.cwd()), tree(run.directory)
    called = call("export", str(run.directory), "--onnx", "model.onnx", *arguments)
    assert (called.code, called.out) == (0, "onnx: model.onnx\n")
    after = {name for name in tree(Path.cwd()) if "__pycache__" not in name}
    assert after == {*before, "model.onnx"} and tree(run.directory) == run_before
    return onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])


def check(session: onnxruntime.InferenceSession, model: nn.Module, x: Inputs) -> None:
    """The same probabilities as torch's, in batches of sizes that the export did not see."""
    own = expected(model, x)
    assert own.std(axis=0).max() > 1e-2, "or the model does not tell inputs apart"
    for part in (x[:1], x[:7], x):
        (found,) = session.run(None, {"x": part})
        assert found.dtype == np.float32 and found.shape == (len(part), CLASSES)
        np.testing.assert_allclose(found, own[: len(part)], rtol=0, atol=1e-4)


@pytest.mark.parametrize("model", ["cnn", "cnn32", "mlp"])
def test_an_exported_model_has_the_probabilities_of_torch_for_any_batch(model: str, tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", model, method=scarlet.FedavgConfig())
    session = export(run)
    (given,), (out,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.type, given.shape) == ("x", "tensor(uint8)", ["n", *IMAGES])
    assert (out.name, out.type, out.shape) == ("probabilities", "tensor(float)", ["n", CLASSES])
    check(session, run.server_model, inputs(100, IMAGES, "uint8", 99)[0])


def test_a_client_s_model_is_exported_with_its_card_and_without_paths_of_this_machine(run: scarlet.Result) -> None:
    session = export(run, "--client", "north")
    check(session, run.client_model("north"), inputs(100, IMAGES, "uint8", 99)[0])
    content = onnx.load("model.onnx")
    onnx.checker.check_model(content)
    assert run.directory is not None
    card = json.loads((run.directory / "clients" / "2.json").read_text())
    assert {each.key: json.loads(each.value) for each in content.metadata_props} == {"scarlet.card": card}
    assert b"onnx_export" not in Path("model.onnx").read_bytes()


def writes_to_its_input() -> nn.Module:
    return nn.Sequential(nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(ROWS[0], CLASSES))


@pytest.mark.parametrize(
    ("make", "shape", "dtype"), [(writes_to_its_input, ROWS, "float32"), (own_model, TOKENS, "int64")]
)
def test_models_of_the_user_s_own_for_rows_and_tokens(
    make: Any, shape: tuple[int, ...], dtype: str, tmp_path: Path
) -> None:
    body = (
        "def writes_to_its_input():\n    return nn.Sequential(nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(5, 3))"
    )
    Path(f"own_{dtype}.py").write_text(OWN.format(body=body))
    run = tiny_run(tmp_path / "run", make, shape, dtype, method=scarlet.FedavgConfig())
    session = export(run, "--factory", f"own_{dtype}:{'make' if make is own_model else 'writes_to_its_input'}")
    assert session.get_inputs()[0].type == {"float32": "tensor(float)", "int64": "tensor(int64)"}[dtype]
    check(session, run.server_model, inputs(100, shape, dtype, 99)[0])


class Branches(nn.Module):
    """What it computes depends on the values of a batch, which no ONNX graph can say."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(ROWS[0], CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.layer(x)
        return scores if x.sum() > 0 else -scores


def test_a_model_that_cannot_be_exported_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tiny_run(tmp_path / "run", Branches, ROWS, "float32")
    Path("own_branches.py").write_text("from tests.cli.saved.test_export import Branches as make")
    told = complaint(capfd, "export", "run", "--onnx", "a.onnx", "--factory", "own_branches:make")
    assert told.startswith("model python:Branches cannot be exported to ONNX (GuardOnDataDependentSymNode: ")
    assert told.endswith("); use scarlet predict, or change the model") and len(told) < 400


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "scarlet export takes the one directory of a run before the options, got 0"),
        (
            ["RUN", "RUN", "--onnx", "a.onnx"],
            "scarlet export takes the one directory of a run before the options, got 2",
        ),
        (["RUN"], "--onnx must be given, the file to write, such as --onnx model.onnx"),
        (["RUN", "--onnx"], "--onnx takes a value, got none; see scarlet export --help"),
        (["RUN", "--onnx", "there"], "--onnx must be a new file, and there is there already; choose another name"),
        (
            ["RUN", "--onnx", "no/a.onnx"],
            "--onnx must be in a directory that exists, and no does not; make it first",
        ),
        (
            ["absent", "--onnx", "a.onnx"],
            "RUN must be the directory of a run, and absent does not exist; check the path",
        ),
        (
            ["RUN", "--onnx", "a.onnx", "--client", "x"],
            "client 'x' is not among the 3 clients in RUN; use its number or its name",
        ),
        (
            ["RUN", "--onnx", "a.onnx", "--factory", "make"],
            "--factory must be MODULE:FUNCTION, such as models:make, got 'make'",
        ),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], said: str, run: scarlet.Result, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("there").write_text("kept")
    told = complaint(capsys, "export", *(str(run.directory) if word == "RUN" else word for word in arguments))
    assert told.replace(str(run.directory), "RUN") == said


@pytest.mark.parametrize(
    ("absent", "named"),
    [(["onnx"], "onnx"), (["onnxscript"], "onnxscript"), (["onnx", "onnxscript"], "onnx and onnxscript")],
)
def test_without_onnx_the_remedy_is_named(
    absent: list[str],
    named: str,
    run: scarlet.Result,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in absent:
        monkeypatch.setitem(sys.modules, name, None)
    told = complaint(capsys, "export", str(run.directory), "--onnx", "a.onnx")
    assert told == f"--onnx needs {named}, not installed; run pip install 'scarlet-fl[onnx]'"


def test_an_export_says_nothing_of_the_exporter(run: scarlet.Result, capfd: pytest.CaptureFixture[str]) -> None:
    export(run)
    assert capfd.readouterr().err == ""
