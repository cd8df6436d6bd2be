"""Labelled datasets: to be shared out among the clients, or split among them already."""

from __future__ import annotations

from dataclasses import dataclass, field

from scarlet.data.samples import Labelled
from scarlet.data.sites import Augment, Site


@dataclass(frozen=True, slots=True)
class PrivateSet:
    """A labelled dataset to be shared out among the clients, and to test on."""

    name: str
    classes: int
    train: Labelled
    test: Labelled
    augment: Augment = field(default_factory=Augment)
    class_names: tuple[str, ...] | None = None  # None: the classes have numbers only


@dataclass(frozen=True, slots=True)
class SplitSet:
    """A labelled dataset that is split among clients already."""

    name: str
    classes: int
    sites: tuple[Site, ...]
    class_names: tuple[str, ...] | None = None
