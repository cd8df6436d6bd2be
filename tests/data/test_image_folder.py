from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from scarlet.data.datasets import PrivateSet, SplitSet, load_private, load_public, public_images
from scarlet.data.image_folder import held_out
from scarlet.data.samples import Labelled
from scarlet.data.source import chosen
from scarlet.errors import ConfigError, DataError, ScarletError

NOWHERE = Path("nowhere")


def write(folder: Path, images: int, shade: int = 0, mode: str = "RGB", size: tuple[int, int] = (6, 4)) -> None:
    """Some images of one even shade each; the n-th has the shade `shade` + n."""
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(images):
        Image.new(mode, size, shade + i if mode in ("1", "L", "I;16") else (shade + i,) * len(mode)).save(
            folder / f"{i:03d}.png"
        )


def private(path: Path, image_size: int | None = None) -> PrivateSet:
    loaded = load_private(f"folder:{path}", NOWHERE, image_size)
    assert isinstance(loaded, PrivateSet)
    return loaded


def split(path: Path) -> SplitSet:
    loaded = load_private(f"folder:{path}", NOWHERE)
    assert isinstance(loaded, SplitSet)
    return loaded


def content(part: Labelled) -> list[tuple[int, int]]:
    """The label and the shade of each image, in order."""
    assert part.labels.dtype == np.int64 and part.inputs.dtype == np.uint8
    return [(int(label), int(image.max())) for image, label in zip(part.inputs, part.labels, strict=True)]


def message_of(load: Callable[[], object], kind: type[ScarletError] = ConfigError) -> str:
    """The text of the error that `load` must raise, checked to be one line."""
    with pytest.raises(kind) as caught:
        load()
    text = str(caught.value)
    assert "\n" not in text and ";" in text, "one line, with a remedy after the semicolon"
    return text


@given(st.lists(st.integers(1, 60), min_size=1, max_size=8))
def test_held_out_images_are_a_fifth_of_each_class_one_at_least_and_the_same_on_every_call(sizes: list[int]) -> None:
    found = held_out(sizes)
    for size, index in zip(sizes, found, strict=True):
        assert len(index) == (0 if size == 1 else max(1, size // 5))
        assert len(set(index.tolist())) == len(index) and all(0 <= i < size for i in index)
    assert [each.tolist() for each in held_out(sizes)] == [each.tolist() for each in found]
    assert [each.tolist() for each in held_out([*sizes, 9])[:-1]] == [each.tolist() for each in found]


def test_held_out_images_never_change() -> None:
    assert [each.tolist() for each in held_out([10, 10, 3])] == [[1, 8], [6, 7], [2]]


def test_class_folders_are_split_into_disjoint_parts_that_are_all_images(tmp_path: Path) -> None:
    write(tmp_path / "dog", 10, shade=100)
    write(tmp_path / "cat", 7, shade=50)
    write(tmp_path / "emu", 1, shade=200)
    found = private(tmp_path)
    assert (found.classes, found.class_names) == (3, ("cat", "dog", "emu"))
    everything = [(0, 50 + i) for i in range(7)] + [(1, 100 + i) for i in range(10)] + [(2, 200)]
    assert sorted(content(found.train) + content(found.test)) == everything
    assert np.bincount(found.test.labels, minlength=3).tolist() == [1, 2, 0]
    cats, dogs, _ = held_out([7, 10, 1])
    assert content(found.test) == [(0, 50 + i) for i in cats] + [(1, 100 + i) for i in dogs]
    assert found.train.inputs.shape == (15, 3, 4, 6), "channels, height, width"


def test_train_and_test_folders_are_taken_as_they_are(tmp_path: Path) -> None:
    write(tmp_path / "train" / "a", 2, shade=10)
    write(tmp_path / "train" / "c", 1, shade=30)
    write(tmp_path / "test" / "b", 1, shade=20)
    found = private(tmp_path)
    assert found.class_names == ("a", "b", "c")
    assert content(found.train) == [(0, 10), (0, 11), (2, 30)] and content(found.test) == [(1, 20)]


def test_a_folder_for_each_client_is_a_federation_that_is_split_already(tmp_path: Path) -> None:
    write(tmp_path / "south" / "cat", 5, shade=10)
    write(tmp_path / "south" / "owl", 1, shade=20)
    write(tmp_path / "north" / "train" / "dog", 2, shade=30)
    write(tmp_path / "north" / "test" / "cat", 1, shade=40)
    write(tmp_path / "east" / "train" / "cat", 1, shade=50)
    write(tmp_path / "west" / "owl", 1, shade=60)
    found = split(tmp_path)
    assert (found.classes, found.class_names) == (3, ("cat", "dog", "owl"))
    assert [site.name for site in found.sites] == ["east", "north", "south", "west"]
    east, north, south, west = found.sites
    assert content(east.train) == [(0, 50)] and east.test is None, "it has no folder test"
    assert content(north.train) == [(1, 30), (1, 31)] and content(north.test) == [(0, 40)]
    assert content(south.test) == [(0, 10 + held_out([5, 1])[0][0])] and len(south.train.labels) == 5
    assert content(west.train) == [(2, 60)] and west.test is None, "one image is not split"


def test_a_client_holds_out_the_same_images_whatever_other_clients_have(tmp_path: Path) -> None:
    for root in ("alone", "among"):
        write(tmp_path / root / "b" / "x", 12)
        write(tmp_path / root / "b" / "y", 12, shade=100)
    write(tmp_path / "among" / "a" / "x", 7)
    alone, among = split(tmp_path / "alone"), split(tmp_path / "among")
    assert content(alone.sites[0].test) == content(among.sites[1].test)


def test_hidden_files_and_files_that_are_no_images_are_ignored(tmp_path: Path) -> None:
    write(tmp_path / "a", 2)
    write(tmp_path / "b", 2)
    write(tmp_path / ".cache", 2)
    (tmp_path / "a" / "._000.png").write_text("hidden")
    (tmp_path / "a" / "notes.txt").write_text("stray")
    (tmp_path / "README").write_text("stray")
    assert private(tmp_path).class_names == ("a", "b") and public_images(f"folder:{tmp_path}", NOWHERE) == 4


@pytest.mark.parametrize("suffix", ["png", "JPG", "jpeg", "bmp", "gif", "webp", "tif", "TIFF", "ppm", "pgm"])
def test_the_usual_formats_are_read(suffix: str, tmp_path: Path) -> None:
    Image.new("L", (5, 5), 80).save(tmp_path / f"one.{suffix}")
    found = load_public(f"folder:{tmp_path}", NOWHERE, (1, 5, 5))
    assert found.shape == (1, 1, 5, 5) and abs(int(found.mean()) - 80) <= 1


def test_images_are_grey_only_if_all_are(tmp_path: Path) -> None:
    for name, mode, shade in (("a", "L", 1), ("b", "1", 1), ("c", "LA", 1), ("d", "I;16", 40_000)):
        write(tmp_path / name, 2, shade=shade, mode=mode)
    assert private(tmp_path).train.inputs.shape == (4, 1, 4, 6)
    write(tmp_path / "e", 2)
    assert private(tmp_path).train.inputs.shape == (5, 3, 4, 6)


def test_sixteen_bit_greys_keep_their_upper_bits(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 255, 256, 40_000, 65_535]], np.uint16)).save(tmp_path / "deep.png")
    assert load_public(f"folder:{tmp_path}", NOWHERE, (1, 1, 5)).flatten().tolist() == [0, 0, 1, 156, 255]


