from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import scarlet
from tests.cli.saved.files import OWN, at, saved_png
from tests.cli.test_commands import call
from tests.experiment.saved import CLASSES, GREY, IMAGES, ROWS, TOKENS, copied, expected, inputs, tiny_run

pytestmark = pytest.mark.xdist_group("predict")


def predicted(*arguments: str) -> list[dict[str, Any]]:
    called = call("predict", *arguments, "--json")
    assert called.code == 0
    found: list[dict[str, Any]] = called.json
    return found


def probabilities(found: list[dict[str, Any]]) -> Any:
    return np.array([each["probabilities"] for each in found])


def test_images_and_rows_have_the_probabilities_of_the_run_s_own_model(run: scarlet.Result) -> None:
    x, _ = inputs(6, IMAGES, "uint8", 99)
    np.savez("rows.npz", x=x[2:])
    files = [saved_png(x[0], "a.png"), "rows.npz", saved_png(x[1], "b.png")]
    found = predicted(at(run), *files)
    own = expected(run.server_model, x[[0, 2, 3, 4, 5, 1]])
    assert [(each["file"], each["index"]) for each in found] == [
        ("a.png", None),
        *(("rows.npz", row) for row in range(4)),
        ("b.png", None),
    ]
    np.testing.assert_allclose(probabilities(found), own, atol=1e-6)
    assert [each["class"] for each in found] == own.argmax(axis=1).tolist()
    assert len({each["class"] for each in found}) == CLASSES, "or the test says little"
    assert [each["probability"] for each in found] == [max(each["probabilities"]) for each in found]
    assert {each["name"] for each in found} == {None}


def test_more_rows_than_one_forward_pass_takes(run: scarlet.Result) -> None:
    x, _ = inputs(230, IMAGES, "uint8", 99)
    np.savez("rows.npz", x=x)
    np.testing.assert_allclose(probabilities(predicted(at(run), "rows.npz")), expected(run.server_model, x), atol=1e-6)


def test_an_image_is_brought_to_the_model_s_size_and_channels(run: scarlet.Result) -> None:
    grey = Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 40), np.uint8))
    grey.save("grey.png")
    fitted = np.asarray(grey.convert("RGB").resize((16, 16), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    np.testing.assert_allclose(
        probabilities(predicted(at(run), "grey.png")), expected(run.server_model, fitted[np.newaxis]), atol=1e-6
    )


def test_an_image_for_a_model_of_grey_arrays_without_channels(tmp_path: Path) -> None:
    result = tiny_run(tmp_path / "run", "mlp", GREY)
    x, _ = inputs(1, GREY, "uint8", 99)
    Image.fromarray(x[0]).save("grey.png")
    np.testing.assert_allclose(probabilities(predicted("run", "grey.png")), expected(result.server_model, x), atol=1e-6)


def test_the_card_and_the_weights_suffice(run: scarlet.Result, tmp_path: Path) -> None:
    x, _ = inputs(2, IMAGES, "uint8", 99)
    np.savez("rows.npz", x=x)
    assert run.directory is not None
    copied(run.directory, tmp_path / "copy")
    assert len(list((tmp_path / "copy").iterdir())) == 2
    assert predicted("copy", "rows.npz") == predicted(at(run), "rows.npz")


@pytest.mark.parametrize(("client", "number"), [("1", 1), ("2", 0), ("north", 2)])
def test_a_client_s_model_by_number_or_name(client: str, number: int, run: scarlet.Result) -> None:
    x, _ = inputs(5, IMAGES, "uint8", 99)
    np.savez("rows.npz", x=x)
    found = predicted(at(run), "rows.npz", "--client", client)
    np.testing.assert_allclose(probabilities(found), expected(run.client_model(run.names[number]), x), atol=1e-6)


def test_a_run_without_a_server_model_predicts_with_that_of_a_client(rows: scarlet.Result) -> None:
    x, _ = inputs(5, ROWS, "float32", 99)
    np.savez("rows.npz", x=x.astype(np.float64))
    found = predicted(at(rows), "rows.npz", "--client=0")
    np.testing.assert_allclose(probabilities(found), expected(rows.client_model(0), x), atol=1e-6)


def test_a_model_of_the_user_s_own_is_made_by_a_function_in_the_current_directory(tokens: scarlet.Result) -> None:
    Path("own_model_here.py").write_text(OWN.format(body=""))
    x, _ = inputs(5, TOKENS, "int64", 99)
    np.savez("rows.npz", x=x.astype(np.int32))
    found = predicted(at(tokens), "rows.npz", "--factory", "own_model_here:make")
    np.testing.assert_allclose(probabilities(found), expected(tokens.server_model, x), atol=1e-6)


def test_the_table_names_files_rows_and_classes(run: scarlet.Result, tmp_path: Path) -> None:
    x, _ = inputs(2, IMAGES, "uint8", 99)
    np.savez("rows.npz", x=x)
    saved_png(x[0], "[red].png")
    own = expected(run.server_model, x)
    first, second = ("abc"[label] for label in own.argmax(axis=1))
    assert run.directory is not None
    copied(run.directory, tmp_path / "named", class_names=["[b]a", "[b]b", "[b]c"])
    shown = [[cell.strip() for cell in line.split("│")[1:-1]] for line in _table("named", "rows.npz", "[red].png")]
    assert shown == [
        ["rows.npz[0]", f"[b]{first}", f"{own[0].max():.3f}"],
        ["rows.npz[1]", f"[b]{second}", f"{own[1].max():.3f}"],
        ["[red].png", f"[b]{first}", f"{own[0].max():.3f}"],
    ]
    assert predicted("named", "rows.npz")[0]["name"] == f"[b]{first}"
    assert [line.split("│")[2].strip() for line in _table(at(run), "rows.npz")] == list(map(str, own.argmax(axis=1)))


def _table(*arguments: str) -> list[str]:
    called = call("predict", *arguments)
    assert called.code == 0
    return [line for line in called.out.splitlines() if line.startswith("│")]


def test_a_long_path_is_shown_whole(run: scarlet.Result) -> None:
    name = "".join(f"{part:03}" for part in range(60)) + ".png"
    saved_png(inputs(1, IMAGES, "uint8")[0][0], name)
    assert "".join(line.split("│")[1].strip() for line in _table(at(run), name)) == name
