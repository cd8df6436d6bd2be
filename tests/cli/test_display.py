"""What every command prints at its end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scarlet.cli.display import show_results
from scarlet.records import RoundRecord, RunResult, summarise
from tests.report.runs import line, run

OUT = Path("out")


def ended(method: str, seed: int, *rounds: RoundRecord, digest: str | None = "0" * 32, **options: Any) -> RunResult:
    return replace(run(method, seed, [], **options), records=rounds, summary=summarise(rounds, digest))


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Any:
    def show(*results: RunResult, **how: Any) -> str:
        show_results(results, OUT, **({"as_json": False} | how))
        return capsys.readouterr().out

    return show


def test_clients_that_failed_are_named_by_reason_over_all_rounds(said: Any) -> None:
    first, second = line(1, failures={"crashed": 2}), line(2, failures={"crashed": 1, "lost": 4})
    text = said(ended("scarlet", 3, first, second))
    assert "SCARLET, seed 3: clients failed: crashed 3, lost 4\n" in text


def test_rejections_failed_attempts_and_resets_are_named(said: Any) -> None:
    text = said(ended("dsfl", 0, line(1, rejections={"unreadable": 2}, attempt=1, resets=3)))
    assert (
        "DS-FL, seed 0: messages rejected: unreadable 2; attempts at a round that failed: 1; caches sent again: 3\n"
    ) in text


def test_a_run_without_incidents_has_no_such_line(said: Any) -> None:
    assert "seed 0" not in said(ended("scarlet", 0, line(1)))


def test_runs_that_differ_in_an_option_have_a_row_each_and_seeds_are_averaged(said: Any) -> None:
    runs = [ended("scarlet", seed, line(1), beta=beta) for beta in (1.0, 2.0) for seed in (0, 1)]
    rows = [row.split("│")[1:3] for row in said(*runs).splitlines() if row.startswith("│ S")]
    assert [" ".join(cell.strip() for cell in row) for row in rows] == ["SCARLET (beta=1.0) 2", "SCARLET (beta=2.0) 2"]


def test_a_method_that_is_not_registered_is_shown_by_its_title(said: Any) -> None:
    assert "│ Theirs " in said(replace(ended("theirs", 0, line(1)), title="Theirs"))


def test_the_exit_code_is_130_after_an_interruption(said: Any) -> None:
    whole, cut = ended("scarlet", 0, line(1)), ended("dsfl", 0, line(1), digest=None)
    assert show_results([whole], OUT, as_json=False) == 0
    assert show_results([whole, cut], OUT, as_json=False) == 130
    assert "interrupted: the numbers are those of the rounds so far\n" in said(whole, cut)


def test_json_of_one_run_is_flat_and_of_several_a_list(said: Any) -> None:
    result = ended("scarlet", 0, line(1))
    single, listed = json.loads(said(result, as_json=True, single=True)), json.loads(said(result, as_json=True))
    assert single == {"directory": "out", "method": "scarlet", "config": result.config, **result.summary}
    assert listed == {"directory": "out", "runs": [{key: single[key] for key in single if key != "directory"}]}
