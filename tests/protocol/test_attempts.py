"""A round with too few answers is tried again, as its next attempt."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from scarlet.arrays import Array
from scarlet.job import Job
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.protocol.messages import Broadcast
from scarlet.protocol.server import Participation
from scarlet.protocol.state import restore
from scarlet.protocol.uplink.labels import Answer
from scarlet.wire import frame
from scarlet.wire.ledger import Bytes
from tests.protocol.federation import AGREEMENT, METHODS, Federation, Reply, memory, same_labels, saved

PAST = 6  # rounds before the one that fails
EIGHT = replace(AGREEMENT, clients=8)
STRICT = Participation(0.5, min_answers=3)
Failed = tuple[Federation, list[Job], dict[str, Array]]


@pytest.fixture(params=["scarlet, delete", "scarlet, refresh"])
def failed(request: pytest.FixtureRequest) -> Failed:
    """A federation after an attempt with two answers where three are needed; its jobs, and the state before."""
    federation = Federation(METHODS[request.param](), EIGHT, STRICT)
    for _ in range(PAST):
        federation.play()
    before = saved(federation.server.state)
    federation.open()
    jobs = federation.jobs
    two = {job.client for job in jobs[:2]}
    federation.take([reply for reply in federation.replies() if reply[0] in two])
    assert federation.server.close_round() is None
    return federation, jobs, before


def test_too_few_answers_change_nothing_but_the_attempt_and_what_is_acknowledged(failed: Failed) -> None:
    federation, jobs, before = failed
    after = saved(federation.server.state)
    acknowledged = "downlink.holdings.acknowledged"
    assert before.keys() == after.keys()
    changed = {name for name in before if before[name].tobytes() != after[name].tobytes()}
    assert changed == {acknowledged, "(text)"}
    texts = [json.loads(arrays["(text)"].tobytes()) for arrays in (before, after)]
    assert texts[1] == texts[0] | {"attempt": 1}
    assert texts[0]["attempt"] == 0
    newly = after[acknowledged].astype(np.uint64) & ~before[acknowledged].astype(np.uint64)
    assert np.flatnonzero(newly.any(axis=1)).tolist() == [job.client for job in jobs[:2]]
    assert {int(bits).bit_count() for bits in newly[newly != 0]} == {1}


def test_the_next_attempt_has_its_own_number_and_its_own_draws(failed: Failed) -> None:
    federation, jobs, _ = failed
    downlinks = federation.server.open_round()
    (first, *_) = downlinks.values()
    broadcast = federation.codec.decode(frame.split(first)[0])
    assert isinstance(broadcast, Broadcast)
    assert (broadcast.round, broadcast.attempt) == (PAST + 1, 1)
    assert set(downlinks) != {job.client for job in jobs}
    assert broadcast.request.tolist() != jobs[0].request.tolist()


def test_who_answered_the_failed_attempt_is_not_caught_up_again(failed: Failed) -> None:
    federation, jobs, _ = failed
    sync = federation.server.state.downlink.sync
    hits = sync.index[sync.signal == 0]
    assert len(hits)
    for job in jobs[:2]:
        assert not federation.server.state.downlink.holdings.lacks(job.client, hits).any()


def test_an_answer_to_the_failed_attempt_is_of_another_round(failed: Failed) -> None:
    federation, jobs, _ = failed
    late = [(job.client, federation.clients[job.client].state.reply[0]) for job in jobs]
    federation.open()
    asked = {job.client for job in federation.jobs}
    for sender, data in late:
        before, counted = memory(federation.server), federation.ledger.round_total("rejected")
        federation.server.take(sender, data)
        assert memory(federation.server) == before
        assert federation.ledger.round_total("rejected") == counted + Bytes(0, len(data))
    federation.take(federation.replies())
    strangers = sum(sender not in asked for sender, _ in late)
    assert strangers < len(late)
    assert federation.close().rejections == {
        reason: count
        for reason, count in (("wrong round", len(late) - strangers), ("unknown client", strangers))
        if count
    }


def test_the_attempt_that_succeeds_says_so_and_the_next_round_starts_from_0(failed: Failed) -> None:
    federation, _, _ = failed
    federation.open()
    assert federation.server.close_round() is None
    closed = federation.play()
    assert (closed.round, closed.attempt, closed.answers) == (PAST + 1, 2, federation.asked)
    federation.open()
    assert {(job.round, job.attempt) for job in federation.jobs} == {(PAST + 2, 0)}
    assert all(same_labels(job.teacher, closed.taught) for job in federation.jobs)
    assert not federation.resyncs


def test_a_server_that_restarts_between_two_attempts_goes_on_with_the_second(failed: Failed) -> None:
    federation, _, _ = failed
    again = Federation(federation.method, EIGHT, STRICT)
    restore(again.server.state, saved(federation.server.state))
    assert again.server.open_round() == federation.server.open_round()


def test_a_new_server_saves_and_restores_as_well() -> None:
    federation, again = (Federation(scarlet(ScarletConfig())) for _ in range(2))
    restore(again.server.state, saved(federation.server.state))
    assert memory(again.server) == memory(federation.server)
    assert again.server.open_round() == federation.server.open_round()


def test_as_many_answers_as_are_needed_are_enough() -> None:
    federation = Federation(METHODS["dsfl"](), EIGHT, STRICT)

    def three(replies: list[Reply]) -> list[Reply]:
        return [reply for reply in replies if reply[0] in {job.client for job in federation.jobs[:3]}]

    assert federation.play(arrange=three).answers == 3


def test_an_answer_that_is_rejected_is_none_of_those_that_are_needed() -> None:
    federation = Federation(METHODS["dsfl"](), EIGHT, STRICT)
    federation.open()
    answers = [reply for reply in federation.replies() if isinstance(federation.codec.decode(reply[1]), Answer)]
    federation.take([*answers[:2], *answers[:2]])
    federation.server.take(answers[2][0], answers[2][1][:-1])
    assert federation.server.close_round() is None


def test_what_a_failed_attempt_rejected_and_cost_is_counted_with_the_round() -> None:
    federation = Federation(METHODS["scarlet, refresh"](), EIGHT, STRICT)
    federation.open()
    federation.server.take(federation.jobs[0].client, b"junk")
    assert federation.server.close_round() is None
    closed = federation.play()
    assert (closed.attempt, closed.rejections) == (1, {"unreadable": 1})
    for column in ("uplink", "downlink", "rejected"):
        assert federation.ledger.round_total(column) == federation.ledger.total[column]
