from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from scarlet.cli.main import main
from scarlet.data.datasets import load_public
from scarlet.data.pack import pack
from scarlet.data.samples import fingerprint
from scarlet.errors import ConfigError
from tests.data.make_layouts import write_caltech256

NOWHERE = Path("nowhere")


def message_of(call: Callable[[], object]) -> str:
    """The text of the ConfigError that `call` must raise, checked to be one line."""
    with pytest.raises(ConfigError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_packed_dataset_is_the_dataset_and_describes_itself(tmp_path: Path) -> None:
    out = tmp_path / "new" / "digits.npz"
    manifest = pack("digits", out, NOWHERE, licence="BSD-3-Clause", version="2")
    digits = load_public("digits", NOWHERE, (1, 28, 28))
    assert np.array_equal(load_public(f"npz:{out}", NOWHERE, (1, 28, 28)), digits)
    with np.load(out) as file:
        stored = json.loads(bytes(file["manifest"]))
    assert stored == json.loads(json.dumps(asdict(manifest)))
    assert stored == {
        "name": "digits",
        "version": "2",
        "licence": "BSD-3-Clause",
        "blake2b": fingerprint(digits),
        "dtype": "uint8",
        "shape": [1, 28, 28],
        "samples": 1797,
        "preprocessing": "all samples; not resized; models scale bytes to [-1, 1]",
    }


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.integers(1, 6),
    st.sampled_from(["uint8", "float64", "int32"]),
)
@settings(deadline=None, max_examples=25)
def test_pack_then_read_gives_the_same_arrays_and_the_same_bytes_every_time(
    tmp_path_factory: pytest.TempPathFactory, shape: list[int], samples: int, kind: str
) -> None:
    folder = tmp_path_factory.mktemp("data")
    np.savez(folder / "mine.npz", x=np.random.default_rng(0).integers(0, 99, (samples, *shape)).astype(kind))
    before = load_public(f"npz:{folder / 'mine.npz'}", NOWHERE, tuple(shape))
    manifests = [pack(f"npz:{folder / 'mine.npz'}", folder / out, NOWHERE) for out in ("a", "b")]
    after = load_public(f"npz:{folder / 'a'}", NOWHERE, tuple(shape))
    assert np.array_equal(before, after) and before.dtype == after.dtype
    assert manifests[0] == manifests[1] and manifests[0].blake2b == fingerprint(before)
    assert (folder / "a").read_bytes() == (folder / "b").read_bytes()


def test_no_date_gets_into_a_packed_file(tmp_path: Path) -> None:
    pack("digits", tmp_path / "a.npz", NOWHERE, size=3)
    with zipfile.ZipFile(tmp_path / "a.npz") as bundle:
        assert {member.date_time for member in bundle.infolist()} == {(1980, 1, 1, 0, 0, 0)}


@pytest.mark.parametrize("shape", [(3, 16, 16), (1, 20, 12)])
def test_a_shape_and_a_size_give_what_a_run_would_load(shape: tuple[int, ...], tmp_path: Path) -> None:
    manifest = pack("digits", tmp_path / "a.npz", NOWHERE, shape=shape, size=5)
    packed = load_public(f"npz:{tmp_path / 'a.npz'}", NOWHERE, shape)
    assert np.array_equal(packed, load_public("digits", NOWHERE, shape, size=5))
    assert manifest.preprocessing.startswith("a fixed choice of 5 samples; made grey or RGB, then resized bilinearly")


def test_images_of_many_sizes_need_a_shape(tmp_path: Path) -> None:
    write_caltech256(tmp_path)
    for name in ("caltech256", f"folder:{tmp_path}"):
        text = message_of(lambda name=name: pack(name, tmp_path / "a.npz", tmp_path))
        assert text.startswith(f"shape must be given for {name}, whose images differ in size")
    assert pack("caltech256", tmp_path / "a.npz", tmp_path, shape=(3, 8, 8)).shape == (3, 8, 8)


def test_a_folder_of_one_size_keeps_it_and_the_manifest_does_not_say_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (6, 4)).save(tmp_path / "photos" / "a.png")
    Image.new("L", (6, 4)).save(tmp_path / "photos" / "b.png")
    manifest = pack(f"folder:{tmp_path / 'photos'}", tmp_path / "a.npz", NOWHERE)
    assert (manifest.name, manifest.shape, manifest.samples) == ("photos", (3, 4, 6), 2)
    assert str(tmp_path).encode() not in (tmp_path / "a.npz").read_bytes()


def test_a_packed_file_that_was_changed_is_refused_and_so_is_packing_it_again(tmp_path: Path) -> None:
    pack("digits", tmp_path / "a.npz", NOWHERE, size=4)
    with np.load(tmp_path / "a.npz") as file:
        changed = dict(file)
    changed["x"][2, 0, 5, 5] ^= 1
    np.savez(tmp_path / "b.npz", **changed)
    for call in (
        lambda: load_public(f"npz:{tmp_path / 'b.npz'}", NOWHERE, (1, 28, 28)),
        lambda: pack(f"npz:{tmp_path / 'b.npz'}", tmp_path / "c.npz", NOWHERE),
    ):
        assert "b.npz: x was changed after it was packed" in message_of(call)
    assert not (tmp_path / "c.npz").exists()


def test_what_exists_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_text("mine")
    assert "out must be a new file" in message_of(lambda: pack("digits", tmp_path / "a.npz", NOWHERE))
    assert (tmp_path / "a.npz").read_text() == "mine"


def test_a_file_that_cannot_be_written_whole_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: object, **arrays: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        pack("digits", tmp_path / "a.npz", NOWHERE, size=3)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("shape", [(2, 8, 8), (8, 8), (3, 0, 8)])
def test_a_shape_that_no_image_has_is_refused(shape: tuple[int, ...], tmp_path: Path) -> None:
    text = message_of(lambda: pack("digits", tmp_path / "a.npz", NOWHERE, shape=shape))
    assert text.startswith(f"shape must be C,H,W with 1 or 3 channels, got {list(shape)}")


def test_rows_of_a_table_cannot_be_resized(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", x=np.zeros((3, 5)))
    text = message_of(lambda: pack(f"npz:{tmp_path / 'rows.npz'}", tmp_path / "a.npz", NOWHERE, shape=(1, 8, 8)))
    assert text.startswith("shape resizes images of bytes") and "float32 of shape [5]" in text


def test_the_command_prints_the_manifest_or_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a.npz"
    assert main(["data", "pack", "digits", "--out", str(out), "--public-size", "7", "--shape", "3,8,8"]) == 0
    assert capsys.readouterr().out.startswith(f"{out}: 7 samples, uint8 of 3 x 8 x 8, blake2b ")
    assert main(["data", "pack", f"npz:{out}", "--out", str(tmp_path / "b.npz"), "--json", "--licence", "CC0"]) == 0
    manifest = json.loads(capsys.readouterr().out)
    assert (manifest["name"], manifest["licence"], manifest["samples"]) == ("a.npz", "CC0", 7)


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["pack", "digits"], "out must be given"),
        (["pack"], "'pack' and one NAME"),
        (["list", "--shape", "3,8,8"], "--shape is for scarlet data pack"),
        (["pack", "digit", "--out", "x"], "did you mean 'digits'?"),
    ],
)
def test_a_mistake_in_the_command_is_one_line(words: list[str], wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", *words]) == 2
    err = capsys.readouterr().err
    assert wrong in err and err.count("\n") == 1
