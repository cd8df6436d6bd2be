"""The implementation 'plain' does the same work as ours, and reaches the same accuracy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.plain import Answer, Cache, Images, Plain, PlainRound, _client, _Downlink, _start_worker, aggregate

from scarlet import Config, ScarletConfig, run
from scarlet.arrays import Labels
from scarlet.data.sites import Augment
from scarlet.experiment.federation import prepare
from scarlet.methods.scarlet import scarlet
from scarlet.records import RoundRecord

OPTIONS = ScarletConfig(cache_duration=2)
TINY = Config(
    clients=3,
    samples_per_client=150,
    alpha=10.0,
    rounds=7,
    public_size=400,
    public_per_round=200,
    local_epochs=2,
    distil_epochs=3,
    batch_size=10,
    codec="reference",
    model="mlp",
    workers=1,
)


class InOneProcess(Plain):
    """Plain without its pools of processes, which are slow to start."""

    def _clients(self, downlink: _Downlink) -> list[Answer]:
        _start_worker(self._files)
        return [_client(client, self._files, downlink) for client in range(len(self._federation.data.train))]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[PlainRound], list[RoundRecord]]:
    plain = InOneProcess(prepare(TINY), OPTIONS, tmp_path_factory.mktemp("plain"))
    return list(plain.rounds(TINY.rounds)), list(run(OPTIONS, TINY).records)


@pytest.mark.xdist_group("plain")
def test_plain_reaches_the_accuracy_of_ours(both: tuple[list[PlainRound], list[RoundRecord]]) -> None:
    plain, ours = both
    theirs = np.mean([each.server_accuracy for each in plain[-2:]])
    mine = np.mean([each.server_accuracy for each in ours[-2:] if each.server_accuracy is not None])
    assert theirs > 0.4 and abs(theirs - mine) < 0.2
    clients = [each.client_accuracy for each in ours if each.client_accuracy is not None]
    assert plain[-1].client_accuracy > 0.6 and abs(plain[-1].client_accuracy - clients[-1]) < 0.15


@pytest.mark.xdist_group("plain")
def test_plain_asks_for_as_many_labels_as_ours(both: tuple[list[PlainRound], list[RoundRecord]]) -> None:
    plain, ours = both
    assert [each.hit_ratio for each in plain] == [each.cache_hit_ratio for each in ours]
    assert 0 < plain[-1].hit_ratio < 1


def test_a_pool_gives_what_one_process_gives(tmp_path: Path) -> None:
    config = Config(clients=2, samples_per_client=20, public_size=40, public_per_round=20, rounds=1, workers=2)
    rounds: list[PlainRound] = []
    for kind in (Plain, InOneProcess):
        folder = tmp_path / kind.__name__
        folder.mkdir()
        rounds += list(kind(prepare(config), OPTIONS, folder).rounds(1))
        saved = torch.load(folder / "model-1.pt")
        assert not torch.equal(saved["0.weight"], torch.load(folder / "model-0.pt")["0.weight"])
    pooled, alone = rounds
    assert pooled.client_accuracy == alone.client_accuracy and pooled.server_accuracy == alone.server_accuracy


def test_the_loop_over_samples_gives_what_our_fold_gives() -> None:
    rng = np.random.default_rng(0)
    given = rng.dirichlet(np.full(5, 0.3), size=(4, 7)).astype(np.float32)
    aggregation = scarlet(OPTIONS).aggregate(np.arange(7), 5)
    for client, value in enumerate(given):
        aggregation.add(client, Labels(np.arange(7), value))
    found = aggregate([Answer(torch.arange(7), torch.from_numpy(value), 0.0) for value in given], OPTIONS.beta)
    assert list(found) == list(range(7))
    np.testing.assert_allclose(torch.stack(list(found.values())).numpy(), aggregation.finish().value, atol=1e-6)


def test_a_sample_has_the_mean_of_those_who_labelled_it() -> None:
    certain, unsure = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5, 0.5], [0.0, 1.0]])
    found = aggregate([Answer(torch.tensor([4]), certain, 0.0), Answer(torch.tensor([4, 9]), unsure, 0.0)], beta=1.0)
    assert {sample: label.tolist() for sample, label in found.items()} == {4: [0.75, 0.25], 9: [0.0, 1.0]}


def test_an_entry_of_age_exactly_D_is_a_hit() -> None:
    cache = Cache(duration=2)
    cache.update({3: torch.ones(2)}, 1)
    assert cache.request([3, 4], 3) == [4]
    assert cache.request([3, 4], 4) == [3, 4]


def test_images_come_normalised_and_are_cropped_and_flipped_only_if_asked() -> None:
    image = torch.arange(3 * 6 * 6, dtype=torch.uint8).reshape(1, 6, 6, 3)
    plain, _ = Images(image, torch.zeros(1))[0]
    assert torch.allclose(plain, image[0].permute(2, 0, 1).float() / 127.5 - 1, atol=1e-6)
    assert plain.is_contiguous()
    assert torch.equal(Images(image, torch.zeros(1), Augment(0, False))[0][0], plain)
    shifted = [Images(image, torch.zeros(1), Augment(2, False))[0][0] for _ in range(40)]
    assert all(each.shape == plain.shape for each in shifted)
    assert any(bool((each[:, 0] == -1).all()) for each in shifted), "padded with black"
    mirrored = [torch.equal(Images(image, torch.zeros(1), Augment(0, True))[0][0], plain.flip(-1)) for _ in range(40)]
    assert 0 < sum(mirrored) < 40
