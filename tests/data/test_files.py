from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from scarlet.data.datasets import load_private, load_public
from scarlet.errors import DataError
from tests.data.make_layouts import (
    shade,
    write_batch,
    write_caltech256,
    write_cifar10,
    write_cifar100,
    write_jpeg,
    write_tiny_imagenet,
)


def message_of(load: Callable[[], object]) -> str:
    """The text of the DataError that `load` must raise, checked to be one line."""
    with pytest.raises(DataError) as caught:
        load()
    text = str(caught.value)
    assert "\n" not in text and ";" in text, "one line, with a remedy after the semicolon"
    return text


@pytest.mark.parametrize("protocol", [0, 2, 3, 4, 5])
def test_cifar10_reads_pickles_old_and_new(protocol: int, tmp_path: Path) -> None:
    write_cifar10(tmp_path, per_batch=20, batches=(1, 2, 3, 4, 5), protocol=protocol)
    cifar = load_private("cifar10", tmp_path)
    assert cifar.train.inputs.shape == (100, 3, 32, 32) and cifar.train.inputs.dtype == np.uint8
    assert cifar.train.labels.tolist() == [*range(10)] * 10 and cifar.train.labels.dtype == np.int64
    assert cifar.classes == 10 and len(cifar.test.inputs) == 20
    assert cifar.test.inputs.flags.writeable
    expected = np.random.default_rng([20, 10, len("test_batch")]).integers(0, 256, (20, 3072), np.uint8)
    assert np.array_equal(cifar.test.inputs.reshape(20, 3072), expected)


def test_cifar10_is_usable_with_one_training_batch(tmp_path: Path) -> None:
    write_cifar10(tmp_path, per_batch=10, batches=(3,))
    assert len(load_private("cifar10", tmp_path).train.labels) == 10


def test_cifar10_without_any_training_batch_says_so(tmp_path: Path) -> None:
    write_cifar10(tmp_path, batches=())
    assert "no training batch" in message_of(lambda: load_private("cifar10", tmp_path))


def test_cifar10_without_its_test_batch_can_still_be_public(tmp_path: Path) -> None:
    (write_cifar10(tmp_path) / "test_batch").unlink()
    assert "test_batch is missing" in message_of(lambda: load_private("cifar10", tmp_path))
    assert load_public("cifar10", tmp_path, (3, 32, 32)).shape == (40, 3, 32, 32)


def test_cifar100_has_100_classes_however_few_are_there(tmp_path: Path) -> None:
    write_cifar100(tmp_path, train=30, test=10)
    assert load_private("cifar100", tmp_path).classes == 100


def test_public_images_are_brought_to_the_private_shape(tmp_path: Path) -> None:
    write_cifar100(tmp_path)
    assert load_public("cifar100", tmp_path, (1, 28, 28)).shape == (200, 1, 28, 28)
    assert load_public("cifar100", tmp_path, (3, 64, 64), size=5).shape == (5, 3, 64, 64)


def test_resizing_is_bilinear_with_antialiasing(tmp_path: Path) -> None:
    write_cifar100(tmp_path)
    original = load_private("cifar100", tmp_path).train.inputs[0]
    expected = Image.fromarray(original.transpose(1, 2, 0)).resize((16, 16), Image.Resampling.BILINEAR)
    ours = load_public("cifar100", tmp_path, (3, 16, 16))[0]
    assert np.array_equal(ours.transpose(1, 2, 0), np.asarray(expected))


def test_a_missing_set_names_the_command_and_the_folder(tmp_path: Path) -> None:
    text = message_of(lambda: load_private("cifar10", tmp_path))
    assert "scarlet data get cifar10" in text and "cifar-10-batches-py" in text and str(tmp_path) in text


