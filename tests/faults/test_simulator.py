"""The fault simulator finds nothing in the software as it is, and finds each of many deliberate bugs."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from scarlet.wire import frame
from tests.faults.__main__ import main
from tests.faults.bugs import BUGS, Bug, add_a_duplicate_twice, keep_the_stamps_of_rounds_that_never_happened
from tests.faults.bugs_of_methods import BUGS_OF
from tests.faults.judge import Violation
from tests.faults.methods import METHODS
from tests.faults.play import Play
from tests.faults.schedule import drawn, play_schedule

SCHEDULES = 200
OF_EACH_METHOD = 40


@pytest.mark.parametrize("part", range(4))
def test_no_schedule_of_faults_breaks_an_invariant(part: int) -> None:
    events: Counter[str] = Counter()
    for seed in range(part * SCHEDULES // 4, (part + 1) * SCHEDULES // 4):
        events += play_schedule(seed)
    for event in (
        "drop",
        "delay",
        "duplicate",
        "tamper",
        "client crash",
        "server crash",
        "wipe",
        "answers without labels",
        "client disk full",
        "resync",
        "rejected: unreadable",
        "rejected: wrong round",
        "rejected: second answer",
    ):
        assert events[event] > 0, f"the schedules never had: {event}"


# What is rare in a method's rounds, and must have been played.
RARE = {
    "scarlet": {"rounds of hits only", "resync"},
    "cfd": {"rounds of hits only", "labels not sent again", "labels announced as unchanged", "resync"},
    "comet": {"rounds of hits only", "resync"},
    "selective-fd": {"rounds of hits only", "samples that nobody answered", "resync"},
}


@pytest.mark.parametrize("method", METHODS)
def test_no_schedule_of_a_method_breaks_an_invariant(method: str) -> None:
    events: Counter[str] = Counter()
    for seed in range(OF_EACH_METHOD):
        events += play_schedule(seed, method=method)
    for event in {"client crash", "server crash", "wipe", "rejected: unreadable"} | RARE.get(method, set()):
        assert events[event] > 0, f"the schedules never had: {event}"


@pytest.mark.parametrize("method", ["scarlet", "cfd", "comet", "fedavg"])
def test_a_downlink_that_is_cut_between_two_of_its_messages_breaks_no_invariant(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left looks whole, and a cut at random hardly ever leaves it."""
    honest, cuts = Play._tampered, 0

    def cut(self: Play, data: bytes) -> bytes:
        nonlocal cuts
        parts = frame.split(data)
        cuts += len(parts) > 1
        return parts[0] if len(parts) > 1 else honest(self, data)

    monkeypatch.setattr(Play, "_tampered", cut)
    for seed in range(2 * OF_EACH_METHOD):
        _, _, faults = drawn(seed, method=method)
        if faults.tamper:  # in the others nothing is cut
            play_schedule(seed, method=method)
    assert cuts > 10


@pytest.mark.parametrize("name", METHODS)
def test_no_schedule_of_faults_breaks_an_invariant_where_draws_are_derived(name: str) -> None:
    for seed in range(25):
        play_schedule(seed, "compact", name)


def test_a_schedule_is_the_same_every_time() -> None:
    assert play_schedule(7) == play_schedule(7)


# The first schedule that finds a bug, where that is not among the first few.
FOUND_BY = {
    "digest_the_samples_but_not_the_values": 117,
    "forget_to_keep_the_reply": 5,
    "save_before_the_answer": 5,
    "restore_a_client_without_its_model": 5,
    "keep_the_stamps_of_rounds_that_never_happened": 48,
    "take_back_the_name_and_not_the_labels": 5,
    "take_what_is_announced_for_held_by_all": 29,
    "lose_the_accepted_labels": 5,
    "forget_ones_own_answers": 16,
    "send_a_lesson_to_the_wrong_client": 6,
    "lose_the_lessons": 6,
}


def seeds(bug: Bug) -> list[int]:
    """Of all the schedules that may find a bug; the one that is known to find it comes first."""
    return sorted(range(SCHEDULES), key=lambda seed: seed != FOUND_BY.get(bug.__name__, 0))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_deliberate_bug_is_found_within_200_schedules(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    for seed in seeds(bug):
        try:
            play_schedule(seed, method="scarlet")
        except Exception:  # a violation, or an error that the bug leads to
            return
    pytest.fail(f"{SCHEDULES} schedules did not find: {bug.__name__}")


@pytest.mark.parametrize(
    ("method", "bug"),
    [pytest.param(method, bug, id=f"{method}: {bug.__name__}") for method, bugs in BUGS_OF.items() for bug in bugs],
)
def test_a_deliberate_bug_in_a_method_is_found_within_200_of_its_schedules(
    method: str, bug: Bug, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    assert violated(bug, "reference", method), f"{SCHEDULES} schedules of {method} did not find: {bug.__name__}"


def test_clients_that_keep_the_stamps_of_rounds_that_never_happened_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    bug = keep_the_stamps_of_rounds_that_never_happened
    bug(monkeypatch)
    assert violated(bug, "compact", "scarlet"), f"{SCHEDULES} schedules did not find that stamps are not compared"


def violated(bug: Bug, codec: str, method: str) -> bool:
    """Whether a schedule breaks an invariant."""
    for seed in seeds(bug):
        try:
            play_schedule(seed, codec, method)
        except Violation:
            return True
    return False


def test_a_failing_schedule_prints_the_command_that_replays_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add_a_duplicate_twice(monkeypatch)
    assert main(["--schedules", "40"]) == 1
    complaint = capsys.readouterr().err
    command = shlex.split(next(line.partition("replay: ")[2] for line in complaint.splitlines() if "replay: " in line))
    assert main(command[3:]) == 1
    monkeypatch.undo()
    assert main(command[3:]) == 0
    root = Path(__file__).parents[2]
    assert subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout


def test_workers_play_the_same_schedules(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--schedules", "4"]) == 0
    events = capsys.readouterr().out.splitlines()[0]
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.faults", "--schedules", "4", "--workers", "2"]
    played = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    assert played.stdout.splitlines()[0] == events


@pytest.mark.parametrize("words", ["--schedules 0", "--seed -1", "--codec nothing", "--workers many"])
def test_an_option_that_makes_no_sense_is_an_error_that_names_it(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words.split())
    option, value = words.split()
    complaint = capsys.readouterr().err.splitlines()[-1]
    assert option in complaint and value in complaint
