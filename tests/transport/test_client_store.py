from __future__ import annotations

import errno
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import scarlet
from scarlet.methods.cfd import CfdConfig
from scarlet.methods.comet import CometConfig
from scarlet.methods.scarlet import ScarletConfig
from scarlet.methods.scarlet import scarlet as scarlet_method
from scarlet.protocol.client import Client
from scarlet.protocol.persist import client_arrays, restore_client
from scarlet.training.train import Samples
from scarlet.transport import client_store as sites
from scarlet.transport.client_runner import Host, weights_digest
from scarlet.transport.client_store import Arrays, ScratchError, Site, Sites, in_memory, site_bytes
from scarlet.transport.local import LocalTransport
from scarlet.wire.codecs import codec
from tests.transport.test_local import CLIENTS, FEDERATION, data, one_thread, play, server, setup

__all__ = ["one_thread"]  # the sums of several threads may differ in their last bits

METHOD = scarlet_method(ScarletConfig())
NOTHING = Samples(torch.empty(0), torch.empty(0))


def make(number: int, saved: Arrays | None) -> Site:
    """A client whose weight says how often it has been at work."""
    client = Client(number, METHOD, FEDERATION, codec("compact"))
    model = torch.nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(0.0 if saved is None else float(saved["model.weight"].astype(np.float32)[0, 0]))
    if saved is not None:
        restore_client(client.state, saved)
    return Site(client, model, NOTHING, NOTHING)


def work(site: Site) -> None:
    with torch.no_grad():
        for parameter in site.model.parameters():
            parameter.add_(1)
    site.client.state.cache.value[site.client.number] += 1
    site.client.state.reply = [b"x" * int(1000 * weight(site) ** 2)]


def weight(site: Site) -> float:
    return float(site.model.state_dict()["weight"])


@pytest.fixture
def made() -> Iterator[list[int]]:
    yield []


def spied(limit: int, made: list[int], saved: Mapping[int, Arrays] | None = None) -> Sites:
    def spy(number: int, saved: Arrays | None) -> Site:
        made.append(number)
        return make(number, saved)

    return Sites(limit, spy, saved or {})


def test_a_client_is_made_when_it_is_first_asked_for_and_not_before(made: list[int]) -> None:
    kept = spied(2, made)
    assert made == [] and kept.arrays(3) is None
    assert kept[3] is kept[3]
    assert made == [3]


def test_the_least_recently_used_goes(made: list[int]) -> None:
    kept = spied(2, made)
    first, second = kept[0], kept[1]
    assert kept[0] is first
    kept[2]
    settle(kept)
    assert kept[0] is first
    assert kept[1] is not second and made == [0, 1, 2, 1]


def settle(kept: Sites) -> None:
    """Wait until all that is to be written is written."""
    for _, writing in kept._leaving.values():
        writing.result()
    kept._make_room()


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
@pytest.mark.parametrize("ahead", [False, True])
def test_whatever_the_limit_a_client_comes_back_as_it_went(limit: int, ahead: bool) -> None:
    kept, rng = Sites(limit, make, {}), np.random.default_rng(limit)
    order = rng.integers(0, 6, 300).tolist()
    for number, after in zip(order, [*order[1:], 0], strict=True):
        site = kept[number]
        if ahead:
            kept.expect(after)
        work(site)
        assert len(kept._ready) <= limit
    for number in range(6):
        arrays = kept.arrays(number)
        assert arrays is not None
        times = order.count(number)
        assert float(arrays["model.weight"].astype(np.float32)[0, 0]) == times
        assert len(arrays["reply.0"]) == 1000 * times**2
        assert arrays["cache.value"].astype(np.float32)[:, 0].nonzero()[0].tolist() == [number]
    kept.close()


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_a_client_comes_back_as_it_went_from_wherever_it_has_been(limit: int) -> None:
    """Six clients move about between two places, often while they are being written."""
    places, rng, at = (Sites(limit, make, {}), Sites(limit, make, {})), np.random.default_rng(limit), [0] * 6
    order = rng.integers(0, 6, 400).tolist()
    for number in order:
        if rng.random() < 0.4:
            before, at[number] = at[number], 1 - at[number]
            arrays = places[before].arrays(number)
            copied = None if arrays is None else {name: np.array(array) for name, array in arrays.items()}
            places[before].forget(number)
            assert places[before].arrays(number) is None
            if copied is not None:
                places[at[number]].adopt(number, copied)
        work(places[at[number]][number])
    for number in range(6):
        arrays = places[at[number]].arrays(number)
        assert arrays is not None and float(arrays["model.weight"].astype(np.float32)[0, 0]) == order.count(number)
        assert arrays["cache.value"].astype(np.float32)[:, 0].nonzero()[0].tolist() == [number]
    for place in places:
        place.close()


def test_clients_that_come_and_go_do_not_make_the_file_grow() -> None:
    kept = Sites(1, make, {})
    state = {name: np.array(array) for name, array in make(0, None).arrays().items()}
    ends = []
    for number in range(50):
        kept.adopt(number, state)
        kept[number]
        settle(kept)
        ends.append(kept._scratch._end)
        kept.forget(number - 1)
    assert ends[1] > 0 and ends[-1] == ends[2], "each has the place of one that has left"
    kept.close()


