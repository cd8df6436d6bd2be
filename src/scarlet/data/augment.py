"""Batches of inputs: images flipped and cropped at random, a whole batch at once; or inputs as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from scarlet.arrays import Integers
from scarlet.data.sites import Augment, Scale

_AT_ONCE = 4096  # images whose canvas is made once; of more, a few batches have their own, so that memory stays bounded
_AHEAD = 4  # batches that are cut out together


def some(inputs: Tensor, index: Integers) -> Tensor:
    """Some of the inputs, in the layout that all have."""
    places = torch.tensor(index, device=inputs.device)
    if inputs.dim() != 4 or inputs.is_contiguous():
        return inputs.index_select(0, places)
    return inputs.permute(0, 2, 3, 1).index_select(0, places).permute(0, 3, 1, 2)


class Batches:
    """Inputs of which batches are taken, each changed by a function of the user's, if there is one."""

    def __init__(self, inputs: Tensor, change: Scale | None = None) -> None:
        self._inputs, self._change = inputs, change

    def batches(self, batches: Sequence[Integers], rng: np.random.Generator) -> Iterator[Tensor]:
        """The inputs of some batches."""
        for batch in batches:
            chosen = some(self._inputs, batch)
            yield chosen if self._change is None else self._change(chosen)

    def moves(self, count: int, rng: np.random.Generator) -> Integers:
        """Inputs that are not images of ours are not moved."""
        return np.zeros((3, count), np.int64)

    def moved(self, index: Integers, moves: Integers) -> Tensor:
        """Some of the inputs."""
        return some(self._inputs, index)


class Views:
    """Images of which batches are taken: shifted anew by up to `padding` pixels both ways over black, half mirrored.

    The images lie on black canvases, with their mirror images after them, so that a row of a shifted image is a run of
    memory, and a batch is so many runs. With `channels_last` the channels of a pixel lie together, in batches too.
    """

    def __init__(self, images: Tensor, how: Augment, *, channels_last: bool = False) -> None:
        self._how = how
        self._channels_last = channels_last
        self._count, _, self._height, self._width = images.shape
        self._images = images
        self._canvas = self._painted(images) if self._count <= _AT_ONCE else None

    def batches(self, batches: Sequence[Integers], rng: np.random.Generator) -> Iterator[Tensor]:
        """The images of some batches, [n, C, H, W] each; what they are drawn does not depend on how many follow."""
        for first in range(0, len(batches), _AHEAD):
            few = batches[first : first + _AHEAD]
            moves = np.concatenate([self.moves(len(batch), rng) for batch in few], axis=1)
            images = self.moved(np.concatenate(few), moves)
            for view in torch.split(images, [len(batch) for batch in few]):
                yield view.detach()  # a model may write to its input

    def moves(self, count: int, rng: np.random.Generator) -> Integers:
        """Draw how so many images are moved, i64[3, count]: down, right, and whether they are mirrored first."""
        moves = np.zeros((3, count), np.int64)
        if self._how.padding:
            moves[:2] = rng.integers(0, 2 * self._how.padding + 1, size=(2, count))
        if self._how.flip:
            moves[2] = rng.random(count) < 0.5
            # A window of the mirror image, as far from its right edge as it would be from the image's left one.
            moves[1] = np.where(moves[2], 2 * self._how.padding - moves[1], moves[1])
        return moves

    def moved(self, index: Integers, moves: Integers) -> Tensor:
        """Some of the images, each moved in its own way."""
        if not len(index):
            return self._images[:0]
        canvas, count = self._canvas, self._count
        if canvas is None:
            canvas, count = self._painted(some(self._images, index)), len(index)
            index = np.arange(count)
        down, right, mirrored = moves
        cut = self._cut(canvas, index + count * mirrored, down, right)
        return cut.squeeze(1).permute(0, 3, 1, 2) if self._channels_last else cut.squeeze(-1)

    def _painted(self, images: Tensor) -> Tensor:
        """The canvases: [n, C, H', W', 1], or [n, 1, H', W', C] with the channels last."""
        border = self._how.padding
        if self._how.flip:
            images = torch.cat([images, images.flip(-1)])
        images = images.permute(0, 2, 3, 1).unsqueeze(1) if self._channels_last else images.unsqueeze(-1)
        if border:
            black = 0 if images.dtype == torch.uint8 else -1
            images = functional.pad(images, (0, 0, *(border,) * 4), value=black)
        return images.contiguous()

    def _cut(self, canvas: Tensor, index: Integers, down: Integers, right: Integers) -> Tensor:
        """One window of each of some canvases."""
        _, planes, height, width, depth = canvas.shape
        if not self._how.padding:
            return canvas.index_select(0, torch.from_numpy(index).to(canvas.device))
        run = self._width * depth
        runs = canvas.as_strided(((canvas.numel() - run) // depth + 1, run), (depth, 1))  # one from each pixel on
        rows = (np.arange(planes)[:, np.newaxis] * height + np.arange(self._height)).ravel() * width
        corners = (index * planes * height + down) * width + right
        starts = torch.from_numpy((corners[:, np.newaxis] + rows).ravel()).to(canvas.device)
        return runs.index_select(0, starts).view(len(index), planes, self._height, self._width, depth)
