"""How implementations take turns, and what is made of their timings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks import comparisons, workloads
from benchmarks.__main__ import Options, main
from benchmarks.compute import ComputeTime
from benchmarks.ours import ours
from benchmarks.peak import PeakFlops
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
from benchmarks.timing import Comparison, Implementation, Timing, Unavailable
from benchmarks.workloads import TRAINING

from scarlet import Config, DsflConfig, IndividualConfig, ScarletConfig, run
from scarlet.protocol.agreement import Agreement

WHERE = Circumstances("2026-01-02", "python -m benchmarks", 3, 2, {"torch": "2"}, "a machine")


class Fake:
    """Makes implementations with given timings, and records the order in which they run."""

    def __init__(self) -> None:
        self.order: list[str] = []

    def implementation(self, name: str, *repeats: list[float]) -> Implementation:
        left = iter(repeats)

        def run() -> list[Timing]:
            self.order.append(name)
            return [Timing(seconds, compute=seconds) for seconds in next(left)]

        return Implementation(name, run)


def test_implementations_alternate_and_each_begins_once() -> None:
    fake = Fake()
    comparison = Comparison("w", "", [fake.implementation(name, [1], [1], [1]) for name in "abc"])
    for _ in range(3):
        comparison.repeat(1.0)
    assert "".join(fake.order) == "abcbcacab"


def test_rows_are_medians_and_ratios_of_the_same_repeat() -> None:
    fake = Fake()
    slow, fast = (
        fake.implementation("plain", [8, 9, 100], [20], [30]),
        fake.implementation("ours", [3], [2, 2, 50], [30]),
    )
    comparison = Comparison("w", "", [slow, fast], flops=12.0)
    for peak in (2.0, 3.0, 6.0):
        comparison.repeat(peak)
    plain, ours = comparison.rows()
    assert (plain.seconds, plain.speedup, plain.lowest, plain.highest) == (20, 1, 1, 1)
    assert (ours.seconds, ours.speedup, ours.lowest, ours.highest) == (3, 3, 1, 10)
    assert plain.share == pytest.approx(12 / (20 * 3))
    assert ours.share == pytest.approx(2), "12 / (3 x 2), 12 / (2 x 3) and 12 / (30 x 6) have this median"
    assert cells(ours) == ("w", "ours", "3.00", "3.00x", "1.00x", "10.00x", "200.0%")


def test_overhead_is_the_wall_time_beyond_that_of_two_busy_cores() -> None:
    assert Timing(seconds=5.0, compute=6.0).overhead == 2.0


def test_an_unavailable_implementation_is_removed_and_the_others_continue(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> list[Timing]:
        raise Unavailable("flower cannot be run: no such thing")

    fake = Fake()
    comparison = Comparison("w", "", [Implementation("flower", fails), fake.implementation("ours", [1], [3])])
    comparisons.run_comparison(comparison, 2, _Peak())
    assert [(row.implementation, row.seconds, row.speedup) for row in comparison.rows()] == [("ours", 2, 1)]
    assert capsys.readouterr().err.count("flower cannot be run: no such thing; continuing without it") == 1


class _Peak(PeakFlops):
    def __init__(self) -> None: ...

    def measure(self) -> float:
        return 1e9


def test_results_replace_the_section_of_their_workload_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "RESULTS.md"

    def compared(workload: str, seconds: float) -> dict[str, str]:
        comparison = Comparison(workload, "some work", [Fake().implementation("plain", [seconds])])
        comparison.repeat(5e9)
        return {workload: section(comparison, WHERE)}

    update(path, compared("one", 1.0))
    update(path, compared("two", 2.0))
    update(path, compared("one", 3.0))
    text = path.read_text()
    assert text.startswith("# Benchmarks\n\n## one\n") and text.count("## one") == text.count("## two") == 1
    assert "| plain | 3.00 | 1.00x" in text and "| plain | 2.00 | 1.00x" in text and "| plain | 1.00 |" not in text
    assert "2026-01-02; a machine, two of them multiply at 5 GFLOPS; torch 2; 3 repeats of 2 rounds" in text
    before = text
    update(path, compared("two", 2.0))
    assert path.read_text() == before


def test_all_server_steps_aggregate_to_the_same_labels() -> None:
    agreement = Agreement(clients=4, public_size=50, public_per_round=20, classes=5, seed=1)
    given = answers(agreement)
    server = opened(ScarletConfig(), "reference", agreement)
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
    for codec in comparisons.CODECS:
        assert ours_step(ScarletConfig(), given, codec, agreement).seconds > 0
    for step in (plain_step, bare_step):
        assert step(ScarletConfig(), given, agreement).seconds > 0


SMALL = Config(clients=2, samples_per_client=50, public_size=40, public_per_round=20, rounds=4, workers=2)


def test_ours_times_the_rounds_after_the_first_with_the_compute_time_of_workers_and_server() -> None:
    timings = ours(DsflConfig(), SMALL, "reference")
    assert len(timings) == 3 and all(timing.compute > 0 for timing in timings)
    assert all(timing.compute < 10 * timing.seconds for timing in timings)


def test_compute_time_of_the_workers_and_of_the_servers_model_are_measured_apart() -> None:
    workers, server, no_model = ComputeTime(), ComputeTime(), ComputeTime()
    run(DsflConfig(), SMALL, transport=workers.transport())
    assert workers.seconds > 0
    for compute, method in ((server, DsflConfig()), (no_model, IndividualConfig())):
        with compute.server_measured():
            run(method, SMALL)
    assert server.seconds > 0
    assert no_model.seconds == 0


def test_compute_time_counts_what_the_calling_thread_computes_and_not_what_it_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = iter([1.0, 4.0, 10.0, 11.0])
    monkeypatch.setattr("benchmarks.compute.time.thread_time", lambda: next(ticks))
    compute = ComputeTime()
    with compute.measured():
        pass
    with pytest.raises(KeyError), compute.measured():
        raise KeyError
    assert compute.seconds == 4.0


def test_measured_runs_have_the_results_of_others() -> None:
    config, compute = replace(SMALL, workers=1), ComputeTime()
    with compute.server_measured():
        measured = run(ScarletConfig(), config, transport=compute.transport())
    assert compute.seconds > 0
    assert measured.summary["weights_digest"] == run(ScarletConfig(), config).summary["weights_digest"]


def test_a_command_for_the_record_names_no_path_of_this_machine() -> None:
    assert Options().command == "python -m benchmarks --repeats 3 --rounds 3"
    given = Options(
        "server,cnn32", 5, 2, Path("/home/me/data"), Path("/home/me/env"), "compiled", Path("/home/me/R.md")
    )
    assert given.command == (
        "python -m benchmarks --work server,cnn32 --repeats 5 --rounds 2 --data-dir DIR --flower-env ENV "
        "--engine compiled"
    )


def test_a_workload_without_its_data_is_skipped_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(comparisons.comparisons(["resnet20"], 1, None, None)) == []
    assert capsys.readouterr().err == (
        "benchmarks: resnet20 is skipped: it needs CIFAR-10 and CIFAR-100; give their directory with --data-dir\n"
    )


def test_flower_is_skipped_with_one_line_where_it_cannot_be_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scarlet-installed").touch()
    [comparison] = comparisons.comparisons(["overhead"], 1, None, tmp_path)
    assert [each.name for each in comparison.implementations] == ["ours, reference", "ours, compact"]
    err = capsys.readouterr().err
    assert err.startswith("benchmarks: flower cannot be run: ") and err.endswith("; continuing without it\n")
    assert err.count("\n") == 1


def test_the_embedded_workload_is_the_default_config() -> None:
    config = {workload.name: workload for workload in TRAINING}["embedded"].at(None, 2)
    assert config == Config(rounds=3, workers=2)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--work", "resnet"], "unknown work 'resnet': did you mean 'resnet20'?"),
        (["--work", "server,"], "unknown work ''"),
        (["--repeats", "0"], "repeats must be 1 or more, got 0"),
        (["--rounds", "0"], "rounds must be 1 or more, got 0"),
        (["--results", "."], "results must be a file, got the folder ."),
        (["--repeat", "3"], "unrecognized arguments: --repeat 3"),
        (["resnet20"], "unrecognized arguments: resnet20"),
        (["--engine", "native"], "argument --engine: invalid choice: 'native'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"benchmarks: {complaint}") and err.count("\n") == 1


def test_the_name_of_a_workload_under_another_engine_says_so() -> None:
    for engine, name in (("auto", "embedded"), ("channels-last", "embedded, channels-last")):
        [comparison] = comparisons.comparisons(["embedded"], 1, None, None, engine)  # type: ignore[arg-type]
        assert comparison.workload == name
    assert workloads.TRAINING[0].under("compiled").config.engine == "compiled"
