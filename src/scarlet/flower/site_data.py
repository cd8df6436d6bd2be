"""The data of one site: an npz file, or folders of images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scarlet.arrays import Array
from scarlet.data.image_folder import Classes, client_parts, read_classes
from scarlet.data.inputs import as_part
from scarlet.data.npz import names_in, read_arrays
from scarlet.data.samples import Part
from scarlet.data.sites import Site
from scarlet.errors import ConfigError


def read_site(data: str, class_names: Sequence[str] | None = None, image_size: int | None = None) -> Site:
    """The samples of a site.

    npz:FILE has train_x and train_y, and test_x and test_y if there is something to test on. folder:PATH holds
    class/image, of which a fifth is held out for testing, or train/class/image with test/class/image. A site may lack
    classes, so the numbers of folders come from `class_names`, the classes of the whole federation.
    """
    kind, _, where = data.partition(":")
    path = Path(where).expanduser()
    if not path.exists():
        raise ConfigError(f"data must be a file or a folder, and {path} does not exist; check the path")
    if kind == "npz":
        return _from_file(path)
    if class_names is None:
        raise ConfigError(
            f"class-names must be given where a site's data is a folder ({path}): a site that lacks a class would "
            "number the others differently; set class-names in the app's config"
        )
    return _from_folder(path, class_names, image_size)


def _from_file(path: Path) -> Site:
    with_test = "test_x" in names_in(path)
    arrays = read_arrays(path, "train_x", "train_y", *(("test_x", "test_y") if with_test else ()))
    return Site(_labelled(arrays, "train", path), _labelled(arrays, "test", path) if with_test else None)


def _labelled(arrays: dict[str, Array], part: str, path: Path) -> Part:
    return as_part((arrays[f"{part}_x"], arrays[f"{part}_y"]), f"{path}: {part}")


def _from_folder(path: Path, class_names: Sequence[str], image_size: int | None) -> Site:
    parts = client_parts(path)
    found: dict[str, Classes] = {"train": parts.train} | ({"test": parts.test} if parts.test else {})
    for classes in found.values():
        for name in classes:
            if name not in class_names:
                raise ConfigError(
                    f"the class folder {name} of {path} is not one of {', '.join(class_names)}; rename it"
                )
    _, read = read_classes(found, image_size, str(path), class_names)
    return Site(Part(read["train"]), Part(read["test"]) if "test" in read else None)


def read_test(data: str) -> Part:
    """What the server's model is tested on: npz:FILE with x and y."""
    kind, _, where = data.partition(":")
    if kind != "npz":
        raise ConfigError(f"test must be npz:FILE with the arrays x and y, got {data!r}")
    path = Path(where).expanduser()
    if not path.exists():
        raise ConfigError(f"test must be a file, and {path} does not exist; check the path on the server")
    arrays = read_arrays(path, "x", "y")
    return as_part((arrays["x"], arrays["y"]), f"{path}: test")
