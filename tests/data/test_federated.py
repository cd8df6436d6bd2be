from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scarlet.data.federated import FederatedData
from scarlet.data.samples import Labelled, Part

SHAPE = (3, 4, 5)


def noise(size: int, seed: int) -> Labelled:
    images = np.random.default_rng(seed).integers(0, 256, (size, *SHAPE), np.uint8)
    return Labelled(images, np.arange(size) % 3)


def public() -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.random.default_rng(9).integers(0, 256, (4, *SHAPE), np.uint8)


def shared_out(train: Sequence[Sequence[int]] = ((0, 2, 7), (1,), (5, 6)), test: int = 3) -> FederatedData:
    """Clients that hold parts of one dataset."""
    pool, others = noise(10, 0), noise(6, 1)
    parts = [Part(pool, np.array(each, np.int64)) for each in train]
    tests = [Part(others, np.arange(test))] * len(parts)
    return FederatedData([str(at) for at in range(len(parts))], parts, tests, public(), Part(others), 3)


def of_their_own() -> FederatedData:
    """Clients that hold a dataset each, and one of them has nothing to be tested on."""
    parts = [Part(noise(size, size)) for size in (5, 1, 3)]
    return FederatedData(["a", "b", "c"], parts, [Part(noise(2, 20)), None, Part(noise(4, 21))], public(), None, 3)


def same(one: Part | None, other: Part | None) -> bool:
    if not one or not other:
        return not one and not other
    return all(map(np.array_equal, one.arrays(), other.arrays()))


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("kept", [shared_out, of_their_own])
def test_a_worker_finds_the_data_as_it_is_and_need_not_turn_the_public_images(
    kept: type[FederatedData], channels_last: bool, tmp_path: Path
) -> None:
    given = kept()
    found = given.save(tmp_path, channels_last=channels_last).load()
    assert (list(found.names), found.classes, len(found.train)) == (given.names, 3, len(given.train))
    assert all(map(same, found.train, given.train))
    assert all(map(same, found.test, given.test))
    assert np.array_equal(found.public, given.public)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    assert torch.from_numpy(found.public).is_contiguous(memory_format=layout)
    assert found.public_fingerprint == given.public_fingerprint
    assert found.bytes_of_a_client() == given.bytes_of_a_client()


def test_the_bytes_of_a_client_are_those_of_its_own_inputs_on_average() -> None:
    assert shared_out(((0, 2, 7), (1, 2, 3))).bytes_of_a_client() == (3 + 3) * 60
    assert of_their_own().bytes_of_a_client() == (5 + 1 + 3 + 2 + 4) / 3 * 60


@given(st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=1, max_size=8))
@settings(deadline=None)
def test_who_holds_what_comes_back_from_its_file(
    tmp_path_factory: pytest.TempPathFactory, lists: list[list[int]]
) -> None:
    given = shared_out(lists)
    found = given.save(tmp_path_factory.mktemp("data"), channels_last=False).load().train
    assert len(found) == len(lists)
    assert all(map(same, found, given.train))
    assert all(map(same, found[1:], given.train[1:]))
    with pytest.raises(IndexError):
        found[len(lists)]


@pytest.mark.parametrize("kept", [shared_out, of_their_own])
def test_pooled_data_is_one_client_after_another_in_the_hands_of_one(kept: type[FederatedData]) -> None:
    given = kept()
    pooled = given.pooled()
    (train,), (test,) = pooled.train, pooled.test
    assert np.array_equal(train.arrays().inputs, np.concatenate([part.arrays().inputs for part in given.train]))
    assert np.array_equal(train.labels, np.concatenate([part.labels for part in given.train]))
    assert same(test, given.held_out)


def test_a_fingerprint_names_content_order_and_who_holds_it() -> None:
    data = shared_out()
    turned = data.public.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)
    assert replace(data, public=turned).public_fingerprint == data.public_fingerprint, "the same images"
    others = [data.public[::-1], data.public[:3], data.public.astype(np.float32), data.public.reshape(4, 3, 5, 4)]
    found = {replace(data, public=other).public_fingerprint for other in others}
    assert len(found | {data.public_fingerprint}) == 5
    labels = [Part(Labelled(part.of.inputs, part.of.labels[::-1]), part.index) for part in data.train]
    changed = [
        replace(data, train=labels),
        replace(data, names=["0", "1", "x"]),
        replace(data, train=data.train[::-1]),
        replace(data, test=[None, *data.test[1:]]),
    ]
    assert len({data.fingerprint, *(each.fingerprint for each in changed)}) == 5
    assert {each.public_fingerprint for each in changed} == {data.public_fingerprint}
