"""Random flips and crops of a whole batch at once."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from scarlet.data.datasets import Augment


def augment(images: Tensor, how: Augment, rng: np.random.Generator) -> Tensor:
    """Shift each image by up to `padding` pixels in both directions over black, and mirror half of them."""
    count, _, height, width = images.shape
    if how.padding:
        down, right = torch.from_numpy(rng.integers(0, 2 * how.padding + 1, size=(2, count)))
        black = 0 if images.dtype == torch.uint8 else -1
        padded = functional.pad(images, (how.padding,) * 4, value=black)
        windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # [count, C, 2p+1, 2p+1, height, width], a view
        images = windows[torch.arange(count), :, down, right]
    if how.flip:
        mirrored = torch.from_numpy(rng.random(count) < 0.5).to(images.device)
        images = torch.where(mirrored[:, None, None, None], images.flip(-1), images)
    return images