class Trap:
    """An object whose unpickling would create a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.path}",)


def test_a_pickle_that_would_run_a_command_is_refused_and_does_nothing(tmp_path: Path) -> None:
    folder, canary = write_cifar10(tmp_path), tmp_path / "canary"
    (folder / "data_batch_1").write_bytes(pickle.dumps({b"data": Trap(canary), b"labels": [0]}))
    text = message_of(lambda: load_private("cifar10", tmp_path))
    assert "data_batch_1" in text and "system" in text
    assert not canary.exists()


@pytest.mark.parametrize(
    "reach",
    [b"cbuiltins\neval\n", b"cnumpy\nload\n", b"cnumpy.core.multiarray\nscalar\n", b"c_codecs\ndecode\n"],
)
def test_only_the_parts_of_an_array_may_be_unpickled(reach: bytes, tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path)
    (folder / "test_batch").write_bytes(b"\x80\x02" + reach + b".")
    assert "not part of an array" in message_of(lambda: load_private("cifar10", tmp_path))


def test_no_truncation_of_a_batch_goes_unnoticed(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path, per_batch=2, batches=(1,))
    whole = (folder / "data_batch_1").read_bytes()
    for length in [*range(200), len(whole) // 2, len(whole) - 1]:
        (folder / "data_batch_1").write_bytes(whole[:length])
        assert "data_batch_1 is damaged" in message_of(lambda: load_private("cifar10", tmp_path))


def test_flipped_bytes_give_an_error_or_a_set_that_keeps_the_rules(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path, per_batch=2, batches=(1,))
    whole = (folder / "data_batch_1").read_bytes()
    for position in [*range(180), *range(len(whole) - 40, len(whole))]:
        (folder / "data_batch_1").write_bytes(
            whole[:position] + bytes([whole[position] ^ 0x55]) + whole[position + 1 :]
        )
        try:
            cifar = load_private("cifar10", tmp_path)
        except DataError as error:
            assert "\n" not in str(error)
        else:
            assert cifar.train.inputs.shape == (2, 3, 32, 32) and cifar.train.labels.max() < 10


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        ([1, 2], "lacks the keys"),
        ({b"data": np.zeros((2, 3072), np.uint8)}, "lacks the keys"),
        ({b"data": np.zeros((2, 3071), np.uint8), b"labels": [0, 1]}, "3072 columns"),
        ({b"data": np.zeros((2, 3072), np.float32), b"labels": [0, 1]}, "array of 'f4', not of bytes"),
        ({b"data": np.zeros((0, 3072), np.uint8), b"labels": []}, "3072 columns"),
        ({b"data": b"text", b"labels": [0, 1]}, "3072 columns"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0]}, "2 whole numbers"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, [1]]}, "2 whole numbers"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 0.5]}, "2 whole numbers"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 10]}, "from 0 to 10, not from 0 to 9"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [-1, 3]}, "from -1 to 3"),
    ],
)
def test_a_batch_of_the_wrong_content_says_what_is_wrong(content: object, wrong: str, tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path)
    (folder / "data_batch_2").write_bytes(pickle.dumps(content, protocol=3))
    text = message_of(lambda: load_private("cifar10", tmp_path))
    assert wrong in text and "data_batch_2" in text


def test_a_folder_in_the_place_of_a_batch_is_an_error(tmp_path: Path) -> None:
    (write_cifar10(tmp_path, batches=(1,)) / "data_batch_4").mkdir()
    assert "data_batch_4 is damaged" in message_of(lambda: load_private("cifar10", tmp_path))


@pytest.mark.parametrize("wnids", [True, False])
def test_tiny_imagenet_numbers_its_classes_by_sorted_wnid(wnids: bool, tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path, classes=4, train=5, test=8, wnids=wnids)
    tiny = load_private("tiny-imagenet", tmp_path)
    assert tiny.classes == 4
    assert tiny.train.inputs.shape == (20, 3, 64, 64) and tiny.test.inputs.shape == (8, 3, 64, 64)
    assert tiny.train.labels.tolist() == [0] * 5 + [1] * 5 + [2] * 5 + [3] * 5
    for images, labels in ((tiny.train.inputs, tiny.train.labels), (tiny.test.inputs, tiny.test.labels)):
        assert np.abs(images.mean((1, 2, 3)) - [shade(label, 4) for label in labels]).max() < 2


def test_a_class_of_wnids_without_training_images_keeps_its_number(tmp_path: Path) -> None:
    folder = write_tiny_imagenet(tmp_path, classes=2, train=1, test=2)
    (folder / "wnids.txt").write_text("n10000007\nn10000003\nn10000000\n")
    tiny = load_private("tiny-imagenet", tmp_path)
    assert tiny.classes == 3 and tiny.train.labels.tolist() == [0, 2]


def test_annotations_of_absent_images_are_ignored(tmp_path: Path) -> None:
    folder = write_tiny_imagenet(tmp_path)
    (folder / "val" / "images" / "val_3.JPEG").unlink()
    assert len(load_private("tiny-imagenet", tmp_path).test.labels) == 7


def test_grey_jpegs_become_rgb_and_any_size_is_resized(tmp_path: Path) -> None:
    folder = write_tiny_imagenet(tmp_path, classes=1, train=1, test=1)
    write_jpeg(folder / "train" / "n10000000" / "images" / "more.jpg", (99, 31), 77, mode="L")
    public = load_public("tiny-imagenet", tmp_path, (3, 32, 32))
    assert public.shape == (2, 3, 32, 32) and abs(int(public[0].mean()) - 77) < 2


def spoil_image(folder: Path) -> None:
    path = folder / "train" / "n10000000" / "images" / "n10000000_0.JPEG"
    path.write_bytes(path.read_bytes()[:300])


def empty_class(folder: Path) -> None:
    for path in (folder / "train" / "n10000000" / "images").iterdir():
        path.unlink()


def remove_all_classes(folder: Path) -> None:
    (folder / "train").rename(folder / "elsewhere")
    (folder / "train").mkdir()


def annotate_wrong_class(folder: Path) -> None:
    (folder / "val" / "val_annotations.txt").write_text("".join(f"val_{i}.JPEG\tn999\n" for i in range(8)))


@pytest.mark.parametrize(
    ("spoil", "wrong"),
    [
        (spoil_image, "n10000000_0.JPEG cannot be read as an image"),
        (empty_class, "has no JPEG images"),
        (remove_all_classes, "has no class folders"),
        (annotate_wrong_class, "unknown class 'n999'"),
        (
            lambda folder: (folder / "val" / "val_annotations.txt").write_text(""),
            "has no class for val_0.JPEG",
        ),
        (
            lambda folder: (folder / "val" / "val_annotations.txt").unlink(),
            "val_annotations.txt cannot be read",
        ),
        (lambda folder: (folder / "val").rename(folder / "test"), "val_annotations.txt cannot be read"),
        (lambda folder: (folder / "train").rename(folder / "trains"), "train cannot be listed"),
        (lambda folder: (folder / "wnids.txt").write_text("n1\n"), "is not a class of wnids.txt"),
        (lambda folder: (folder / "wnids.txt").write_text("\n"), "wnids.txt is empty"),
        (lambda folder: (folder / "wnids.txt").write_bytes(b"\xff\xfe"), "wnids.txt cannot be read"),
    ],
)
def test_a_damaged_tiny_imagenet_says_what_is_wrong(
    spoil: Callable[[Path], object], wrong: str, tmp_path: Path
) -> None:
    spoil(write_tiny_imagenet(tmp_path))
    assert wrong in message_of(lambda: load_private("tiny-imagenet", tmp_path))


def test_caltech_leaves_the_clutter_and_stray_files_out(tmp_path: Path) -> None:
    folder = write_caltech256(tmp_path, classes=3, images=4)
    (folder / "001.thing-1" / "RENAME2").write_text("stray")
    (folder / "001.thing-1" / "._001_0001.jpg").write_text("hidden")
    (folder / "notes").mkdir()
    images = load_public("caltech256", tmp_path, (3, 64, 64))
    assert images.shape == (12, 3, 64, 64)
    expected = np.repeat([shade(label, 4) for label in range(3)], 4)
    assert np.abs(images.mean((1, 2, 3)) - expected).max() < 2


@pytest.mark.parametrize("content", [b"", b"not a picture", b"\xff\xd8\xff\xe0" + bytes(50)])
def test_an_undecodable_caltech_image_is_named(content: bytes, tmp_path: Path) -> None:
    (write_caltech256(tmp_path) / "002.thing-2" / "002_0003.jpg").write_bytes(content)
    text = message_of(lambda: load_public("caltech256", tmp_path, (3, 64, 64)))
    assert "002_0003.jpg" in text and "delete" in text


def test_a_caltech_folder_without_classes_says_so(tmp_path: Path) -> None:
    (tmp_path / "256_ObjectCategories" / "clutter").mkdir(parents=True)
    assert "no class folder" in message_of(lambda: load_public("caltech256", tmp_path, (3, 64, 64)))


def test_labels_out_of_range_name_the_range(tmp_path: Path) -> None:
    folder = write_cifar100(tmp_path)
    write_batch(folder / "train", 150, classes=150, label_key=b"fine_labels")
    assert "from 0 to 149, not from 0 to 99" in message_of(lambda: load_private("cifar100", tmp_path))
