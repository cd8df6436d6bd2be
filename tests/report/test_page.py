from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from plotly.offline import get_plotlyjs

from scarlet.errors import ScarletError
from scarlet.records import RunResult
from scarlet.report.page import write_report
from tests.report.runs import run

HOSTILE = "</script><script>alert('x')</script>&\"<img src=x onerror=alert(1)>"


class Cells(HTMLParser):
    """The text of every table cell, row by row, and the tags of the page."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._inside = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.rows[-1][-1] += data


def written(path: Path, runs: list[RunResult], partition_svg: str | None = None) -> str:
    """The page without plotly.js."""
    write_report(runs, path, partition_svg=partition_svg)
    before, _, after = path.read_text(encoding="utf-8").partition(get_plotlyjs())
    assert after, "plotly.js is not in the page"
    return before + after


def rows(page: str, table: str = "summary") -> dict[str, list[str]]:
    _, _, rest = page.partition(f'<table class="{table}">')
    cells = Cells()
    cells.feed(rest.partition("</table>")[0])
    return {row[0]: row[1:] for row in cells.rows}


def traces(page: str, division: str) -> list[dict[str, object]]:
    (found,) = [figure["data"] for name, figure in figures(page) if name == division]
    assert isinstance(found, list)
    return found


def figures(page: str) -> list[tuple[str, dict[str, Any]]]:
    """The name and the content of every figure."""
    pattern = r'<div class="plot" id="([^"]*)"[^>]*></div><script type="application/json">(.*?)</script>'
    return [(name, json.loads(content)) for name, content in re.findall(pattern, page)]


def test_table_and_sentence_show_what_literal_arithmetic_gives(tmp_path: Path) -> None:
    page = written(
        tmp_path / "report.html",
        [
            run("dsfl", 0, [0.50, 0.60, 0.58]),
            run("scarlet", 0, [0.61, 0.62, 0.63]),
            run("scarlet", 1, [0.63, 0.64, 0.65]),
        ],
    )
    # DS-FL: (0.50 + 0.60 + 0.58) / 3 = 0.56; SCARLET: 0.62 and 0.64, so 0.63 and 0.02 / sqrt(2) = 0.0141.
    # Both mean curves reach 0.60: DS-FL in round 2, SCARLET in round 1; a round is 0.3 MB up and 0.2 MB down.
    table = rows(page)
    assert table["method"][6] == "MB to reach 0.60"
    assert table["DS-FL"] == ["1", "0.560", "0.700", "0.9", "0.6", "1.50", "1.00", "0.25", "6.0"]
    assert table["SCARLET"] == [
        *("2", "0.630 ± 0.014", "0.700 ± 0.000", "0.9", "0.6", "1.50", "0.5", "0.25", "6.0"),
    ]
    assert "SCARLET reaches 0.63 server accuracy with 1.50 MB; DS-FL 0.56 with 1.50 MB." in page


def test_a_method_without_a_server_model_shows_a_dash(tmp_path: Path) -> None:
    page = written(tmp_path / "report.html", [run("individual", 0, [None, None]), run("dsfl", 0, [0.5, 0.6])])
    assert rows(page)["Individual"][1] == "–"
    assert rows(page)["Individual"][6] == "–"
    assert "Individual, without a server model, 0.70 client accuracy with 1.00 MB" in page


def test_a_quantity_that_no_run_has_gets_no_figure(tmp_path: Path) -> None:
    page = written(tmp_path / "report.html", [run("individual", 0, [None, None])])
    assert 'id="client-megabytes"' in page
    assert 'id="server-megabytes"' not in page


def test_nulls_are_gaps_in_the_line(tmp_path: Path) -> None:
    page = written(tmp_path / "report.html", [run("scarlet", 0, [0.1, 0.2, None, 0.4])])
    (line,) = traces(page, "server-round")
    assert (line["x"], line["y"]) == ([1, 2, None, 4], [0.1, 0.2, None, 0.4])
    (line,) = traces(page, "server-megabytes")
    assert (line["x"], line["y"]) == ([0.5, 1.0, None, 2.0], [0.1, 0.2, None, 0.4])


def test_several_seeds_are_drawn_with_a_band_and_one_seed_without(tmp_path: Path) -> None:
    page = written(
        tmp_path / "report.html",
        [run("scarlet", 0, [0.1, 0.2]), run("scarlet", 1, [0.3, 0.4]), run("dsfl", 0, [0.1, 0.1])],
    )
    band, mean, alone = traces(page, "server-round")
    assert (band["x"], band["y"]) == ([1, 2, 2, 1], [0.3, 0.4, 0.2, 0.1])
    assert (mean["y"], alone["y"]) == ([0.2, 0.3], [0.1, 0.1])


def test_a_method_without_traffic_is_a_level_across_the_megabytes(tmp_path: Path) -> None:
    silent = run("individual", 0, [None, None])
    rounds = [dataclasses.replace(record, cumulative_bytes=0) for record in silent.records]
    silent = dataclasses.replace(silent, records=rounds)
    page = written(tmp_path / "report.html", [run("dsfl", 0, [0.5, 0.6]), silent])
    level = traces(page, "client-megabytes")[-1]
    assert (level["x"], level["y"]) == ([0.0, 1.0], [0.7, 0.7])


def test_names_and_options_from_files_cannot_become_markup(tmp_path: Path) -> None:
    record = run(HOSTILE, 0, [0.5], **{HOSTILE: HOSTILE})
    page = written(tmp_path / "report.html", [record, run("dsfl", 0, [0.5])])
    parsed = Cells()
    parsed.feed(page)
    plain = Cells()
    plain.feed(written(tmp_path / "plain.html", [run("a", 0, [0.5], b=1), run("dsfl", 0, [0.5])]))
    assert parsed.tags == plain.tags
    assert HOSTILE in rows(page)
    assert rows(page, "options")[HOSTILE] == [HOSTILE, "–"]
    # Plotly reads HTML in a name, so the name must reach it escaped as well.
    assert "<" not in str(traces(page, "server-round")[0]["name"])


def test_options_that_differ_come_first(tmp_path: Path) -> None:
    page = written(tmp_path / "report.html", [run("scarlet", 0, [0.5], beta=1.5), run("dsfl", 0, [0.5], lr=0.1)])
    table = page[page.index('<table class="options">') :]
    differs, common = table.split("</tbody>")[:2]
    assert re.findall(r'"row">(\w+)<', differs) == ["beta", "lr", "method"]
    assert re.findall(r'"row">(\w+)<', common) == ["rounds", "seed"]


@pytest.mark.parametrize("summary", [{}, {"rounds": 2, "interrupted": True}], ids=["killed", "interrupted"])
def test_a_run_that_is_not_finished_is_named(tmp_path: Path, summary: dict[str, object]) -> None:
    halted = dataclasses.replace(run("scarlet", 4, [0.5, 0.6]), summary=summary)
    finished = run("dsfl", 4, [0.5])
    assert "Not finished: round 2 of 60." in written(tmp_path / "report.html", [halted])
    assert "SCARLET seed 4 (round 2 of 60)." in written(tmp_path / "report.html", [halted, finished])
    assert "Not finished" not in written(tmp_path / "report.html", [finished])


def test_a_run_stopped_before_its_first_round_still_gives_a_page(tmp_path: Path) -> None:
    page = written(tmp_path / "report.html", [run("scarlet", 0, [])])
    assert "SCARLET has not been evaluated yet." in page


def test_partition_figure_is_inlined_without_its_xml_declaration(tmp_path: Path) -> None:
    svg = '<?xml version="1.0"?>\n<!DOCTYPE svg>\n<svg width="9pt"><path d="M0 0"/></svg>\n'
    page = written(tmp_path / "report.html", [run("scarlet", 0, [0.5])], partition_svg=svg)
    assert '<div class="partition"><svg width="9pt">' in page
    assert "<?xml" not in page


def test_every_property_of_every_figure_is_one_that_plotly_knows(tmp_path: Path) -> None:
    cheap, alone, *seeds = (run(method, 0, [0.5, None, 0.6]) for method in ("dsfl", "individual", "scarlet", "scarlet"))
    seeds[1] = run("scarlet", 1, [0.4, 0.5, 0.7])
    cheap, alone = (
        dataclasses.replace(
            each, records=[dataclasses.replace(line, cumulative_bytes=factor * line.round) for line in each.records]
        )
        for each, factor in ((cheap, 1_000), (alone, 0))
    )
    page = written(tmp_path / "report.html", [*seeds, cheap, alone])
    for _, figure in figures(page):
        checked = go.Figure({**figure, "layout": {"template": "none", **figure["layout"]}})  # raises for any other
        assert [trace.to_plotly_json() for trace in checked.data] == figure["data"]
    assert len(figures(page)) == 16
    assert "logarithmic" in page and '"fill":"toself"' in page and "0 MB: " in page


def test_plotly_is_in_the_page_once_and_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    one, two = tmp_path / "one.html", tmp_path / "two.html"
    for path in (one, two):
        write_report([run("scarlet", 0, [0.5])], path)
    assert one.read_text(encoding="utf-8").count(get_plotlyjs()) == 1
    assert one.read_bytes() == two.read_bytes()


def test_a_failed_write_leaves_the_old_page_and_nothing_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(ScarletError, match="No space left on device"):
        write_report([run("scarlet", 0, [0.5])], path)
    assert [entry.read_text() for entry in tmp_path.iterdir()] == ["old"]