@pytest.mark.parametrize("largest", [200, 4095])
def test_fewer_bits_in_a_file_of_sixteen_are_refused_because_they_would_be_black(largest: int, tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 7, largest]], np.uint16)).save(tmp_path / "scan.png")
    with pytest.raises(DataError, match=rf"scan.png has 16-bit pixels of which the largest is {largest}, .* an npz$"):
        load_public(f"folder:{tmp_path}", NOWHERE, (1, 1, 3))


def test_pixels_that_are_no_whole_numbers_are_refused(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0.1, 0.9]], np.float32)).save(tmp_path / "real.tiff")
    with pytest.raises(DataError, match=r"real\.tiff has pixels that are no whole numbers"):
        load_public(f"folder:{tmp_path}", NOWHERE, (1, 1, 2))


def test_what_is_transparent_is_white(tmp_path: Path) -> None:
    ink = np.zeros((1, 3, 4), np.uint8)
    ink[0, :, 3] = (255, 0, 255)
    Image.fromarray(ink).save(tmp_path / "ink.png")
    assert load_public(f"folder:{tmp_path}", NOWHERE, (1, 1, 3)).flatten().tolist() == [0, 255, 0]


def test_an_image_is_turned_as_the_camera_was_held(tmp_path: Path) -> None:
    pixels = np.repeat(np.array([[0, 80], [160, 240], [40, 120]], np.uint8), 8, axis=0).repeat(8, axis=1)  # 24 x 16
    for part in ("a", "b"):
        (tmp_path / part).mkdir()
        for i in range(2):
            image = Image.fromarray(pixels)
            exif = image.getexif()
            exif[0x0112] = 6  # to be turned to the right by 90 degrees
            image.save(tmp_path / part / f"{i}.png", exif=exif)
    found = private(tmp_path).train.inputs
    assert found.shape[1:] == (1, 16, 24)
    assert np.array_equal(found[0, 0], np.rot90(pixels, -1))


