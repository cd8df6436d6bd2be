"""The data of one site, numbered as the whole federation numbers its classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from scarlet.errors import ConfigError, ScarletError
from scarlet.flower.options import Place, read_options, with_prefix
from scarlet.flower.policy import Policy
from scarlet.flower.site_data import read_site, read_test
from scarlet.flower.template import new_app

NAMES = ("cat", "dog", "owl")


def pictures(folder: Path, **counts: int) -> Path:
    """Grey images of 8 x 8 pixels, so many of each class."""
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            Image.new("L", (8, 8), number).save(folder / name / f"{number}.png")
    return folder


def test_a_site_that_lacks_a_class_numbers_the_others_as_everybody_does(tmp_path: Path) -> None:
    site = read_site(f"folder:{pictures(tmp_path / 'a', dog=5, owl=10)}", NAMES)
    assert np.bincount(site.train.labels, minlength=3).tolist() == [0, 4, 8]
    assert np.bincount(site.test.labels, minlength=3).tolist() == [0, 1, 2]


def test_a_site_may_have_one_class_only_and_nothing_to_test_on(tmp_path: Path) -> None:
    pictures(tmp_path / "b" / "train", owl=3)
    site = read_site(f"folder:{tmp_path / 'b'}", NAMES)
    assert site.train.labels.tolist() == [2, 2, 2]
    assert site.test is None


def test_a_file_has_a_test_set_or_none(tmp_path: Path) -> None:
    x, y = np.zeros((4, 6), np.float32), np.array([0, 1, 2, 1])
    np.savez(tmp_path / "plain.npz", train_x=x, train_y=y)
    np.savez(tmp_path / "both.npz", train_x=x, train_y=y, test_x=x[:2], test_y=y[:2])
    assert read_site(f"npz:{tmp_path / 'plain.npz'}").test is None
    assert len(read_site(f"npz:{tmp_path / 'both.npz'}").test) == 2


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "c", cat=2, cow=2)
    (tmp_path / "damaged.npz").write_bytes(b"PK and no more")
    for data, names, message in (
        (f"npz:{tmp_path / 'none.npz'}", None, "does not exist"),
        (f"npz:{tmp_path / 'damaged.npz'}", None, "cannot be read as an npz file"),
        (f"npz:{folder}", None, "cannot be read as an npz file"),
        (f"folder:{folder}", None, "class-names must be given"),
        (f"folder:{folder}", NAMES, "the class folder cow"),
    ):
        with pytest.raises(ScarletError) as caught:
            read_site(data, names)
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
    for data, message in (("folder:x", "test must be npz:FILE"), ("npz:none.npz", "does not exist")):
        with pytest.raises(ConfigError, match=message):
            read_test(data)


def test_a_path_alone_means_a_file_or_a_folder() -> None:
    assert with_prefix("a/b.npz") == "npz:a/b.npz"
    assert with_prefix("a/b") == "folder:a/b"
    assert with_prefix("folder:a") == "folder:a"


def test_partition_id_means_a_simulation_and_a_data_path_a_site(tmp_path: Path) -> None:
    options = read_options({"out": str(tmp_path / "run")})
    simulated = Place.read({"partition-id": 3, "num-partitions": 10}, options)
    assert (simulated.client, simulated.data, simulated.state) == (3, None, tmp_path / "run" / "nodes" / "3")
    place = Place.read({"client": 1, "data-path": "x.npz", "state-dir": "s", "public-path": "p.npz"}, options)
    assert (place.client, place.data, place.public) == (1, "npz:x.npz", "npz:p.npz")
    for config in ({}, {"client": "one", "data-path": "x", "state-dir": "s"}, {"client": 1}):
        with pytest.raises(ConfigError):
            Place.read(config, options)


def test_every_option_of_a_new_app_is_one_that_can_be_read(tmp_path: Path) -> None:
    import tomllib

    for method in ("scarlet", "dsfl", "cfd", "comet", "selective-fd", "fedavg", "individual"):
        new_app(tmp_path / method, method)
        app = tomllib.loads((tmp_path / method / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
        options = read_options(app["config"])
        assert options.flower.out == tmp_path / method / "run"
        assert not options.remote
        assert app["fab-include"] == ["federation/**/*.py"]
    with pytest.raises(ConfigError, match="DIR must be new or empty"):
        new_app(tmp_path / "scarlet")


def test_a_policy_says_no_more_than_it_says(tmp_path: Path) -> None:
    assert Policy.read(None).objection(experiment="ab", samples=1, label_bits=32) is None
    (tmp_path / "policy.toml").write_text('experiments = ["ab"]\nmin-samples = 10\nmax-label-bits = 8\n')
    policy = Policy.read(tmp_path / "policy.toml")
    assert policy.objection(experiment="ab", samples=10, label_bits=8) is None
    assert policy.metrics
    for experiment, samples, bits in (("cd", 10, 8), ("ab", 9, 8), ("ab", 10, 9)):
        assert policy.objection(experiment=experiment, samples=samples, label_bits=bits) is not None
    for content in ("experiments = 'ab'", "metrics = 1", "min-samples = true", "nothing = 1", "= 3"):
        (tmp_path / "policy.toml").write_text(content)
        with pytest.raises(ConfigError):
            Policy.read(tmp_path / "policy.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        Policy.read(tmp_path / "none.toml")
