from __future__ import annotations

import dataclasses

from scarlet.report.problems import problems_table
from scarlet.report.variants import group
from tests.report.runs import line, run
from tests.report.test_page import rows


def test_nothing_wrong_is_no_table() -> None:
    whole = dataclasses.replace(run("scarlet", 0, []), records=[line(1, asked=5, answers=5), line(2)])
    assert problems_table(group([whole])) is None


def test_what_went_wrong_is_counted_over_rounds_and_seeds_for_whom_it_did() -> None:
    wrong = [
        line(1, rejections={"late": 2}, failures={"OSError": 1}, asked=5, answers=4, abstained=1, resets=3),
        line(2, rejections={"late": 1, "<b>": 1}, asked=5, answers=5, attempt=2),
    ]
    runs = [dataclasses.replace(run("scarlet", seed, []), records=wrong) for seed in (0, 1)]
    table = problems_table(group([*runs, run("dsfl", 0, [0.5])]))
    assert table is not None and rows(table, "problems") == {
        "method": [
            *("abstentions", "caches sent again", "failed: OSError", "rejected: <b>", "rejected: late"),
            *("repeated rounds", "rounds with fewer answers than asked"),
        ],
        "SCARLET": ["2", "6", "2", "2", "6", "4", "2"],
    }