def test_sizes_that_differ_name_two_files_and_image_size_mends_it(tmp_path: Path) -> None:
    write(tmp_path / "a", 2)
    write(tmp_path / "b", 2, shade=90, size=(8, 8))
    text = message_of(lambda: private(tmp_path))
    assert "000.png has 6 x 4 pixels and " in text and " 8 x 8; " in text and "--image-size" in text
    assert private(tmp_path, image_size=5).train.inputs.shape == (2, 3, 5, 5)


def test_image_size_resizes_bilinearly_with_antialiasing(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    for name in ("train/a", "test/b"):
        (tmp_path / name).mkdir(parents=True)
        Image.fromarray(pixels).save(tmp_path / name / "x.png")
    expected = np.asarray(Image.fromarray(pixels).resize((8, 8), Image.Resampling.BILINEAR))
    assert np.array_equal(private(tmp_path, image_size=8).train.inputs[0].transpose(1, 2, 0), expected)


def test_public_images_are_all_below_in_the_order_of_their_paths_and_resized(tmp_path: Path) -> None:
    write(tmp_path / "b" / "deep" / "er", 2, shade=30)
    write(tmp_path / "a", 1, shade=10, mode="L", size=(9, 9))
    write(tmp_path, 2, shade=20)
    shades = [20, 21, 10, 30, 31]
    found = load_public(f"folder:{tmp_path}", NOWHERE, (3, 4, 4))
    assert found.shape == (5, 3, 4, 4) and found.mean((1, 2, 3)).tolist() == shades
    some = load_public(f"folder:{tmp_path}", NOWHERE, (3, 4, 4), size=2)
    assert np.array_equal(some, found[chosen(5, 2)])


def empty(path: Path) -> None:
    (path / "inner").mkdir(parents=True)


def one_class(path: Path) -> None:
    write(path / "a", 3)


def class_without_images(path: Path) -> None:
    write(path / "a", 3)
    (path / "b").mkdir()


def images_beside_classes(path: Path) -> None:
    write(path / "a", 3)
    write(path, 1)


def folder_beside_images(path: Path) -> None:
    write(path / "a", 3)
    write(path / "a" / "more", 1)


def only_images(path: Path) -> None:
    write(path, 2)


def images_in_train(path: Path) -> None:
    write(path / "train", 2)
    write(path / "test", 2)


def nothing_to_test(path: Path) -> None:
    write(path / "train" / "a", 2)
    write(path / "train" / "b", 2)


def three_parts(path: Path) -> None:
    for part in ("train", "test", "val"):
        write(path / part / "a", 2)


def only_tests(path: Path) -> None:
    write(path / "test" / "a", 2)


def too_deep(path: Path) -> None:
    write(path / "client" / "inner" / "class" / "more", 2)


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (empty, "inner must hold class folders, and holds neither folders nor images"),
        (one_class, "must have 2 classes or more, got only 'a'"),
        (class_without_images, "b holds no images; add images"),
        (images_beside_classes, "must hold images or folders, got both: the image 000.png and the folder a"),
        (folder_beside_images, "a must hold images or folders, got both: the image 000.png and the folder more"),
        (only_images, "must hold class folders, and holds the image 000.png"),
        (images_in_train, "train must hold class folders, and holds the image 000.png"),
        (nothing_to_test, "has nothing to test on"),
        (three_parts, "must hold train and test, or train alone, got test, train, val"),
        (only_tests, "must hold train and test, or train alone, got test"),
        (too_deep, "client has no images where they are expected"),
    ],
)
def test_a_folder_that_is_not_of_a_known_layout_says_why(
    make: Callable[[Path], None], wrong: str, tmp_path: Path
) -> None:
    make(tmp_path / "data")
    text = message_of(lambda: private(tmp_path / "data"))
    assert text.startswith((str(tmp_path), f"the class folder {tmp_path}")) and wrong in text


def test_a_folder_that_is_missing_or_empty_or_a_file_is_named(tmp_path: Path) -> None:
    for load in (load_private, public_images):
        text = message_of(lambda load=load: load(f"folder:{tmp_path / 'no'}", NOWHERE))
        assert text.startswith(f"folder:{tmp_path / 'no'} does not exist")
    assert "holds no images" in message_of(lambda: load_public(f"folder:{tmp_path}", NOWHERE, (3, 4, 4)))
    (tmp_path / "file").touch()
    assert "cannot be listed" in message_of(lambda: private(tmp_path / "file"), DataError)


def test_an_image_that_cannot_be_decoded_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a", 2)
    write(tmp_path / "b", 2)
    (tmp_path / "b" / "000.png").write_bytes(b"no image")
    assert "000.png cannot be read as an image" in message_of(lambda: private(tmp_path), DataError)
