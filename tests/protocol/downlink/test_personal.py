"""Each client is taught by the teacher that the server chose for it; whoever did not answer, by the mean."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scarlet.arrays import Labels
from scarlet.errors import ConfigError, MessageError
from scarlet.methods.comet import CometConfig, comet
from scarlet.methods.parts.mean import mean
from scarlet.protocol.downlink.personal import Lesson, Lessons, Personal
from scarlet.protocol.method import Method
from tests.protocol.federation import Federation, Table, contents
from tests.protocol.one_client import NUMBER, SIZE, TAUGHT, first, i64, job_of, new_client, sent

PERSONAL = Method(mean(), downlink=Personal(2))
LESSON = Lesson(3, 0, NUMBER, TAUGHT)
THIRD = first(i64(0), round=3)


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        (Labels(i64(2, SIZE), TAUGHT.value), "names sample 10; the public dataset has 10"),
        (Labels(TAUGHT.index, np.ones((2, 3), np.float32)), r"labels of shape \(3,\), not \(2,\)"),
    ],
    ids=["samples", "classes"],
)
def test_a_lesson_of_samples_or_classes_that_there_are_not_is_refused_and_changes_nothing(
    bad: Labels, complaint: str
) -> None:
    client = new_client(PERSONAL)
    before = contents(client.state)
    with pytest.raises(MessageError, match=complaint):
        client.receive(sent(client, THIRD, replace(LESSON, labels=bad)))
    assert contents(client.state) == before


def test_a_request_beyond_the_public_dataset_is_refused() -> None:
    client = new_client(PERSONAL)
    with pytest.raises(MessageError, match="names sample 10; the public dataset has 10"):
        client.receive(sent(client, first(i64(SIZE), round=3), LESSON))


def test_the_first_round_has_no_lesson_and_teaches_nothing() -> None:
    assert job_of(new_client(PERSONAL), first(i64(1))).teacher.value.shape == (0, 2)


def test_whoever_did_not_answer_a_sample_is_taught_its_mean() -> None:
    value = np.arange(2 * 3 * 2, dtype=np.float32).reshape(2, 3, 2)  # two teachers and their mean
    lessons = Lessons(i64(4, 7), value, i64(0, 3), np.array([[1, 0], [2, 1]], np.int32), drawn=0)
    assert lessons.of(0).value.tolist() == [value[0, 1].tolist(), value[1, 0].tolist()]
    assert lessons.of(3).value.tolist() == [value[0, 2].tolist(), value[1, 1].tolist()]
    assert lessons.of(1).value.tolist() == value[:, 2].tolist()


def test_a_lesson_is_of_the_attempt_at_which_its_round_was_closed() -> None:
    """The compact codec leaves out the samples, which follow from that attempt."""
    federation = Federation(comet(CometConfig(assign="server")), learner=Table(), coding="compact")
    federation.play()
    federation.open()
    assert federation.server.close_round() is None
    closed = federation.play()
    assert closed.attempt == 1
    federation.open()
    assert [job.teacher.index.tolist() for job in federation.jobs] == [closed.taught.index.tolist()] * 4


def test_a_cache_holds_what_all_share_so_the_server_cannot_assign_teachers_beside_one() -> None:
    with pytest.raises(ConfigError, match=r"^assign must be client where there is a cache, got server; [^\n]*$"):
        comet(CometConfig(assign="server", cache_duration=2))
