"""The fault simulator finds nothing in the software as it is, and finds each of several deliberate bugs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from hashlib import blake2b

import pytest

from scarlet.chaos import play_schedule
from scarlet.checkpoint import Store
from scarlet.cli import main
from scarlet.core.cache import ABSENT, CacheTable, Duration
from scarlet.core.client import Client
from scarlet.core.holdings import Holdings
from scarlet.core.server import Server
from scarlet.core.types import Index, Labels

SCHEDULES = 200
Patch = Callable[[pytest.MonkeyPatch], None]


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
        "client disk full",
        "resync",
        "rejected: unreadable",
        "rejected: wrong round",
        "rejected: second answer",
    ):
        assert events[event] > 0, f"the schedules never had: {event}"


def test_a_schedule_is_the_same_every_time() -> None:
    assert play_schedule(7) == play_schedule(7)


def acknowledge_on_send(patch: pytest.MonkeyPatch) -> None:
    honest = Server.open_round

    def open_round(self: Server) -> dict[int, bytes]:
        downlinks = honest(self)
        for client in downlinks:
            self.state.holdings.acknowledge(client, self.state.round)
        return downlinks

    patch.setattr(Server, "open_round", open_round)


def expire_a_round_early_in_the_request(patch: pytest.MonkeyPatch) -> None:
    def request(self: Duration, table: CacheTable, index: Index, round: int) -> Index:
        stamp = table.stamp[index]
        return index[~((stamp != ABSENT) & (round - stamp < self.duration))]

    patch.setattr(Duration, "request", request)


def digest_the_samples_but_not_the_values(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Labels, "digest", lambda self: blake2b(self.index.tobytes(), digest_size=8).digest())


def rename_without_sync(patch: pytest.MonkeyPatch) -> None:
    def install(self: Store, name: str, content: bytes) -> None:
        self._disk.write(f"{name}.part", content)
        self._disk.rename(f"{name}.part", name)

    patch.setattr(Store, "_install", install)


def add_a_duplicate_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Server, "_check_first", lambda self, sender, now: None)


def forget_to_keep_the_reply(patch: pytest.MonkeyPatch) -> None:
    honest = Client.receive

    def receive(self: Client, downlink: bytes) -> object:
        self.state.downlink = b""
        return honest(self, downlink)

    patch.setattr(Client, "receive", receive)


def take_an_expired_entry_for_held(patch: pytest.MonkeyPatch) -> None:
    honest = Holdings.commit

    def commit(self: Holdings, sync: object) -> None:
        before = self.drawn.copy()
        honest(self, sync)  # type: ignore[arg-type]
        self.drawn |= before

    patch.setattr(Holdings, "commit", commit)


BUGS: tuple[Patch, ...] = (
    acknowledge_on_send,
    expire_a_round_early_in_the_request,
    digest_the_samples_but_not_the_values,
    rename_without_sync,
    add_a_duplicate_twice,
    forget_to_keep_the_reply,
    take_an_expired_entry_for_held,
)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_deliberate_bug_is_found_within_200_schedules(bug: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    for seed in range(SCHEDULES):
        try:
            play_schedule(seed, method="scarlet")
        except Exception:  # a violation, or an error that the bug leads to
            return
    pytest.fail(f"{SCHEDULES} schedules did not find: {bug.__name__}")


def test_a_failing_schedule_prints_the_command_that_replays_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add_a_duplicate_twice(monkeypatch)
    assert main(["chaos", "--schedules", "40"]) == 1
    complaint = capsys.readouterr().err
    command = next(line for line in complaint.splitlines() if "replay: " in line).partition("replay: scarlet ")[2]
    assert main(command.split()) == 1
    monkeypatch.undo()
    assert main(command.split()) == 0
