"""A site: a client that owns its data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Augment:
    """Random crop of the image padded by `padding` pixels, and random horizontal flip. 0 and False: none."""

    padding: int = 0
    flip: bool = False


class Elsewhere:
    """The data of a client on another machine: nobody but that machine can read it."""


ELSEWHERE = Elsewhere()

ModelFactory = Callable[[], "nn.Module"]
Scale = Callable[["Tensor"], "Tensor"]  # a batch of inputs -> what the model takes


@dataclass(frozen=True, slots=True)
class Site:
    """A client that owns its data.

    `train` and `test` are each a pair (inputs, labels) of arrays or tensors, a torch Dataset of such pairs, or a folder
    of images, `class/image`. Inputs are of any shape [n, ...]: images, rows of a table, sequences. Without `test` the
    client's accuracy is not measured.

    `model` makes the client's model: a function without arguments, or the name of one of ours. `augment` changes a
    batch of training inputs at random (it may draw from torch's generator, which is seeded for every client and round),
    and `scale` turns any batch of inputs into what the model takes; by default bytes become [-1, 1]. What a site does
    not say is as `run` says for all.

    Random draws follow the site's `name`, and clients are numbered in the order of their names; by default a site is
    named for its position.
    """

    train: Any
    test: Any = None
    model: ModelFactory | str | None = None
    name: str | None = None
    augment: Augment | Scale | None = None
    scale: Scale | None = None
