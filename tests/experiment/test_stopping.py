"""What is held out for validation, and what ends a run before its last round."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scarlet
from scarlet.data.samples import Part
from scarlet.errors import ConfigError
from scarlet.experiment.federation import prepare
from scarlet.experiment.stopping import PATIENCE, WINDOW, Stopping, has_converged
from scarlet.experiment.validation import hold_out, public_validation
from scarlet.records import RoundRecord
from tests.experiment.tiny import METHOD, TINY, lines, read
from tests.experiment.watchers import CtrlC

VALIDATED = replace(TINY, private_validation=0.2, public_validation=0.25, rounds=5)


def losses(*values: float, name: str = "private_validation_loss") -> list[RoundRecord]:
    return [RoundRecord(at + 1, **{name: value}) for at, value in enumerate(values)]  # type: ignore[arg-type]


def test_each_client_holds_out_its_share_and_trains_on_the_rest() -> None:
    whole, split = prepare(TINY).data, prepare(VALIDATED).data
    assert whole.validation is None and split.validation is not None
    for before, train, kept in zip(whole.train, split.train, split.validation, strict=True):
        assert kept is not None and before.index is not None and train.index is not None and kept.index is not None
        assert (len(train), len(kept)) == (24, 6)
        assert sorted([*train.index, *kept.index]) == sorted(before.index)
    np.testing.assert_array_equal(whole.public, split.public)


def test_the_held_out_samples_do_not_depend_on_the_other_clients() -> None:
    data = prepare(TINY).data
    alone = replace(data, names=data.names[1:2], train=data.train[1:2], test=data.test[1:2])
    found, own = hold_out(data, 0.2, seed=0).validation, hold_out(alone, 0.2, seed=0).validation
    assert found is not None and own is not None and found[1] is not None and own[0] is not None
    np.testing.assert_array_equal(found[1].index, own[0].index)


def test_a_client_with_one_sample_trains_on_it() -> None:
    data = prepare(TINY).data
    lone = replace(data, train=[Part(data.train[0].of, np.array([5])), *data.train[1:]])
    split = hold_out(lone, 0.9, seed=0)
    assert split.validation is not None
    assert len(split.train[0]) == 1 and split.validation[0] is None
    assert [len(part) for part in split.train[1:]] == [3, 3]


def test_a_share_of_the_public_samples_is_held_out_of_what_the_server_learns() -> None:
    held = public_validation(60, 0.25, seed=0)
    assert held is not None and held.sum() == 15
    assert public_validation(60, 0.0, seed=0) is None
    assert not np.array_equal(held, public_validation(60, 0.25, seed=1))


@pytest.mark.parametrize("engine", ["auto", "batched"])
def test_both_losses_are_recorded_and_those_of_several_workers_are_the_same(engine: str, tmp_path: Path) -> None:
    config = replace(VALIDATED, engine=engine)
    one = scarlet.run(METHOD, config, out=tmp_path)
    found = [(line["private_validation_loss"], line["public_validation_loss"]) for line in lines(tmp_path)]
    assert all(private > 0 and public > 0 for private, public in found) and len(set(found)) == 5
    two = scarlet.run(METHOD, replace(config, workers=2))
    apart = [(record.private_validation_loss, record.public_validation_loss) for record in two.records]
    assert apart == (found if engine == "auto" else pytest.approx(np.array(found), rel=1e-3))
    assert read(tmp_path / "summary.json")["stopped"] is None
    assert one.summary["public_validation_loss"] == pytest.approx(np.mean([public for _, public in found]))


def test_without_a_share_nothing_is_measured_and_nothing_changes() -> None:
    records = scarlet.run(METHOD, replace(TINY, rounds=2)).records
    assert all(record.private_validation_loss is None and record.public_validation_loss is None for record in records)


def test_a_run_ends_with_the_first_round_that_reaches_a_budget(tmp_path: Path) -> None:
    whole = scarlet.run(METHOD, TINY)
    spent = [record.cumulative_bytes for record in whole.records]
    limit = (spent[3] + spent[4]) / 2 / 1e6
    short = scarlet.run(METHOD, replace(TINY, stop_at_mb=limit), out=tmp_path)
    assert [record.cumulative_bytes for record in short.records] == spent[:5]
    assert short.summary["stopped"] == f"traffic of {limit:g} MB" and not short.interrupted
    best = max(record.server_accuracy or 0 for record in whole.records)
    first = next(record.round for record in whole.records if record.server_accuracy == best)
    assert len(scarlet.run(METHOD, replace(TINY, stop_at_accuracy=best)).records) == first
    assert len(scarlet.run(METHOD, replace(TINY, stop_at_seconds=1e-9)).records) == 1


def test_a_run_that_is_resumed_after_its_end_was_reached_does_not_go_on(tmp_path: Path) -> None:
    config = replace(TINY, stop_at_mb=0.02)
    rounds = len(scarlet.run(METHOD, config).records)
    assert 3 < rounds < 13
    cut = scarlet.run(METHOD, config, out=tmp_path / "cut", watchers=[CtrlC(rounds - 1)])
    assert cut.interrupted and len(cut.records) < rounds
    assert len(scarlet.run(METHOD, config, out=tmp_path / "cut", resume=True).records) == rounds


def test_a_loss_has_converged_when_its_mean_no_longer_falls() -> None:
    falling = np.linspace(2, 1, 60)
    assert not has_converged(losses(*falling))
    flat = np.concatenate([falling, np.full(WINDOW + PATIENCE, 1.0)])
    assert has_converged(losses(*flat))
    assert not has_converged(losses(*flat[: 60 + PATIENCE // 2]))
    noisy = flat + 0.05 * np.random.default_rng(0).normal(size=len(flat))
    assert has_converged(losses(*noisy, *noisy[-WINDOW:]))


def test_both_losses_must_have_converged_if_both_are_measured() -> None:
    flat, falling = np.ones(60), np.linspace(2, 1, 60)
    both = [
        RoundRecord(at + 1, private_validation_loss=a, public_validation_loss=b)
        for at, (a, b) in enumerate(zip(flat, falling, strict=True))
    ]
    assert has_converged(losses(*flat)) and has_converged(losses(*flat, name="public_validation_loss"))
    assert not has_converged(both)
    assert not has_converged([RoundRecord(at) for at in range(99)])


def test_rounds_that_were_not_evaluated_count_for_nothing() -> None:
    every_fifth = [
        RoundRecord(at + 1, private_validation_loss=1.0 if at % 5 == 0 else None)
        for at in range(5 * (WINDOW + PATIENCE))
    ]
    assert has_converged(every_fifth)
    assert not has_converged(every_fifth[: 5 * (WINDOW + PATIENCE - 1)])


def test_no_rule_ends_no_run() -> None:
    assert Stopping.of(scarlet.Config()).reason(losses(*[1.0] * 500)) is None


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"private_validation": 1.0}, r"^private_validation must be at least 0 and less than 1, got 1"),
        ({"public_validation": -0.1}, r"^public_validation must be at least 0 and less than 1, got -0.1"),
        ({"stop_when": "converged"}, r"^stop_when converged looks at validation losses, and nothing is held out"),
        ({"stop_when": "done", "public_validation": 0.1}, r"^stop_when must be converged, got 'done'"),
        ({"stop_at_mb": 0}, r"^stop_at_mb must be more than 0, got 0; leave it out to run all rounds"),
        ({"stop_at_accuracy": 90}, r"^stop_at_accuracy must be at most 1, got 90; 0.9 is 90 %"),
        ({"stop_at_seconds": -1}, r"^stop_at_seconds must be more than 0, got -1"),
    ],
)
def test_a_mistake_is_named(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        scarlet.Config(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "options", "complaint"),
    [
        (
            scarlet.IndividualConfig(),
            {"public_validation": 0.1, "stop_when": "converged"},
            r"^stop_when converged needs a validation loss, and this method has none on public samples; give",
        ),
        (scarlet.IndividualConfig(), {"stop_at_mb": 1.0}, r"^stop_at_mb 1 is of traffic, and this method sends"),
        (scarlet.CentralizedConfig(), {"stop_at_accuracy": 0.5}, r"^stop_at_accuracy 0.5 is of the server's model"),
    ],
)
def test_a_rule_that_can_never_end_a_run_is_refused(method: object, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        scarlet.run(method, scarlet.Config(**options))


def test_a_run_that_is_too_short_to_converge_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    config = scarlet.Config(rounds=100, eval_every=5, stop_when="converged", public_validation=0.1)
    complaint = "^stop_when converged needs 40 evaluations or more, and 100 rounds with eval_every = 5 have 20; raise"
    with pytest.raises(ConfigError, match=complaint):
        scarlet.run(METHOD, config, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_loss_of_zero_has_stopped_falling_and_a_loss_that_is_no_number_is_passed_over() -> None:
    assert has_converged(losses(*[0.0] * 40))
    assert has_converged(losses(*[1.0] * 5, float("nan"), *[1.0] * 40))