class Slow:
    """Lets no write begin before it is told to."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        self.written: list[int] = []
        honest = sites._Scratch._write

        def write(scratch: sites._Scratch, place: sites._Place, arrays: Arrays) -> None:
            assert self.go.wait(60)
            honest(scratch, place, arrays)
            self.written += [number for number, own in scratch._places.items() if own is place]

        patch.setattr(sites._Scratch, "_write", write)


def test_a_client_that_is_being_written_is_used_from_memory(made: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    disk, kept = Slow(monkeypatch), spied(1, made)
    first = kept[0]
    work(first)
    kept[1]
    assert disk.written == []
    assert kept[0] is first and made == [0, 1]
    work(first)
    arrays = kept.arrays(0)
    assert arrays is not None and float(arrays["model.weight"].astype(np.float32)[0, 0]) == 2
    disk.go.set()
    kept[1]
    settle(kept)
    assert weight(kept[0]) == 2, "what was written first is out of date, and was written again"


def test_a_slow_disk_does_not_make_memory_grow(made: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    disk, kept = Slow(monkeypatch), spied(1, made)
    for number in range(1 + sites._MOST_IN_WRITING):
        kept[number]
    assert len(kept._leaving) == sites._MOST_IN_WRITING and disk.written == []
    disk.go.set()
    kept[9]
    assert len(kept._leaving) <= sites._MOST_IN_WRITING and disk.written[:1] == [0]


def test_a_full_disk_is_an_error_of_one_line_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(scratch: sites._Scratch, place: sites._Place, arrays: Arrays) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sites._Scratch, "_write", full)
    kept = Sites(1, make, {})
    with pytest.raises(
        ScratchError, match=r"No space left on device; make room, set TMPDIR .* clients_in_memory"
    ) as it:
        for number in range(10):
            kept[number]
    assert "\n" not in str(it.value)


def test_a_client_of_an_earlier_run_is_read_when_it_is_asked_for(made: list[int]) -> None:
    old = make(4, None)
    work(old)
    saved = {4: {name: array.copy() for name, array in old.arrays().items()}}
    kept = spied(1, made, saved)
    assert weight(kept[4]) == 1
    work(kept[4])
    assert weight(kept[5]) == 0
    settle(kept)
    assert weight(kept[4]) == 2, "and from then on it is the new one"


def test_the_disk_is_given_back_whatever_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(KeyError), LocalTransport(replace(setup(), clients_in_memory=1), data(), 1) as transport:
        list(transport.exchange(server().open_round()))
        assert transport._host is not None
        scratch = transport._host._sites._scratch
        assert len(scratch._places) == CLIENTS - 1 and not scratch._file.closed
        assert list(tmp_path.glob("scarlet*")) == [], "the file has no name"
        raise KeyError
    assert scratch._file.closed


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("limit", [1, 2])
def test_messages_and_weights_are_the_same_bytes_whatever_the_limit(
    workers: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = play(1)
    limited = replace(setup(), clients_in_memory=limit)
    monkeypatch.setattr("tests.transport.test_local.setup", lambda: limited)
    assert play(workers) == expected


@pytest.mark.parametrize("limit", [1, None])
def test_only_clients_that_were_asked_have_a_state_and_the_others_have_the_first_weights(limit: int | None) -> None:
    with LocalTransport(replace(setup(), clients_in_memory=limit), data(), 2) as transport:
        downlinks = server().open_round()
        list(transport.exchange({k: downlinks[k] for k in (1, 3)}))
        assert set(transport.states(range(CLIENTS))) == {1, 3}
        first, digests = weights_digest(setup().weights), transport.digests()
        assert [digest == first for digest in digests] == [True, False, True, False, True]


SHORT = scarlet.Config(
    rounds=4,
    clients=4,
    samples_per_client=40,
    test_per_client=20,
    public_size=60,
    public_per_round=30,
    local_epochs=1,
    distil_epochs=1,
    participation=0.75,
    workers=1,
)


@pytest.mark.parametrize(
    "method",
    [
        ScarletConfig(cache_duration=2),
        CfdConfig(delta=True),
        CometConfig(assign="server"),
        CometConfig(assign="client", cache_duration=2),
    ],
    ids=["scarlet", "cfd with delta", "comet by the server", "comet with a cache"],
)
def test_a_run_does_not_depend_on_how_many_clients_are_in_memory(method: Any) -> None:
    one, all_of_them = (
        scarlet.run(method, replace(SHORT, clients_in_memory=limit)).summary["weights_digest"] for limit in (1, None)
    )
    assert one == all_of_them is not None


def test_the_bytes_of_a_client_are_those_of_its_arrays_and_images() -> None:
    for method in (METHOD, replace(METHOD, delta=True), replace(METHOD, teachers=3)):
        client = Client(0, method, FEDERATION, codec("compact"))
        held = sum(
            array.nbytes for name, array in client_arrays(client.state).items() if array.ndim and len(array) > 16
        )
        assert site_bytes(method, FEDERATION, 1000, 500) == 1500 + held


def test_as_many_clients_are_in_memory_as_the_budget_has_room_for() -> None:
    assert in_memory(None, 10_000, int(sites.BUDGET / 100)) == 100
    assert in_memory(None, 10, int(sites.BUDGET / 100)) == 10
    assert in_memory(None, 10, int(3 * sites.BUDGET)) == 1
    assert in_memory(7, 10_000, int(3 * sites.BUDGET)) == 7


@pytest.mark.parametrize(
    ("wanted", "workers", "limit"),
    [(None, 1, 5), (None, 2, 5), (5, 3, 5), (4, 2, 2), (1, 2, 1), (3, 2, 1)],
)
def test_workers_share_the_room_and_where_there_is_enough_none_of_them_spills(
    wanted: int | None, workers: int, limit: int
) -> None:
    host = Host(replace(setup(), clients_in_memory=wanted, workers=workers), data(), {})
    assert host._sites._limit == limit
