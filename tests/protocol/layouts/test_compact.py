"""What the compact codec leaves out, clients derive: whatever goes wrong, they are taught and asked the same."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from scarlet.errors import MessageError
from scarlet.job import Job, Result
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.protocol.messages import Resync, Signal
from scarlet.wire import frame
from tests.protocol.disturbed import METHODS, Disturbed, calm, disturbances
from tests.protocol.federation import Federation, contents, entries, same_labels, soft_labels

ROUNDS = 30
each_method = pytest.mark.parametrize("name", METHODS)


@each_method
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_every_client_is_taught_and_asked_what_the_server_says_whatever_goes_wrong(name: str, share: float) -> None:
    compact, reference = (Disturbed(name, coding, share) for coding in ("compact", "reference"))
    ours, theirs = (disturbances(len(name)) for _ in range(2))
    for _ in range(ROUNDS):
        assert same_labels(compact.endure(ours), reference.endure(theirs))
        one, other = (federation.server.state.downlink for federation in (compact, reference))
        if hasattr(one, "cache"):
            assert entries(one.cache) == entries(other.cache)
        else:
            assert contents(one) == contents(other)
    assert compact.size() < reference.size()


def test_what_goes_wrong_does() -> None:
    federation = Disturbed("scarlet, refresh, D 2", "compact", 0.5)
    seen = list(zip(range(60), disturbances(0), strict=False))
    assert sum(now.fails for _, now in seen) > 5
    assert sum(bool(now.loses_memory) for _, now in seen) > 3
    assert sum(bool(now.is_restored) for _, now in seen) > 3
    events = disturbances(0)
    for _ in range(ROUNDS):
        federation.endure(events)
    stamps = federation.server.state.downlink.stamps
    assert any(each.attempt for each in stamps.exceptions)
    assert any(len(each.dropped) for each in stamps.exceptions)
    assert federation.resets > 0
    assert federation.ledger.total["catch_up"].size > 0


def test_labels_as_they_were_are_announced_and_not_sent() -> None:
    federation = Disturbed("cfd, delta, cache", "compact")
    events = disturbances(0)
    unchanged = 0
    for _ in range(ROUNDS):
        federation.endure(events)
        unchanged += int(np.count_nonzero(federation.server.state.downlink.sync.signal == Signal.UNCHANGED))
    assert unchanged > 5


def test_labels_that_are_no_distributions_are_rejected_and_do_not_become_certain() -> None:
    federation = Federation(scarlet(ScarletConfig()), coding="compact")
    for number, downlink in federation.server.open_round().items():
        job = federation.clients[number].receive(downlink)
        assert isinstance(job, Job)
        value = soft_labels(number, 1, job.request)
        value[3] = np.nan if number == 0 else value[3]
        for data in federation.clients[number].reply(job, Result(value, {})):
            federation.server.take(number, data)
    assert dict(federation.server.rejections) == {"unnormalised": 1}
    assert federation.close().answers == 3


def test_a_client_that_keeps_no_labels_need_not_know_of_the_rounds_that_it_missed() -> None:
    federation = Disturbed("fedavg", "compact")
    events = disturbances(0)
    for _ in range(ROUNDS):
        federation.endure(events)
    assert federation.resets == 0
    assert federation.ledger.total["catch_up"].size == 0


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", ["scarlet, refresh, D 2", "scarlet, delete, D 1000", "cfd, delta, cache", "dsfl"])
def test_clients_follow_a_server_that_is_set_back_to_rounds_before_those_that_they_heard_of(
    name: str, seed: int
) -> None:
    federation = Disturbed(name, "compact", 0.5, seed)
    events = disturbances(seed)
    for _ in range(4):
        federation.endure(events)
    server, taught = deepcopy((federation.server, federation.taught))
    for _ in range(1 + seed % 3):
        federation.endure(events)
    federation.server, federation.taught = server, taught
    for _ in range(8):  # none fails: a client that hears the same as before gives its old answer at once
        federation.endure(replace(each, fails=False) for each in events)


def far_ahead(federation: Federation, round: int) -> bytes:
    """A downlink of a federation, as if it were of another round."""
    first = frame.split(federation.server.open_round()[0])[0]
    outer = frame.unwrap(first)
    return frame.wrap(outer.kind, round, outer.attempt, bytes(outer.body))


@pytest.mark.parametrize("round", [2**20, 2**31 - 1])
def test_a_client_that_missed_very_many_rounds_asks_for_the_stamps_and_does_not_derive_them(round: int) -> None:
    federation = Federation(scarlet(ScarletConfig()), coding="compact")
    federation.play()
    answer = federation.clients[0].receive(far_ahead(federation, round))
    assert isinstance(answer, list)
    assert isinstance(federation.codec.decode(answer[0]), Resync)


@pytest.mark.parametrize("round", [2**31, 2**32 - 1])
@pytest.mark.parametrize("name", ["scarlet, refresh, D 2", "dsfl"])
def test_a_round_that_no_stamp_can_hold_is_refused(name: str, round: int) -> None:
    federation = Disturbed(name, "compact")
    federation.endure(iter([calm()]))
    with pytest.raises(MessageError):
        federation.clients[0].receive(far_ahead(federation, round))
