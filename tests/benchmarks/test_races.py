"""How contestants take turns, and what is made of their times."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.laps import Contestant, Lap, Race, Withdrawn
from benchmarks.ours import ours
from benchmarks.plain import aggregate
from benchmarks.results import Circumstances, cells, section, update
from benchmarks.server_step import (
    answers,
    bare_step,
    delivered,
    encoded,
    in_order,
    opened,
    ours_step,
    plain_step,
    received,
)
from benchmarks.works import TRAINING

from benchmarks import flower, races, works
from scarlet import Config, DsflConfig, IndividualConfig, ScarletConfig
from scarlet.cli import main
from scarlet.protocol.federation import Federation
from scarlet.training.train import Clock, clock

WHERE = Circumstances("2026-01-02", "scarlet bench", 3, 2, {"torch": "2"}, "a machine")


class Fake:
    """Contestants with times that are given, and a note of who ran when."""

    def __init__(self) -> None:
        self.order: list[str] = []

    def contestant(self, name: str, *repeats: list[float]) -> Contestant:
        left = iter(repeats)

        def laps() -> list[Lap]:
            self.order.append(name)
            return [Lap(seconds, compute=seconds) for seconds in next(left)]

        return Contestant(name, laps)


def test_contestants_alternate_and_each_begins_once() -> None:
    fake = Fake()
    race = Race("w", "", [fake.contestant(name, [1], [1], [1]) for name in "abc"])
    for _ in range(3):
        race.repeat(1.0)
    assert "".join(fake.order) == "abcbcacab"


def test_rows_are_medians_and_ratios_of_the_same_repeat() -> None:
    fake = Fake()
    slow, fast = fake.contestant("plain", [8, 9, 100], [20], [30]), fake.contestant("ours", [3], [2, 2, 50], [30])
    race = Race("w", "", [slow, fast], flops=12.0)
    for limit in (2.0, 3.0, 6.0):
        race.repeat(limit)
    plain, ours = race.rows()
    assert (plain.seconds, plain.ratio, plain.slowest, plain.fastest) == (20, 1, 1, 1)
    assert (ours.seconds, ours.ratio, ours.slowest, ours.fastest) == (3, 3, 1, 10)
    assert plain.share == pytest.approx(12 / (20 * 3))
    assert ours.share == pytest.approx(2), "12 / (3 x 2), 12 / (2 x 3) and 12 / (30 x 6) have this median"
    assert cells(ours) == ("w", "ours", "3.00", "3.00x", "1.00x", "10.00x", "200.0%")


def test_overhead_is_what_two_busy_cores_would_not_need() -> None:
    assert Lap(seconds=5.0, compute=6.0).overhead == 2.0


def test_a_contestant_that_withdraws_is_left_out_and_the_others_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> list[Lap]:
        raise Withdrawn("flower cannot be run: no such thing")

    fake = Fake()
    race = Race("w", "", [Contestant("flower", fails), fake.contestant("ours", [1], [3])])
    races.run_race(race, 2, _Gauge())
    assert [(row.contestant, row.seconds, row.ratio) for row in race.rows()] == [("ours", 2, 1)]
    assert capsys.readouterr().err.count("flower cannot be run: no such thing; going on without it") == 1


class _Gauge(races.Gauge):
    def __init__(self) -> None: ...

    def flops(self) -> float:
        return 1e9


def test_results_replace_the_section_of_their_work_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "RESULTS.md"

    def raced(work: str, seconds: float) -> dict[str, str]:
        race = Race(work, "some work", [Fake().contestant("plain", [seconds])])
        race.repeat(5e9)
        return {work: section(race, WHERE)}

    update(path, raced("one", 1.0))
    update(path, raced("two", 2.0))
    update(path, raced("one", 3.0))
    text = path.read_text()
    assert text.startswith("# Benchmarks\n\n## one\n") and text.count("## one") == text.count("## two") == 1
    assert "| plain | 3.00 | 1.00x" in text and "| plain | 2.00 | 1.00x" in text and "| plain | 1.00 |" not in text
    assert "2026-01-02; a machine, two of them multiply at 5 GFLOPS; torch 2; 3 repeats of 2 rounds" in text
    before = text
    update(path, raced("two", 2.0))
    assert path.read_text() == before


def test_the_servers_of_both_come_to_the_same_labels() -> None:
    federation = Federation(clients=4, public_size=50, public_per_round=20, classes=5, seed=1)
    given = answers(federation)
    server = opened(ScarletConfig(), "reference", federation)
    for client, message in enumerate(encoded(server, given)):
        server.take(client, message)
    closed = server.close_round()
    assert closed is not None and closed.answers == 4
    with delivered(given, torch.from_numpy(closed.taught.index)) as connection:
        read = received(connection, len(given))
        assert np.array_equal(torch.stack([answer.labels for answer in read]).numpy(), given)
        loop = aggregate(read, ScarletConfig().beta)
    assert list(loop) == closed.taught.index.tolist()
    bare = in_order([torch.from_numpy(value) for value in given], ScarletConfig().beta)
    for labels in (list(loop.values()), bare):
        np.testing.assert_allclose(torch.stack(labels).numpy(), closed.taught.value, atol=1e-6)
    for codec in races.CODECS:
        assert ours_step(ScarletConfig(), given, codec, federation).seconds > 0
    for step in (plain_step, bare_step):
        assert step(ScarletConfig(), given, federation).seconds > 0


def test_ours_hands_in_the_rounds_after_the_first_with_the_computing_of_workers_and_server() -> None:
    small = Config(clients=2, samples_per_client=50, public_size=40, public_per_round=20, rounds=4, workers=2)
    here = clock.seconds
    laps = ours(DsflConfig(), small, "reference")
    assert len(laps) == 3 and all(lap.compute > 0 for lap in laps)
    in_this_process = clock.seconds - here
    assert in_this_process > 0, "the server learns here"
    alone = [lap.compute for lap in ours(IndividualConfig(), small, "reference")]
    assert min(alone) > 0, "without a server's model only the workers compute"


def test_a_clock_counts_a_call_within_a_call_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([1.0, 4.0, 10.0, 11.0])
    monkeypatch.setattr("scarlet.training.train.time.thread_time", lambda: next(ticks))
    fresh = Clock()
    inner: Callable[[], int] = fresh(lambda: 7)
    outer = fresh(lambda: inner() + 1)
    assert outer() == 8 and inner() == 7
    assert fresh.seconds == 4.0


def test_works_without_their_data_are_left_out_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(races.races(["resnet20"], 1, None, None)) == []
    assert capsys.readouterr().err == (
        "scarlet: resnet20 is left out: it needs CIFAR-10 and CIFAR-100; name their folder with --data-dir\n"
    )


def test_an_environment_without_flower_is_left_out_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scarlet-installed").touch()
    [race] = races.races(["overhead"], 1, None, tmp_path)
    assert [each.name for each in race.contestants] == ["ours, reference", "ours, compact"]
    err = capsys.readouterr().err
    assert err.startswith("scarlet: flower cannot be run: ") and err.endswith("; going on without it\n")
    assert err.count("\n") == 1


def test_the_embedded_work_is_the_default() -> None:
    config = {work.name: work for work in TRAINING}["embedded"].at(None, 2)
    assert config == Config(rounds=3, workers=2)


def test_flowers_constraints_are_ours_but_for_what_it_pins_itself() -> None:
    text = "# What was tested\nrich==15.0.0\ntorch==2.13.0\npackaging==26.3\n"
    assert flower._without(text, ("rich", "packaging")) == "# What was tested\ntorch==2.13.0\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--work", "resnet"], "unknown work 'resnet': did you mean 'resnet20'?"),
        (["--work", "server,"], "unknown work ''"),
        (["--repeats", "0"], "repeats must be 1 or more, got 0"),
        (["--rounds", "0"], "rounds must be 1 or more, got 0"),
        (["--results", "."], "results must be a file, got the folder ."),
        (["--repeat", "3"], "unknown option '--repeat': did you mean '--repeats'?"),
        (["resnet20"], "scarlet bench takes options only, got 'resnet20'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"scarlet: {complaint}") and err.count("\n") == 1


def test_a_race_under_another_engine_has_a_name_of_its_own() -> None:
    for engine, name in (("auto", "embedded"), ("channels-last", "embedded, channels-last")):
        [race] = races.races(["embedded"], 1, None, None, engine)  # type: ignore[arg-type]
        assert race.work == name
    assert works.TRAINING[0].under("compiled").config.engine == "compiled"
