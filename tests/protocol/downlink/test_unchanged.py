"""Delta coding of what is taught, against a policy that takes one sample after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from scarlet.arrays import Index, Labels, Values
from scarlet.methods.parts.mean import mean
from scarlet.protocol.cache import ABSENT, CacheTable, Duration, OnExpiry, recall, store
from scarlet.protocol.downlink.shared import Shared
from scarlet.protocol.messages import CatchUp, Signal
from scarlet.protocol.method import Method
from scarlet.protocol.server import Participation
from scarlet.protocol.unchanged_labels import Unchanged
from scarlet.protocol.uplink.labels import Answer
from scarlet.wire import frame
from tests.protocol.federation import AGREEMENT, Federation, same_labels

MODES: tuple[OnExpiry, ...] = ("delete", "refresh")
HISTORIES = 250  # of each mode and shape


@dataclass
class Slow:
    """The policy, one sample after the other: what is held, since when, and what is announced of each sample."""

    duration: int
    on_expiry: OnExpiry
    held: dict[int, tuple[bytes, int]] = field(default_factory=dict)

    def request(self, index: list[int], t: int) -> list[int]:
        return [i for i in index if i not in self.held or t - self.held[i][1] > self.duration]

    def commit(self, fresh: Mapping[int, bytes], index: list[int], t: int) -> tuple[dict[int, Signal], list[int]]:
        """The signal of each sample that stays in the round, and the samples that leave it."""
        request, signals, dropped = self.request(index, t), {}, []
        for i in index:
            if i not in request:
                signals[i] = Signal.CACHED
            elif i not in fresh:
                dropped.append(i)
                self.held.pop(i, None)
            elif i in self.held and self.on_expiry == "delete":
                signals[i] = Signal.EXPIRED
                del self.held[i]
            elif i in self.held and self.held[i][0] == fresh[i]:
                signals[i] = Signal.UNCHANGED
                self.held[i] = fresh[i], t
            else:
                signals[i] = Signal.NEWLY_CACHED
                self.held[i] = fresh[i], t
        return signals, dropped


@pytest.mark.parametrize("shape", [(2,), (2, 2)], ids=["one label", "two teachers"])
@pytest.mark.parametrize("on_expiry", MODES)
def test_a_label_is_announced_as_unchanged_only_if_it_is_the_one_held_to_the_bit(
    on_expiry: OnExpiry, shape: tuple[int, ...]
) -> None:
    """Random histories of labels, many of which repeat, or repeat in all entries but one, against the slow policy."""
    seen: Counter[Signal] = Counter()
    for seed in range(HISTORIES):
        rng = np.random.default_rng([seed, len(shape)])
        size, duration = int(rng.integers(1, 10)), int(rng.integers(0, 4))
        slow, policy = Slow(duration, on_expiry), Unchanged(Duration(duration, on_expiry))
        server, client = CacheTable.empty(size, *shape), CacheTable.empty(size, *shape)
        near = np.nextafter(np.float32(0.5), np.float32(1))
        for t in range(1, 13):
            index = np.sort(rng.choice(size, int(rng.integers(1, size + 1)), replace=False)).astype(np.int64)
            request = policy.request(server, index, t)
            assert request.tolist() == slow.request(index.tolist(), t)
            answered = request[rng.random(len(request)) < 0.85]
            value = rng.choice([0.5, near], (len(answered), *shape), p=[0.75, 0.25]).astype(np.float32)
            sync = policy.commit(server, Labels(answered, value), index, t)
            fresh = {sample: row.tobytes() for sample, row in zip(answered.tolist(), value, strict=True)}
            signals, dropped = slow.commit(fresh, index.tolist(), t)
            assert sync.signal is not None
            assert dict(zip(sync.index.tolist(), sync.signal.tolist(), strict=True)) == signals
            assert sync.dropped.tolist() == dropped
            sent = [i for i, signal in signals.items() if signal in (Signal.NEWLY_CACHED, Signal.EXPIRED)]
            assert [row.tobytes() for row in sync.fresh] == [fresh[i] for i in sent]
            taught = recall(client, sync)
            store(client, sync)
            hits = {i: slow.held[i][0] for i, signal in signals.items() if signal == Signal.CACHED}
            assert {i: row.tobytes() for i, row in zip(taught.index.tolist(), taught.value, strict=True)} == {
                i: hits[i] if i in hits else fresh[i] for i in signals
            }
            for table in (server, client):
                held = np.flatnonzero(table.stamp != ABSENT).tolist()
                assert {i: (table.value[i].tobytes(), int(table.stamp[i])) for i in held} == slow.held
            seen.update(signals.values())
    # Of an entry that is deleted when it expires, nothing is left that could be unchanged.
    gone_or_same = Signal.EXPIRED if on_expiry == "delete" else Signal.UNCHANGED
    assert set(seen) == {Signal.CACHED, Signal.NEWLY_CACHED, gone_or_same}
    assert min(seen.values()) > 100


def taught(duration: int) -> Method:
    """Labels of one bit, of which many repeat, announced where they do."""
    downlink = Shared(Unchanged(Duration(duration, "refresh")))
    return Method(aggregate=mean(), downlink=downlink, uplink_bits=1, downlink_bits=1)


@pytest.mark.parametrize(("missed", "again"), [(0, False), (1, False), (62, False), (63, True), (130, True)])
def test_a_label_that_never_changes_is_sent_again_to_who_was_away_for_more_than_62_rounds(
    missed: int, again: bool
) -> None:
    agreement = replace(AGREEMENT, clients=2, public_per_round=AGREEMENT.public_size)
    federation = Federation(
        taught(0), agreement, say=lambda client, round, index, classes: np.eye(3, dtype=np.float32)[index % 3]
    )
    federation.play()
    federation.play()
    for _ in range(missed):
        downlinks = federation.server.open_round()
        federation.jobs = []
        federation.deliver({1: downlinks[1]})
        federation.take(federation.replies())
        federation.close()
    federation.open()
    assert not federation.resyncs
    assert same_labels(federation.jobs[0].teacher, federation.jobs[1].teacher)
    assert federation.jobs[0].teacher.index.tolist() == list(range(agreement.public_size))
    sync = federation.server.state.downlink.sync
    assert set(sync.signal.tolist()) == {Signal.UNCHANGED}
    assert (federation.ledger.round_total("catch_up").size > 0) == again
    assert federation.handed.get(1, {})["catch_up"] == 0


def test_a_client_that_was_away_is_sent_exactly_the_held_labels_that_the_server_cannot_know_it_holds() -> None:
    """Against sets of rounds: those a client acknowledged, and those that drew a sample since its label changed."""
    agreement = replace(AGREEMENT, clients=5, public_per_round=2)

    def say(client: int, round: int, index: Index, classes: int) -> Values:
        return np.eye(classes, dtype=np.float32)[(index + round // 90) % classes]

    federation = Federation(taught(1), agreement, Participation(0.4), say=say)
    server, rng = federation.server, np.random.default_rng(0)
    drawn: dict[int, set[int]] = {sample: set() for sample in range(agreement.public_size)}
    acknowledged: dict[int, set[int]] = {client: set() for client in range(agreement.clients)}
    caught_up = spared = forgotten = 0
    for _ in range(300):
        sync = server.state.downlink.sync
        held = [] if sync is None else sync.index[sync.held].tolist()
        downlinks = server.open_round()
        for client, downlink in downlinks.items():
            remembered = {round for round in acknowledged[client] if round > server.state.round - 64}
            lacked = [sample for sample in held if not drawn[sample] & remembered]
            parts = [part for part in map(federation.codec.decode, frame.split(downlink)) if isinstance(part, CatchUp)]
            assert [part.labels.index.tolist() for part in parts] == ([lacked] if lacked else [])
            caught_up, spared = caught_up + len(lacked), spared + len(held) - len(lacked)
            forgotten += sum(bool(drawn[sample] & acknowledged[client]) for sample in lacked)
        federation.jobs = []
        federation.deliver(downlinks)
        assert not federation.resyncs
        for client, data in federation.replies():
            if rng.random() < 0.8:
                server.take(client, data)
                if isinstance(federation.codec.decode(data), Answer):
                    acknowledged[client].add(server.state.round)
        if server.close_round() is not None:
            sync = server.state.downlink.sync
            for sample, is_held in zip(sync.index.tolist(), sync.held.tolist(), strict=True):
                drawn[sample] = (drawn[sample] if is_held else set()) | {sync.round}
    assert caught_up > 50
    assert spared > 50
    assert forgotten > 0
