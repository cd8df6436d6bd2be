from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scarlet.data.datasets import PrivateSet, load_private, load_public, public_images
from scarlet.data.samples import fingerprint
from scarlet.data.source import chosen
from scarlet.errors import ConfigError, ScarletError

NOWHERE = Path("nowhere")


def arrays(**changed: object) -> dict[str, np.ndarray]:
    """The arrays of a private file: 6 rows of 4 floats to train on, 3 to test on, classes 0 to 2."""
    rows = np.arange(36, dtype=np.float32).reshape(9, 4)
    whole = {"train_x": rows[:6], "train_y": np.arange(6) % 3, "test_x": rows[6:], "test_y": np.arange(3)}
    return {name: np.asarray(array) for name, array in (whole | changed).items() if array is not None}


def private(folder: Path, **changed: object) -> PrivateSet:
    np.savez(folder / "private.npz", **arrays(**changed))
    loaded = load_private(f"npz:{folder / 'private.npz'}", NOWHERE)
    assert isinstance(loaded, PrivateSet)
    return loaded


def public(folder: Path, shape: tuple[int, ...], size: int | None = None, **given: object) -> np.ndarray:
    np.savez(folder / "public.npz", **{name: np.asarray(array) for name, array in given.items()})
    return load_public(f"npz:{folder / 'public.npz'}", NOWHERE, shape, size)


def message_of(load: Callable[[], object]) -> str:
    """The text of the error that `load` must raise, checked to be one line."""
    with pytest.raises(ScarletError) as caught:
        load()
    text = str(caught.value)
    assert "\n" not in text and ";" in text, "one line, with a remedy after the semicolon"
    return text


def test_a_private_file_gives_both_splits_and_its_classes(tmp_path: Path) -> None:
    found, given = private(tmp_path), arrays()
    assert (found.name, found.classes, found.class_names) == (f"npz:{tmp_path / 'private.npz'}", 3, None)
    for part, labelled in (("train", found.train), ("test", found.test)):
        assert np.array_equal(labelled.inputs, given[f"{part}_x"]) and labelled.inputs.dtype == np.float32
        assert np.array_equal(labelled.labels, given[f"{part}_y"]) and labelled.labels.dtype == np.int64


def test_a_class_may_occur_in_the_test_split_only(tmp_path: Path) -> None:
    assert private(tmp_path, test_y=[0, 1, 7]).classes == 8


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        *(("uint8", "uint8"), ("float16", "float32"), ("float64", "float32"), (">f4", "float32"), ("bool", "float32")),
        *(("int8", "int64"), ("uint16", "int64"), (">i4", "int64"), ("uint64", "int64")),
    ],
)
def test_bytes_stay_bytes_floats_become_float32_and_other_numbers_int64(given: str, kept: str, tmp_path: Path) -> None:
    x = np.array([[0, 1, 1], [1, 0, 1]]).astype(given)
    found = public(tmp_path, (3,), x=x)
    assert found.dtype == np.dtype(kept) and np.array_equal(found, x)


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.integers(1, 6),
    st.sampled_from(["uint8", "float32", "int64"]),
)
@settings(deadline=None, max_examples=25)
def test_inputs_of_any_shape_come_back_as_they_are(
    tmp_path_factory: pytest.TempPathFactory, shape: list[int], samples: int, kind: str
) -> None:
    x = np.random.default_rng(0).integers(0, 200, (samples, *shape)).astype(kind)
    found = public(tmp_path_factory.mktemp("data"), tuple(shape), x=x)
    assert np.array_equal(found, x) and found.dtype == x.dtype


@pytest.mark.parametrize("kind", ["int8", "uint8", "int32", "uint64"])
def test_labels_may_be_of_any_integer_type(kind: str, tmp_path: Path) -> None:
    assert private(tmp_path, train_y=np.arange(6).astype(kind)).train.labels.tolist() == [0, 1, 2, 3, 4, 5]


def test_public_size_makes_the_choice_that_every_dataset_makes(tmp_path: Path) -> None:
    x = np.arange(40.0, dtype=np.float32).reshape(20, 2)
    assert np.array_equal(public(tmp_path, (2,), 7, x=x), x[chosen(20, 7)])
    assert public_images(f"npz:{tmp_path / 'public.npz'}", NOWHERE) == 20


