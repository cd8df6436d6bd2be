from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scarlet.data.datasets import Augment, PrivateSet
from scarlet.data.federated import FederatedData

SHAPE = (3, 4, 5)
CROPS = Augment(padding=2, flip=True)


def federated(train: Sequence[Sequence[int]] = ((0, 2, 7), (1,), (5, 6)), test: int = 3) -> FederatedData:
    rng = np.random.default_rng(0)
    images, others, public = (rng.integers(0, 256, (size, *SHAPE), np.uint8) for size in (10, 6, 4))
    private = PrivateSet("noise", 3, images, np.arange(10) % 3, others, np.arange(6) % 3, CROPS)
    shares = [np.array(each, np.int64) for each in train]
    return FederatedData(private, public, shares, [np.arange(test)] * len(shares))


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_worker_finds_the_data_as_it_is_and_need_not_turn_the_public_images(
    channels_last: bool, tmp_path: Path
) -> None:
    given = federated()
    stored = given.save(tmp_path, channels_last=channels_last)
    assert len(stored.private.train_images) == 0, "what is sent to a worker is small"
    found = stored.load()
    for name in ("train_images", "train_labels", "test_images", "test_labels"):
        assert np.array_equal(getattr(found.private, name), getattr(given.private, name)), name
    assert (found.private.name, found.private.classes, found.private.augment) == ("noise", 3, CROPS)
    assert np.array_equal(found.public, given.public)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    assert torch.from_numpy(found.public).is_contiguous(memory_format=layout)
    assert (found.fingerprint, found.public_fingerprint) == (given.fingerprint, given.public_fingerprint)
    assert found.bytes_of_a_client() == given.bytes_of_a_client() == (3 + 3) * 60


@given(st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=5), min_size=1, max_size=8))
@settings(deadline=None)
def test_who_holds_what_comes_back_from_its_file(
    tmp_path_factory: pytest.TempPathFactory, lists: list[list[int]]
) -> None:
    if not any(lists):
        lists[0] = [7]
    found = federated(lists).save(tmp_path_factory.mktemp("data"), channels_last=False).load().train
    assert len(found) == len(lists)
    assert [each.tolist() for each in found] == lists
    assert [each.tolist() for each in found[1:]] == lists[1:]
    assert all(each.dtype == np.int64 for each in found)
    with pytest.raises(IndexError):
        found[len(lists)]


def test_pooled_data_is_in_the_hands_of_one_client_who_is_tested_on_everything() -> None:
    pooled = federated().pooled()
    assert [each.tolist() for each in pooled.train] == [[0, 1, 2, 5, 6, 7]]
    assert [each.tolist() for each in pooled.test] == [[0, 1, 2, 3, 4, 5]]


def test_a_fingerprint_names_content_order_and_preprocessing() -> None:
    data = federated()
    turned = data.public.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)
    assert replace(data, public=turned).public_fingerprint == data.public_fingerprint, "the same images"
    others = [data.public[::-1], data.public[:3], data.public.astype(np.float32), data.public.reshape(4, 3, 5, 4)]
    found = {replace(data, public=other).public_fingerprint for other in others}
    assert len(found | {data.public_fingerprint}) == 5
    private = replace(data.private, train_labels=data.private.train_labels[::-1])
    assert replace(data, private=private).fingerprint != data.fingerprint
    assert replace(data, private=private).public_fingerprint == data.public_fingerprint
