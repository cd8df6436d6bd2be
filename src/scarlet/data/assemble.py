"""From sites to the data of a federation: who is who, and whether all of it fits together."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from scarlet.arrays import Inputs
from scarlet.data.federated import FederatedData
from scarlet.data.image_folder import class_folders, read_classes
from scarlet.data.inputs import as_part, check_numbered
from scarlet.data.samples import Labelled, Part, joined
from scarlet.data.sites import ELSEWHERE, Site
from scarlet.errors import ConfigError, WrongTypeError


def in_order(sites: Sequence[Site]) -> list[Site]:
    """The sites with their names, in the order in which clients are numbered: whole numbers first, then other names."""
    if not sites:
        raise ConfigError("sites must not be empty, got none; give one Site for each client")
    for site in sites:
        if not isinstance(site, Site):
            raise WrongTypeError(f"sites must be a list of scarlet.Site, got {type(site).__name__} among them")
    named = [replace(site, name=str(at) if site.name is None else str(site.name)) for at, site in enumerate(sites)]
    for site in named:
        if not str(site.name).isprintable() or not site.name:
            raise ConfigError(f"sites must have names of printable characters, got {site.name!r}; choose another name")
    twice = [name for name, count in Counter(site.name for site in named).items() if count > 1]
    if twice:
        raise ConfigError(f"sites must have different names, got {twice[0]!r} twice; random draws follow a site's name")
    return sorted(named, key=lambda site: _rank(site.name or ""))


def _rank(name: str) -> tuple[bool, int, str]:
    number = name.isdecimal()
    return not number, int(name) if number else 0, name


def with_folders_read(
    sites: Sequence[Site], test: object, image_size: int | None = None
) -> tuple[list[Site], object, tuple[str, ...] | None]:
    """The sites and the server's test set with folders of images, `class/image`, read; and the names of the classes.

    Classes are numbered in the order of the names of all class folders, so that a site may lack some of them.
    """
    given = {(at, name): getattr(site, name) for at, site in enumerate(sites) for name in ("train", "test")}
    given[-1, "test"] = test
    folders = {key: Path(value) for key, value in given.items() if isinstance(value, str | Path)}
    if not folders:
        return list(sites), test, None
    if len(folders) < sum(value is not None for value in given.values()):
        raise WrongTypeError("sites must have their data all in folders, or none: classes are numbered by folder names")
    for path in folders.values():
        if not path.is_dir():
            raise ConfigError(
                f"{path} is not a folder; give the path of a folder with a folder of images for each class"
            )
    names, read = read_classes({key: class_folders(path) for key, path in folders.items()}, image_size, "sites")
    found = [replace(site, train=read[at, "train"], test=read.get((at, "test"))) for at, site in enumerate(sites)]
    return found, read.get((-1, "test")), names


def assemble(
    sites: Sequence[Site],
    public: Inputs,
    test: Part | None,
    classes: int | None = None,
    class_names: tuple[str, ...] | None = None,
) -> FederatedData:
    """The data of sites that are in order; ConfigError where it does not fit together.

    The server's model is tested on `test`, or else on all that the clients are tested on. Classes are inferred from the
    labels where they are not given.
    """
    own = [None if site.train is ELSEWHERE else _part(site.train, f"train of site {site.name!r}") for site in sites]
    nothing = _nothing_like(next((part for part in (*own, test) if part is not None), None), public)
    train = [nothing if part is None else part for part in own]
    own_tests = [None if site.test is None else _part(site.test, f"test of site {site.name!r}") for site in sites]
    names = {f"train of site {site.name!r}": part for site, part in zip(sites, train, strict=True)}
    names |= {f"test of site {site.name!r}": part for site, part in zip(sites, own_tests, strict=True) if part}
    if test is not None:
        names["test"] = test
    _check_inputs({name: part.of.inputs for name, part in names.items()}, public)
    if classes is None and any(part is None for part in own):
        raise ConfigError("classes must be given where clients keep their data to themselves; give their number")
    counted = _count_classes(names, classes)
    if class_names is not None and len(class_names) < counted:
        raise ConfigError(f"classes must be named, got {len(class_names)} names for {counted} classes")
    tested = [part for part in own_tests if part is not None]
    if test is None and tested:
        test = Part(joined(tested))
    site_names = [site.name or "" for site in sites]
    return FederatedData(site_names, train, own_tests, public, test, counted, class_names)


def _nothing_like(known: Part | None, public: Inputs) -> Part:
    """The samples of a client whose data is elsewhere, as far as they are known here: their shape and type."""
    inputs = public if known is None else known.of.inputs
    return Part(Labelled(inputs[:0], np.empty(0, np.int64)))


def _part(data: object, name: str) -> Part:
    part = as_part(data, name)
    if not len(part):
        raise ConfigError(f"{name} must not be empty, got no samples; leave the site or its test out")
    return part


def _check_inputs(inputs: dict[str, Inputs], public: Inputs) -> None:
    """All inputs go through the same models, so they are of one shape and one kind of number."""
    first_name, first = next(iter(inputs.items()))
    checked = {id(first)}
    for name, each in (*inputs.items(), ("public", public)):
        if id(each) in checked or (name == "public" and not len(public)):
            continue
        checked.add(id(each))
        if each.shape[1:] != first.shape[1:]:
            raise ConfigError(
                f"{name} has inputs of shape {list(each.shape[1:])}, and {first_name} of {list(first.shape[1:])}; "
                "bring all inputs, the public ones included, to one shape"
            )
        if each.dtype != first.dtype:
            raise ConfigError(
                f"{name} has inputs of {each.dtype}, and {first_name} of {first.dtype}; use one type for all, "
                "because bytes are scaled to [-1, 1] for models, and other numbers are not"
            )


def _count_classes(parts: dict[str, Part], classes: int | None) -> int:
    """The number of classes, as given or as the labels have it."""
    largest: dict[int, int] = {}  # of each pool of labels
    top, where = -1, ""
    if classes is None:
        pools = {id(part.of): part.of.labels for part in parts.values()}
        check_numbered(pools.values(), "labels", "number them anew, or give classes")
    for name, part in parts.items():
        label = largest.setdefault(id(part.of), int(part.of.labels.max(initial=-1)))
        if label > top:
            top, where = label, name
    try:
        classes = top + 1 if classes is None else operator.index(classes)
    except TypeError:
        raise WrongTypeError(f"classes must be a whole number, got {classes!r}; leave it out to infer it") from None
    if top >= classes:
        raise ConfigError(
            f"labels must be from 0 to {classes - 1} for {classes} classes, got {top} in {where}; "
            "give more classes, or number the labels from 0"
        )
    if classes < 2:
        raise ConfigError(f"classes must be 2 or more, got {classes}; labels must tell at least two classes apart")
    return classes
