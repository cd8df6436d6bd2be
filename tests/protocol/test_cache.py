from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from scarlet.arrays import Index, Labels
from scarlet.errors import ConfigError, MessageError
from scarlet.protocol.cache import ABSENT, CacheTable, Duration, NoCache, OnExpiry, recall, store
from scarlet.protocol.messages import Signal, Sync
from tests.protocol import algorithm2
from tests.protocol.algorithm2 import GlobalCache, Label, LocalCache

MODES: tuple[OnExpiry, ...] = ("delete", "refresh")
HISTORIES = 1_250  # of each mode
CLASSES = 2
NAMES = {int(signal): signal.name for signal in Signal}


@dataclass(frozen=True)
class Drawn:
    """One round of a history: the samples that were drawn, a label for each, and who of them would be answered."""

    round: int
    index: Index
    value: npt.NDArray[np.float32]  # [n, N], no two labels of a history alike
    answered: npt.NDArray[np.bool_]  # [n]


@dataclass(frozen=True)
class History:
    size: int
    policy: Duration
    rounds: list[Drawn]


def apply(table: CacheTable, sync: Sync) -> Labels:
    """What a client does with a sync."""
    labels = recall(table, sync)
    store(table, sync)
    return labels


def history(seed: int, on_expiry: OnExpiry) -> History:
    """A random public set, D from 0, and rounds of random draws in which some samples stay unanswered."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 16))
    per_round = int(rng.integers(1, size + 1))
    answering = rng.choice([1.0, 0.8, 0.4])
    rounds = []
    for round in range(1, 13):
        index = np.sort(rng.choice(size, per_round, replace=False)).astype(np.int64)
        value = np.stack([np.full(per_round, round), index], axis=1).astype(np.float32)
        rounds.append(Drawn(round, index, value, rng.random(per_round) < answering))
    return History(size, Duration(int(rng.integers(0, 7)), on_expiry), rounds)


def fresh_labels(drawn: Drawn, request: Index) -> Labels:
    """The aggregate of what was requested and answered."""
    chosen = np.isin(drawn.index, request) & drawn.answered
    return Labels(drawn.index[chosen], drawn.value[chosen])


def play(history: History, table: CacheTable) -> Iterator[tuple[Drawn, Sync]]:
    for drawn in history.rounds:
        request = history.policy.request(table, drawn.index, drawn.round)
        yield drawn, history.policy.commit(table, fresh_labels(drawn, request), drawn.index, drawn.round)


def one_round(table: CacheTable, policy: Duration, round: int, value: float, *samples: int) -> Sync:
    """A round of some samples in which every one that is requested is answered by the same label."""
    index = np.array(samples, np.int64)
    request = policy.request(table, index, round)
    return policy.commit(table, Labels(request, np.full((len(request), CLASSES), value, np.float32)), index, round)


def entries(table: CacheTable) -> GlobalCache:
    rows = enumerate(zip(table.value.tolist(), table.stamp.tolist(), strict=True))
    return {i: (tuple(value), stamp) for i, (value, stamp) in rows if stamp != ABSENT}


def as_dict(labels: Labels) -> dict[int, Label]:
    return {i: tuple(row) for i, row in zip(labels.index.tolist(), labels.value.tolist(), strict=True)}


def signals(sync: Sync) -> list[tuple[int, str]]:
    assert sync.signal is not None
    return [(i, NAMES[s]) for i, s in zip(sync.index.tolist(), sync.signal.tolist(), strict=True)]


def assert_same_tables(a: CacheTable, b: CacheTable) -> None:
    assert np.array_equal(a.stamp, b.stamp)
    assert np.array_equal(a.value, b.value)


@pytest.mark.parametrize("on_expiry", MODES)
def test_the_vectorised_cache_equals_algorithm_2_on_random_histories(on_expiry: OnExpiry) -> None:
    seen = dict.fromkeys(("CACHED", "NEWLY_CACHED", "EXPIRED", "dropped"), 0)
    for seed in range(HISTORIES):
        case = history(seed, on_expiry)
        policy, D = case.policy, case.policy.duration
        server, client = (CacheTable.empty(case.size, CLASSES) for _ in range(2))
        global_cache: GlobalCache = {}
        local_cache: LocalCache = {}
        for drawn in case.rounds:
            t, index = drawn.round, drawn.index.tolist()
            request = policy.request(server, drawn.index, t)
            where = f"seed {seed}, round {t}"
            assert request.tolist() == algorithm2.compute_request(global_cache, index, t, D), where

            fresh = fresh_labels(drawn, request)
            expected = algorithm2.assemble(global_cache, as_dict(fresh), index, t, D)
            expected_signals = algorithm2.update_global_cache(
                global_cache, expected, index, t, D, refresh=on_expiry == "refresh"
            )
            expected_dropped = [i for i in index if i not in expected]
            sync = policy.commit(server, fresh, drawn.index, t)
            assert sync.round == t
            assert signals(sync) == list(expected_signals.items()), where
            assert sync.dropped.tolist() == expected_dropped, where
            assert entries(server) == global_cache, where
            assert as_dict(recall(server, sync)) == expected, where

            taught = algorithm2.update_local_cache(
                local_cache, expected_signals, list(as_dict(fresh).values()), expected_dropped
            )
            assert taught == expected
            assert as_dict(apply(client, sync)) == taught, where
            assert {i: label for i, (label, _) in entries(client).items()} == local_cache, where
            assert_same_tables(client, server)

            for name in [*expected_signals.values(), *["dropped"] * len(expected_dropped)]:
                seen[name] += 1
    assert min(seen[name] for name in ("CACHED", "NEWLY_CACHED", "dropped")) > 1_000
    assert (seen["EXPIRED"] > 1_000) == (on_expiry == "delete")


@pytest.mark.parametrize("on_expiry", MODES)
def test_storing_a_round_twice_is_harmless(on_expiry: OnExpiry) -> None:
    for seed in range(100):
        case = history(seed, on_expiry)
        table = CacheTable.empty(case.size, CLASSES)
        for _, sync in play(case, table):
            once = deepcopy(table)
            store(table, sync)
            assert_same_tables(table, once)


@pytest.mark.parametrize("on_expiry", MODES)
@pytest.mark.parametrize("D", [1, 2, 5, 50])
def test_entry_of_age_exactly_D_is_a_hit_on_both_sides(D: int, on_expiry: OnExpiry) -> None:
    server, client = (CacheTable.empty(4, CLASSES) for _ in range(2))
    policy = Duration(D, on_expiry)
    apply(client, one_round(server, policy, 1, 0.25, 2))
    assert not len(policy.request(server, np.array([2]), 1 + D))
    sync = one_round(server, policy, 1 + D, 0.75, 2)
    assert signals(sync) == [(2, "CACHED")]
    assert as_dict(recall(server, sync)) == as_dict(apply(client, sync)) == {2: (0.25, 0.25)}
    assert entries(server) == entries(client) == {2: ((0.25, 0.25), 1)}


@pytest.mark.parametrize("D", [0, 1, 2, 5, 50])
@pytest.mark.parametrize(
    ("on_expiry", "signal", "entries_after"), [("delete", "EXPIRED", False), ("refresh", "NEWLY_CACHED", True)]
)
def test_entry_of_age_D_plus_1_is_a_miss_on_both_sides(
    D: int, on_expiry: OnExpiry, signal: str, entries_after: bool
) -> None:
    server, client = (CacheTable.empty(4, CLASSES) for _ in range(2))
    policy = Duration(D, on_expiry)
    apply(client, one_round(server, policy, 1, 0.25, 2))
    assert policy.request(server, np.array([2]), 2 + D).tolist() == [2]
    sync = one_round(server, policy, 2 + D, 0.75, 2)
    assert signals(sync) == [(2, signal)]
    assert as_dict(recall(server, sync)) == as_dict(apply(client, sync)) == {2: (0.75, 0.75)}
    assert entries(server) == entries(client) == ({2: ((0.75, 0.75), 2 + D)} if entries_after else {})


@pytest.mark.parametrize("on_expiry", MODES)
def test_duration_0_never_hits(on_expiry: OnExpiry) -> None:
    table = CacheTable.empty(3, CLASSES)
    for round in range(1, 8):
        sync = one_round(table, Duration(0, on_expiry), round, round, 0, 2)
        assert as_dict(recall(table, sync)) == {0: (round, round), 2: (round, round)}


@pytest.mark.parametrize("on_expiry", MODES)
def test_a_round_of_hits_alone_requests_nothing_and_still_teaches(on_expiry: OnExpiry) -> None:
    server, client = (CacheTable.empty(5, CLASSES) for _ in range(2))
    policy = Duration(3, on_expiry)
    first = as_dict(apply(client, one_round(server, policy, 1, 0.25, 1, 3, 4)))
    assert not len(policy.request(server, np.array([1, 3, 4]), 2))
    sync = one_round(server, policy, 2, 0.75, 1, 3, 4)
    assert sync.fresh.shape == (0, CLASSES)
    assert as_dict(recall(server, sync)) == as_dict(apply(client, sync)) == first


def test_reuse_of_a_sample_that_a_client_lacks_is_a_message_error_that_names_it() -> None:
    server, client = (CacheTable.empty(9, CLASSES) for _ in range(2))
    policy = Duration(5)
    apply(client, one_round(server, policy, 1, 0.25, 1))
    one_round(server, policy, 2, 0.5, 4, 7)  # which the client never sees
    sync = one_round(server, policy, 3, 0.75, 0, 1, 4, 7)
    before = deepcopy(client)
    with pytest.raises(MessageError, match=r"^round 3 reuses 2 samples that are not in the cache, first 4$"):
        apply(client, sync)
    assert_same_tables(client, before)


def test_without_a_cache_everything_is_requested_and_nothing_is_kept() -> None:
    server, client = (CacheTable.empty(6, CLASSES) for _ in range(2))
    index = np.array([0, 2, 5])
    for round in range(1, 4):
        assert NoCache().request(server, index, round).tolist() == [0, 2, 5]
        fresh = Labels(index[:2], np.full((2, CLASSES), round, np.float32))  # nobody answers sample 5
        sync = NoCache().commit(server, fresh, index, round)
        assert sync.signal is None
        assert as_dict(recall(server, sync)) == as_dict(apply(client, sync)) == as_dict(fresh)
    assert entries(server) == entries(client) == {}


def test_a_negative_duration_is_a_config_error_with_the_remedy() -> None:
    expected = r"^cache_duration must be 0 or more, got -1; use 0 to switch caching off$"
    with pytest.raises(ConfigError, match=expected):
        Duration(-1)


def test_an_unknown_mode_of_expiry_is_a_config_error_with_the_choices() -> None:
    with pytest.raises(ConfigError, match=r"^on_expiry must be delete or refresh, got 'keep'; delete is the paper's$"):
        Duration(5, "keep")  # type: ignore[arg-type]
