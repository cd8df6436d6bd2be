from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from scarlet.report.curves import curve
from tests.report.runs import line, run


def test_three_seeds_give_mean_and_one_sample_deviation() -> None:
    drawn = curve([run("a", seed, [value]) for seed, value in enumerate((0.1, 0.2, 0.6))], "server_accuracy")
    deviation = np.std([0.1, 0.2, 0.6], ddof=1)
    assert drawn.mean == pytest.approx([0.3])
    assert drawn.low == pytest.approx([0.3 - deviation])
    assert drawn.high == pytest.approx([0.3 + deviation])


def test_two_seeds_give_their_span_and_one_seed_no_band() -> None:
    pair = curve([run("a", 0, [0.1]), run("a", 1, [0.4])], "server_accuracy")
    assert (pair.low[0], pair.high[0]) == (0.1, 0.4)
    alone = curve([run("a", 0, [0.1])], "server_accuracy")
    assert alone.low[0] == alone.mean[0] == alone.high[0] == 0.1


def test_megabytes_are_the_mean_traffic_at_the_same_round() -> None:
    cheap, dear = (
        dataclasses.replace(run("a", seed, []), records=[line(t, cumulative_bytes=t * each) for t in (1, 2)])
        for seed, each in enumerate((1_000_000, 3_000_000))
    )
    assert curve([cheap, dear], "server_accuracy").megabytes.tolist() == [2.0, 4.0]


def test_a_round_without_a_value_is_a_gap_and_a_seed_without_one_is_left_out_of_the_mean() -> None:
    drawn = curve([run("a", 0, [0.2, None, 0.4]), run("a", 1, [0.4, None, None])], "server_accuracy")
    assert drawn.mean[[0, 2]] == pytest.approx([0.3, 0.4])
    assert np.isnan(drawn.mean[1])


def test_one_missing_value_cuts_the_line_and_a_steady_schedule_does_not() -> None:
    cut = curve([run("a", 0, [0.1, 0.2, 0.3, None, 0.5])], "server_accuracy")
    assert [stretch.tolist() for stretch in cut.stretches()] == [[0, 1, 2], [4]]
    steady = curve([run("a", 0, [None, 0.2, None, 0.4, None, 0.6])], "server_accuracy")
    assert [stretch.tolist() for stretch in steady.stretches()] == [[1, 3, 5]]


def test_a_run_that_ended_early_keeps_its_last_values() -> None:
    """Else the mean would be that of the slower seeds alone, and the axis of megabytes would go backwards."""
    quick, slow = run("a", 0, [0.4, 0.7]), run("a", 1, [0.1, 0.2, 0.3, 0.4])
    dear = dataclasses.replace(
        quick, records=[line(1, cumulative_bytes=5_000_000), line(2, cumulative_bytes=9_000_000)]
    )
    cheap = dataclasses.replace(slow, records=[line(t, cumulative_bytes=t * 1_000_000) for t in (1, 2, 3, 4)])
    assert curve([quick, slow], "server_accuracy").mean == pytest.approx([0.25, 0.45, 0.5, 0.55])
    assert curve([dear, cheap], "server_accuracy").megabytes == pytest.approx([3.0, 5.5, 6.0, 6.5])
    cut = dataclasses.replace(quick, summary={"interrupted": True})
    assert curve([cut, slow], "server_accuracy").mean == pytest.approx([0.25, 0.45, 0.3, 0.4])


def test_where_the_others_are_evaluated_now_and_then_a_run_that_ended_has_no_more_values_than_they() -> None:
    drawn = curve([run("a", 0, [None, 0.6]), run("a", 1, [None, 0.2, None, 0.4])], "server_accuracy")
    assert drawn.mean[[1, 3]] == pytest.approx([0.4, 0.5])
    assert np.isnan(drawn.mean[[0, 2]]).all()
