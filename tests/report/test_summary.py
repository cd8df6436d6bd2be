from __future__ import annotations

import dataclasses
from statistics import mean, stdev

import pytest

from scarlet import records
from scarlet.config import NOT_IDENTIFYING
from scarlet.errors import DataError
from scarlet.report.summary import Estimate, summarise
from scarlet.report.variants import group
from tests.report.runs import line, run


def test_accuracy_is_the_mean_of_the_last_ten_evaluated_rounds_then_over_seeds() -> None:
    seeds: list[list[float | None]] = [
        [*[0.0] * 5, *[0.40] * 9, None, 0.50, None],
        [*[0.0] * 5, *[0.60] * 10],
        [*[0.0] * 5, *[0.55] * 10],
    ]
    (row,) = summarise(group([run("scarlet", seed, values) for seed, values in enumerate(seeds)])).rows
    expected = [0.41, 0.60, 0.55]
    assert row.server_accuracy is not None
    assert row.server_accuracy.mean == pytest.approx(mean(expected))
    assert row.server_accuracy.deviation == pytest.approx(stdev(expected))


def test_traffic_time_and_hits_are_counted_over_all_rounds_and_averaged_over_seeds() -> None:
    (row,) = summarise(group([run("scarlet", 0, [0.5] * 4), run("scarlet", 1, [0.5] * 2)])).rows
    assert row.seeds == 2
    assert row.megabytes_up == pytest.approx((4 * 0.3 + 2 * 0.3) / 2)
    assert row.megabytes_down == pytest.approx((4 * 0.2 + 2 * 0.2) / 2)
    assert row.megabytes == pytest.approx((4 * 0.5 + 2 * 0.5) / 2)
    assert row.seconds == pytest.approx((8 + 4) / 2)
    assert row.hit_ratio == 0.25


def test_one_seed_has_no_deviation() -> None:
    (row,) = summarise(group([run("scarlet", 0, [0.5])])).rows
    assert row.server_accuracy == Estimate(0.5, None)


def test_target_is_the_largest_twentieth_that_every_mean_curve_reaches() -> None:
    summary = summarise(
        group(
            [
                # Seed by seed the best is 0.9; the mean curve stops at 0.62.
                run("scarlet", 0, [0.2, 0.90, 0.60]),
                run("scarlet", 1, [0.2, 0.30, 0.64]),
                run("dsfl", 0, [0.5, 0.60, 0.70]),
                run("individual", 0, [None, None, None]),
            ]
        )
    )
    assert summary.target == pytest.approx(0.60)
    assert [row.megabytes_to_target for row in summary.rows] == [1.0, 1.0, None]


def test_without_a_server_model_there_is_no_target() -> None:
    summary = summarise(group([run("individual", 0, [None])]))
    assert summary.target is None
    assert summary.rows[0].server_accuracy is None


def test_a_run_without_a_round_has_no_numbers_rather_than_zeros() -> None:
    (row,) = summarise(group([run("scarlet", 0, [])])).rows
    assert (row.megabytes, row.seconds, row.hit_ratio, row.client_accuracy) == (None, None, None, None)


def test_the_hit_ratio_is_that_of_the_last_rounds_in_which_it_is_known_as_in_summary_json() -> None:
    known = [line(round, cache_hit_ratio=0.0 if round < 3 else 0.8) for round in range(1, 13)]
    record = dataclasses.replace(run("scarlet", 0, []), records=[*known, line(13, cache_hit_ratio=None)])
    (row,) = summarise(group([record])).rows
    assert row.hit_ratio == pytest.approx(0.8)
    assert row.hit_ratio == records.summarise(record.records, None)["cache_hit_ratio"]


def test_runs_of_a_method_under_other_options_are_not_averaged_and_are_named_apart() -> None:
    runs = [run("scarlet", seed, [0.5], beta=beta) for beta in (1.0, 1.5) for seed in (0, 1)]
    assert [(variant.name, len(variant.runs)) for variant in group(runs)] == [
        ("SCARLET (beta=1.0)", 2),
        ("SCARLET (beta=1.5)", 2),
    ]


def test_runs_that_were_only_computed_elsewhere_are_averaged() -> None:
    """The options in which they may differ are those in which a resumed run may differ."""
    runs = [run("scarlet", seed, [0.5], **dict.fromkeys(NOT_IDENTIFYING, seed)) for seed in (0, 1, 2)]
    (variant,) = group(runs)
    assert variant.name == "SCARLET" and len(variant.runs) == 3


def test_a_run_given_twice_and_no_run_at_all_are_errors() -> None:
    with pytest.raises(DataError, match="seed 0 is given twice"):
        group([run("scarlet", 0, [0.5]), run("scarlet", 0, [0.6])])
    with pytest.raises(DataError, match="no run to report"):
        group([])
