from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from scarlet.data import augment as augmenting
from scarlet.data.augment import Views
from scarlet.data.datasets import Augment
from scarlet.rng import stream

Move = tuple[int, int, bool]  # down, right, mirrored

HEIGHT, WIDTH = 6, 5


def pictures(count: int) -> Tensor:
    """Bytes from 1 up without any likeness, so that a window of one is found in one place only."""
    rng = np.random.default_rng(count)
    return torch.from_numpy(rng.integers(1, 256, (count, 3, HEIGHT, WIDTH), np.uint8))


def augment(images: Tensor, how: Augment, rng: np.random.Generator) -> Tensor:
    """All images in one batch."""
    return next(Views(images, how).batches([np.arange(len(images))], rng))


def moves(before: Tensor, after: Tensor, padding: int) -> list[Move]:
    """For each image, the one window of the padded original that it is, found by trying all of them."""
    found = []
    for image, result in zip(before.numpy(), after.numpy(), strict=True):
        padded = np.zeros((3, HEIGHT + 2 * padding, WIDTH + 2 * padding), np.uint8)
        padded[:, padding : padding + HEIGHT, padding : padding + WIDTH] = image
        matches = [
            (down, right, mirrored)
            for down in range(2 * padding + 1)
            for right in range(2 * padding + 1)
            for mirrored in (False, True)
            if np.array_equal(
                padded[:, down : down + HEIGHT, right : right + WIDTH][:, :, :: -1 if mirrored else 1], result
            )
        ]
        assert len(matches) == 1, f"{len(matches)} windows look like the result"
        found.append(matches[0])
    return found


def moved(count: int, how: Augment, round: int = 1) -> list[Move]:
    """What happened to each image of a batch in a round."""
    images = pictures(count)
    return moves(images, augment(images, how, stream(0, "client", client=0, round=round, purpose="fit")), how.padding)


@pytest.mark.parametrize("padding", [1, 2, 4])
@pytest.mark.parametrize("flip", [False, True])
def test_every_result_is_a_window_of_the_image_padded_with_black_maybe_mirrored(padding: int, flip: bool) -> None:
    assert len(moved(40, Augment(padding, flip))) == 40


def test_a_batch_has_every_offset_and_each_about_as_often() -> None:
    offsets = [(down, right) for down, right, _ in moved(900, Augment(padding=1, flip=False))]
    counts = [offsets.count((down, right)) for down in range(3) for right in range(3)]
    assert sum(counts) == 900 and min(counts) >= 60 and max(counts) <= 140  # 100 each, within four deviations


def test_the_next_round_has_other_offsets_and_the_same_round_the_same() -> None:
    how = Augment(padding=4, flip=True)
    assert moved(20, how, round=1) == moved(20, how, round=1)
    assert moved(20, how, round=1) != moved(20, how, round=2)


def test_the_next_batch_of_a_stream_has_other_offsets() -> None:
    images, how, rng = pictures(20), Augment(padding=4, flip=False), stream(0, "client", round=1)
    assert moves(images, augment(images, how, rng), 4) != moves(images, augment(images, how, rng), 4)


def test_without_flip_no_image_is_mirrored() -> None:
    assert not any(mirrored for _, _, mirrored in moved(300, Augment(padding=2, flip=False)))


def test_with_flip_about_half_of_the_images_are_mirrored() -> None:
    mirrored = [mirrored for _, _, mirrored in moved(400, Augment(padding=1, flip=True))]
    assert 160 <= sum(mirrored) <= 240  # 200, within four deviations


def test_without_padding_an_image_stays_or_is_mirrored_in_place() -> None:
    assert set(moved(50, Augment(padding=0, flip=True))) == {(0, 0, False), (0, 0, True)}


def test_what_comes_in_from_outside_is_black() -> None:
    white = torch.full((200, 1, HEIGHT, WIDTH), 255, dtype=torch.uint8)
    shifted = augment(white, Augment(padding=HEIGHT, flip=False), stream(0, "client"))
    assert set(shifted.flatten().tolist()) == {0, 255}
    assert (shifted == 0).any(dim=(1, 2, 3)).sum() > 150


def test_neither_padding_nor_flip_is_the_identity_and_draws_nothing() -> None:
    images, rng = pictures(10), stream(0, "client")
    assert torch.equal(augment(images, Augment(padding=0, flip=False), rng), images)
    assert rng.random() == stream(0, "client").random()


def test_the_images_that_are_given_stay_as_they_are() -> None:
    images = pictures(10)
    augment(images, Augment(padding=4, flip=True), stream(0, "client"))
    assert torch.equal(images, pictures(10))


def test_an_empty_batch_stays_empty() -> None:
    assert augment(pictures(1)[:0], Augment(padding=4, flip=True), stream(0, "client")).shape == (0, 3, HEIGHT, WIDTH)


@pytest.mark.parametrize("how", [Augment(2, True), Augment(0, True), Augment(0, False)])
@pytest.mark.parametrize("at_once", [100, 5])
@pytest.mark.parametrize("channels_last", [False, True])
def test_batches_are_what_each_would_be_if_it_came_alone(
    how: Augment, at_once: int, channels_last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(augmenting, "_AT_ONCE", at_once)
    views = Views(pictures(40), how, channels_last=channels_last)
    batches = np.split(np.random.default_rng(0).permutation(40), [4, 8, 15, 15, 16, 20, 24, 28, 32])
    rng = stream(0, "client")
    alone = [next(views.batches([batch], rng)) for batch in batches]
    together = list(views.batches(batches, stream(0, "client")))
    assert [len(each) for each in together] == [len(batch) for batch in batches]
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))


@pytest.mark.parametrize("how", [Augment(2, True), Augment(1, False), Augment(0, True), Augment(0, False)])
@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("at_once", [100, 5])
def test_a_batch_of_views_is_the_chosen_images_shifted_and_mirrored_one_by_one(
    how: Augment, floats: bool, channels_last: bool, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(augmenting, "_AT_ONCE", at_once)
    images = pictures(12).float() if floats else pictures(12)
    index = np.array([7, 3, 11, 3, 0])
    (found,) = Views(images, how, channels_last=channels_last).batches([index], stream(0, "client"))
    rng, border = stream(0, "client"), how.padding
    down, right = rng.integers(0, 2 * border + 1, (2, 5)) if border else np.zeros((2, 5), np.int64)
    mirrored = rng.random(5) < 0.5 if how.flip else np.zeros(5, bool)
    for place, sample in enumerate(index):
        wide = np.full((3, HEIGHT + 2 * border, WIDTH + 2 * border), -1 if floats else 0, images.numpy().dtype)
        wide[:, border : border + HEIGHT, border : border + WIDTH] = images[sample]
        cut = wide[:, down[place] : down[place] + HEIGHT, right[place] : right[place] + WIDTH]
        assert np.array_equal(found[place].numpy(), cut[:, :, ::-1] if mirrored[place] else cut)
    assert found.is_contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