NAN = np.array([[0, 1, 2, 3]] * 4 + [[0, np.nan, 2, 3], [np.inf, 1, 2, 3]])


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"test_y": None}, "must have the arrays train_x, train_y, test_x, test_y; it has train_x, train_y, test_x"),
        ({"train_y": np.arange(5)}, "train_x and train_y must have the same length, got 6 and 5"),
        ({"test_x": np.zeros((3, 5), np.float32)}, "float32 of shape [4] and float32 of shape [5]"),
        ({"test_x": np.zeros((3, 4), np.uint8)}, "float32 of shape [4] and uint8 of shape [4]"),
        ({"train_y": np.arange(6) / 2}, "train_y must be whole numbers, the class of each sample, got float64"),
        ({"train_y": np.arange(6) - 2}, "train_y must be 0 or more, got -2"),
        ({"test_y": np.eye(3, dtype=int)}, "test_y must be an array [n] of class numbers, got shape [3, 3]"),
        ({"train_x": NAN}, "train_x must be finite, got NaN or infinity"),
        (
            {"train_x": np.zeros((0, 4)), "train_y": np.zeros(0, int)},
            "train_x must not be empty, got shape [0, 4]",
        ),
        ({"train_x": np.zeros((6, 0))}, "train_x must not be empty, got shape [6, 0]"),
        ({"train_x": np.float32(1)}, "train_x must be an array [n, ...] of one input for each sample, got shape []"),
        ({"train_x": np.array(["a"] * 6)}, "train_x must be numbers, got <U1"),
        ({"train_x": np.zeros((6, 4), complex)}, "train_x must be numbers, got complex128"),
        ({"train_x": np.array([[1], [1, 2]] * 3, object)}, "train_x cannot be read (Object arrays cannot be loaded"),
        ({"train_y": [0] * 6, "test_y": [0] * 3}, "must have 2 classes or more, got the label 0 only"),
    ],
)
def test_a_private_file_that_breaks_a_rule_says_which(changed: dict[str, object], wrong: str, tmp_path: Path) -> None:
    text = message_of(lambda: private(tmp_path, **changed))
    assert text.startswith(str(tmp_path / "private.npz")) and wrong in text


def test_a_public_file_without_x_says_what_it_has(tmp_path: Path) -> None:
    assert "must have the arrays x; it has images, y, so add x" in message_of(
        lambda: public(tmp_path, (2,), images=[[1, 2]], y=[0])
    )


def test_a_public_file_of_another_shape_is_refused_and_images_can_be_packed_anew(tmp_path: Path) -> None:
    text = message_of(lambda: public(tmp_path, (4,), x=np.zeros((5, 3))))
    assert text.endswith("x must have the private inputs' shape [4], got [3]; save x in that shape")
    text = message_of(lambda: public(tmp_path, (3, 8, 8), x=np.zeros((5, 1, 6, 6), np.uint8)))
    assert "shape [3, 8, 8], got [1, 6, 6]" in text and "scarlet data pack npz:" in text and "--shape 3,8,8" in text


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04 no zip", b"\x80\x04N."])
def test_a_file_that_is_not_npz_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file.npz").write_bytes(content)
    for load in (load_private, public_images):
        text = message_of(lambda load=load: load(f"npz:{tmp_path}/file.npz", NOWHERE))
        assert "file.npz cannot be read as an npz file" in text


def test_a_single_array_is_not_an_npz_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3))
    assert "x.npy is one array" in message_of(lambda: public_images(f"npz:{tmp_path}/x.npy", NOWHERE))


def test_no_truncation_of_a_file_goes_unnoticed(tmp_path: Path) -> None:
    public(tmp_path, (3,), x=np.zeros((5, 3)))
    path = tmp_path / "public.npz"
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        assert "public.npz" in message_of(lambda: public_images(f"npz:{path}", NOWHERE))


def test_flipped_bytes_give_one_line_or_the_same_array(tmp_path: Path) -> None:
    x = np.arange(15.0, dtype=np.float32).reshape(5, 3)
    public(tmp_path, (3,), x=x)
    path = tmp_path / "public.npz"
    whole = path.read_bytes()
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x55]) + whole[position + 1 :])
        try:
            assert np.array_equal(load_public(f"npz:{path}", NOWHERE, (3,)), x)
        except ConfigError as error:
            assert "\n" not in str(error)


def test_a_missing_file_and_a_missing_path_are_named() -> None:
    assert "npz:no/file.npz does not exist" in message_of(lambda: load_private("npz:no/file.npz", NOWHERE))
    assert "npz: names no path" in message_of(lambda: load_private("npz:", NOWHERE))


def test_an_unknown_name_is_told_of_files_and_folders() -> None:
    with pytest.raises(ConfigError, match=r"unknown dataset 'nzp:x'.*folder:PATH.*npz:FILE"):
        load_private("nzp:x", NOWHERE)


@pytest.mark.parametrize("shape", [(13,), (28, 28), (4, 8, 8)])
def test_public_images_are_refused_where_the_private_inputs_are_none(shape: tuple[int, ...]) -> None:
    text = message_of(lambda: load_public("digits", NOWHERE, shape))
    assert text.startswith(f"public digits holds images, which cannot take the private inputs' shape {list(shape)}")


@pytest.mark.parametrize("name", ["mnist5k", "npz:private.npz"])
def test_image_size_is_for_folders(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert f"not for {name}; leave it out" in message_of(lambda: load_private(name, NOWHERE, image_size=8))


def test_a_manifest_of_another_content_or_none_that_can_be_read_is_refused(tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.uint8).reshape(2, 3)
    manifest = json.dumps({"blake2b": fingerprint(x)}).encode()
    as_bytes = np.frombuffer(manifest, np.uint8)
    assert np.array_equal(public(tmp_path, (3,), x=x, manifest=as_bytes), x)
    assert "x was changed after it was packed" in message_of(lambda: public(tmp_path, (3,), x=x + 1, manifest=as_bytes))
    for other in (b"{}", b"[]", b"\xff", b"1"):
        text = message_of(lambda other=other: public(tmp_path, (3,), x=x, manifest=np.frombuffer(other, np.uint8)))
        assert "manifest must be JSON with the key 'blake2b'" in text
