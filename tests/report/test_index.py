from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from plotly.offline import get_plotlyjs

from scarlet.records import RunResult
from scarlet.report.index import write_index, write_library
from scarlet.report.page import write_report
from tests.report.runs import grid, run, save
from tests.report.test_page import figures, rows


def index(directory: Path, runs: list[RunResult], *, running: bool = False) -> str:
    write_index(directory, runs, running=running)
    return (directory / "index.html").read_text(encoding="utf-8")


def begun(directory: Path, result: RunResult) -> RunResult:
    return dataclasses.replace(result, directory=save(result, directory))


def test_it_lists_every_run_with_what_varies_its_state_its_accuracy_and_its_traffic(tmp_path: Path) -> None:
    done = begun(tmp_path / "done", run("scarlet", 0, [0.5, 0.6], alpha=0.1, public="digits"))
    halted = dataclasses.replace(run("scarlet", 1, [0.2], alpha=0.1, public="digits"), summary={"interrupted": True})
    halted = begun(tmp_path / "halted", halted)
    going = begun(tmp_path / "going", dataclasses.replace(run("scarlet", 0, [], alpha=1.0), summary={}))
    # What follows from the data is not settled before a run begins.
    missing = dataclasses.replace(run("scarlet", 1, [], alpha=1.0, public=None), directory=tmp_path / "missing")
    page = index(tmp_path, [done, halted, going, missing])
    assert "4 runs: 1 finished, 1 interrupted, 1 not finished, 1 missing." in page
    assert rows(page, "runs") == {
        "run": ["alpha", "seed", "state", "server accuracy", "client accuracy", "MB"],
        "done": ["0.1", "0", "finished", "0.550", "0.700", "1.00"],
        "halted": ["0.1", "1", "interrupted: round 1 of 60", "0.200", "0.700", "0.5"],
        "going": ["1.0", "0", "not finished: round 0 of 60", "–", "–", "–"],
        "missing": ["1.0", "1", "missing", "–", "–", "–"],
    }
    assert rows(page)["SCARLET"][0] == "2", "seeds that have begun"


def test_it_links_to_the_pages_that_are_there(tmp_path: Path) -> None:
    one, two = begun(tmp_path / "a b", run("scarlet", 0, [0.5])), begun(tmp_path / "c", run("dsfl", 0, [0.5]))
    assert one.directory is not None
    write_report([one], one.directory / "report.html", library=tmp_path / "plotly.min.js")
    assert re.findall(r'<a href="([^"]*)">([^<]*)</a>', index(tmp_path, [one, two])) == [("a%20b/report.html", "a b")]
    assert '<script src="../plotly.min.js"></script>' in (one.directory / "report.html").read_text()


def test_the_library_is_one_file_beside_it_and_is_not_written_again(tmp_path: Path) -> None:
    page = index(tmp_path, grid(tmp_path))
    assert '<script src="plotly.min.js"></script>' in page and len(page) < 300_000
    library = tmp_path / "plotly.min.js"
    assert library.read_text(encoding="utf-8") == get_plotlyjs()
    written = library.stat().st_mtime_ns
    write_library(tmp_path)
    assert library.stat().st_mtime_ns == written
    library.write_text("old")
    write_library(tmp_path)
    assert library.read_text(encoding="utf-8") == get_plotlyjs()


def test_it_admits_no_script_but_the_library_and_its_own(tmp_path: Path) -> None:
    found = re.search(r"script-src ([^;]*);", index(tmp_path, grid(tmp_path)))
    assert found is not None and re.fullmatch(r"'self' 'sha256-[\w+/=]+'", found.group(1))


def test_a_sweep_without_any_round_has_a_page_without_figures(tmp_path: Path) -> None:
    assert "0 runs: none yet." in index(tmp_path, [])
    page = index(tmp_path, [dataclasses.replace(run("scarlet", 0, []), summary={}, directory=tmp_path / "a")])
    assert "1 runs: 1 missing." in page and figures(page) == []


def test_it_is_read_again_only_while_the_sweep_is_running(tmp_path: Path) -> None:
    runs = grid(tmp_path)
    assert '<body data-refresh="30">' in index(tmp_path, runs, running=True)
    assert "<body>" in index(tmp_path, runs)


def test_a_grid_has_select_boxes_and_a_legend_in_groups(tmp_path: Path) -> None:
    page = index(tmp_path, grid(tmp_path))
    assert re.findall(r"<label>(\w+) <select data-axis", page) == ["method", "alpha", "beta"]
    legend = page[page.index('<div class="legend">') :]
    assert re.findall(r'class="all">([^<]*)<', legend) == ["SCARLET", "DS-FL"]
    assert ">alpha=0.1, beta=2.0</button>" in legend and ">alpha=0.1</button>" in legend
