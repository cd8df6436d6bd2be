"""The pages in a real browser, from disk."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from scarlet.report import page as page_module
from scarlet.report.index import write_index
from scarlet.report.library import LIBRARY
from scarlet.report.page import write_report
from tests.report.browser import Browser
from tests.report.runs import grid, run, save_clients

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]  # one browser for all

POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
DRAWN = "!all('.plot').some((plot) => plot.offsetParent && !plot.querySelector('.main-svg'))"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# How many plots are seen, and how many of them are not as wide as their column.
PLOTS = """(() => {
  const seen = all(".js-plotly-plot").filter((plot) => plot.offsetParent);
  const misfits = seen.filter((plot) => {
    const drawn = plot.querySelector(".main-svg").getBoundingClientRect().width;
    return drawn <= 250 || Math.abs(drawn - plot.parentElement.getBoundingClientRect().width) > 2;
  });
  return [seen.length, misfits.length];
})()"""
CELLS = "all(SELECTOR).filter((row) => row.offsetParent).map((row) => [...row.cells].map((cell) => cell.textContent))"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        missing = "THE REPORT WAS NOT TESTED IN A BROWSER: install chromium"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    started = Browser(found, tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a comparison, complete in itself."""
    path = tmp_path_factory.mktemp("comparison") / "report.html"
    rising = [0.1 + 0.01 * step for step in range(40)]
    runs = [run(method, seed, [v + 0.02 * seed for v in rising]) for method in ("scarlet", "dsfl") for seed in range(3)]
    write_report([*runs, run("<b>hostile</b>", 0, [None] * 40)], path)
    return path


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an index, the plot library, and the runs below; the first has a page and clients."""
    directory = tmp_path_factory.mktemp("a sweep")
    runs = grid(directory)
    first = runs[0].directory
    assert first is not None
    save_clients(first, [0.9, 0.3, 0.6], samples=[10, 20, 30])
    write_report(runs[:1], first / "report.html", library=directory / LIBRARY)
    write_index(directory, runs)
    return directory


def until(browser: Browser, condition: str) -> None:
    end = time.monotonic() + 60
    while not browser.evaluate(condition):
        assert time.monotonic() < end, f"never: {condition}; {browser.complaints}"
        time.sleep(0.05)


def cells(browser: Browser, rows: str) -> dict[str, list[str]]:
    """The cells of the rows that are seen, by the first."""
    found: list[list[str]] = browser.evaluate(CELLS.replace("SELECTOR", repr(rows)))
    return {first: rest for first, *rest in found}


def choose(browser: Browser, box: str, value: str) -> None:
    done = f"const box = document.querySelector({box!r}); box.value = {value!r}; box.dispatchEvent(new Event('change'))"
    browser.evaluate(f"(() => {{ {done} }})()")


def test_a_page_has_every_plot_in_any_width_and_asks_for_nothing(browser: Browser, comparison: Path) -> None:
    browser.open(comparison)
    until(browser, DRAWN)
    assert browser.evaluate(PLOTS) == [8, 0]
    for width in (600, 380):
        browser.resize(width)
        until(browser, f"({PLOTS})[1] === 0")
        assert browser.evaluate(OVERFLOW) <= 0
    assert browser.requests == [comparison.as_uri()]
    assert browser.complaints == []


def test_a_choice_of_bytes_shows_their_table_and_plots(browser: Browser, comparison: Path) -> None:
    browser.open(comparison)
    for chosen, up, down in (("payload", 12, 8), ("framed", 14, 8.4), ("carried", 15.2, 9.2)):
        browser.evaluate(f"document.querySelector('.choice button[value={chosen}]').click()")
        until(browser, DRAWN)
        assert browser.evaluate(PLOTS) == [8, 0]
        shown = cells(browser, ".summary tbody tr")["SCARLET"]
        assert [float(cell) for cell in shown[3:6]] == [up, down, up + down]
    assert browser.complaints == []


def test_the_policy_refuses_what_is_not_in_the_page_and_the_page_needs_nothing_else(
    browser: Browser, comparison: Path, sweep: Path
) -> None:
    for page in (comparison, sweep / "index.html"):
        whole = page.read_text(encoding="utf-8")
        changed = page.with_name("changed.html")
        beacon = '<img src="https://nowhere.invalid/beacon.png"><script>document.title = "ran"</script>\n</body>'
        changed.write_text(whole.replace("</body>", beacon), encoding="utf-8")
        browser.open(changed)
        assert len(browser.complaints) == 2 and all("Content Security Policy" in each for each in browser.complaints)
        assert browser.evaluate("document.title") != "ran"
    changed = comparison.with_name("changed.html")
    changed.write_text(POLICY.sub("", comparison.read_text(encoding="utf-8"), count=1), encoding="utf-8")
    browser.open(changed)
    until(browser, DRAWN)
    assert browser.requests == [changed.as_uri()]


def test_an_index_and_the_pages_of_its_runs_share_the_library_from_disk(browser: Browser, sweep: Path) -> None:
    browser.open(sweep / "index.html")
    link = browser.evaluate("document.querySelector('.runs a').href")
    for page in (sweep / "index.html", sweep / "scarlet-0" / "report.html"):
        browser.open(page)
        until(browser, DRAWN)
        assert browser.requests == [page.as_uri(), (sweep / LIBRARY).as_uri()]
        assert browser.evaluate(PLOTS) == [9, 0], "with the accuracy of each client"
        browser.resize(380)
        until(browser, f"({PLOTS})[1] === 0")
        assert browser.evaluate(OVERFLOW) <= 0
        assert browser.complaints == []
    assert link == page.as_uri()


def test_the_slider_tells_what_each_variant_needs_for_an_accuracy(browser: Browser, sweep: Path) -> None:
    browser.open(sweep / "index.html")
    browser.evaluate("(() => { slider.value = 0.4; slider.dispatchEvent(new Event('input')); slider.focus() })()")
    # 0.4 + 0.1 x 0.1 + 0.005 in the last rounds of DS-FL; of SCARLET with beta 2, alpha 1 half of 0.805 in the first.
    costs = cells(browser, ".cost tbody tr")
    assert costs["DS-FL (alpha=0.1)"] == ["1.00", "2", ""]
    assert costs["SCARLET (alpha=1.0, beta=2.0)"] == ["0.500", "1", ""]
    for _ in range(4):
        browser.press("ArrowRight", 39)
    assert browser.evaluate("document.querySelector('.slider output').textContent") == "0.420"
    costs = cells(browser, ".cost tbody tr")
    assert costs["DS-FL (alpha=0.1)"] == ["not reached", "", ""]
    assert costs["SCARLET (alpha=1.0, beta=2.0)"] == ["1.00", "2", ""]
    browser.evaluate("document.querySelector('.choice button[value=framed]').click()")
    assert cells(browser, ".cost tbody tr")["SCARLET (alpha=1.0, beta=2.0)"] == ["1.12", "2", ""]
    assert browser.complaints == []


def test_heat_maps_have_the_means_of_what_is_shown(browser: Browser, sweep: Path) -> None:
    browser.open(sweep / "index.html")
    server = ".heat[data-quantity=server_accuracy] tr"
    note = "document.getElementById('heat-mean').textContent"
    # The mean of the last ten rounds, over two seeds: 0.005 more than with seed 0.
    assert cells(browser, server) == {
        "method \\ alpha": ["0.1", "1.0"],
        "SCARLET": ["0.665", "0.755"],
        "DS-FL": ["0.415", "0.505"],
    }
    assert "over seeds, beta." in browser.evaluate(note)
    choose(browser, ".filters [data-axis='2']", "1")
    assert cells(browser, server)["SCARLET"] == ["0.715", "0.805"]
    assert "over seeds; only beta = 2.0." in browser.evaluate(note)
    assert len(cells(browser, ".cost tbody tr")) == 4, "two of SCARLET, and DS-FL, which has no beta"
    choose(browser, ".filters [data-axis='2']", "")
    choose(browser, "#down", "2")
    assert cells(browser, server)["2.0"] == ["0.715", "0.805"]
    assert cells(browser, server)["–"] == ["0.415", "0.505"]
    assert len(set(browser.evaluate("all('.heat td').map((cell) => cell.style.background)"))) > 4
    assert browser.complaints == []


def test_heat_maps_say_where_their_cells_differ_in_more_than_row_and_column(browser: Browser, tmp_path: Path) -> None:
    runs = [each for each in grid(tmp_path) if not (each.config["alpha"] == 1.0 and each.config.get("beta") == 2.0)]
    write_index(tmp_path, runs)
    browser.open(tmp_path / "index.html")
    note = "document.getElementById('heat-mean').textContent"
    assert browser.evaluate(note).endswith("Cells differ in beta too: choose a value above to compare like with like.")
    choose(browser, ".filters [data-axis='2']", "0")
    assert browser.evaluate(note).endswith("Brighter is higher.")
    assert browser.complaints == []


def test_the_legend_hides_a_variant_or_a_method_everywhere(browser: Browser, sweep: Path) -> None:
    browser.open(sweep / "index.html")
    until(browser, DRAWN)
    lines = "document.getElementById('server-round').data.filter((line) => line.visible && line.name).length"
    assert browser.evaluate(lines) == len(cells(browser, ".summary tbody tr")) == 6
    browser.evaluate("document.querySelector('.legend .all').click()")
    until(browser, f"{lines} === 2")
    assert list(cells(browser, ".summary tbody tr")) == ["DS-FL (alpha=0.1)", "DS-FL (alpha=1.0)"]
    browser.evaluate("document.querySelector('.legend button[value]').click()")
    until(browser, f"{lines} === 3")
    assert browser.complaints == []


def test_the_configuration_is_copied_with_or_without_a_clipboard(browser: Browser, sweep: Path) -> None:
    browser.open(sweep / "scarlet-0" / "report.html")
    said = "document.querySelector('.copy [role=status]').textContent"
    browser.evaluate("document.getElementById('copy').click()")
    until(browser, f"{said} === 'copied'")
    without = "Object.defineProperty(navigator, 'clipboard', { value: undefined })"
    browser.evaluate(f"{without}; document.addEventListener('copy', () => (window.taken = String(getSelection())))")
    browser.evaluate("document.querySelector('.copy [role=status]').textContent = ''")
    browser.evaluate("document.getElementById('copy').click()")
    until(browser, f"{said} === 'copied'")
    assert 'method = "scarlet"\nseed = 0\nrounds = 60\nalpha = 0.1\nbeta = 1.0' in browser.evaluate("window.taken")
    assert browser.complaints == []


def test_on_paper_plots_have_the_width_of_the_sheet(browser: Browser, sweep: Path) -> None:
    browser.open(sweep / "index.html")
    browser.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert browser.evaluate(PLOTS) == [9, 0]
    assert browser.evaluate("Math.max(...all('.main-svg').map((each) => each.getBoundingClientRect().width))") <= 704
    browser.do("Emulation.setEmulatedMedia", media="print")
    assert browser.evaluate("all('button:not(.legend button), select, input').every((each) => !each.offsetParent)")
    browser.do("Emulation.setEmulatedMedia", media="")
    browser.evaluate("dispatchEvent(new Event('afterprint'))")
    until(browser, f"({PLOTS})[1] === 0")
    assert browser.complaints == []


def test_the_page_of_a_run_that_goes_on_says_so_and_is_read_again(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sweep: Path
) -> None:
    monkeypatch.setattr(page_module, "REFRESH", 1)
    halted = replace(run("scarlet", 0, [0.1] * 12), summary={})
    path = tmp_path / "report.html"
    write_report([halted], path, library=sweep / LIBRARY, running=True)
    browser.open(path)
    said = browser.evaluate("document.querySelector('.unfinished').textContent")
    assert said.startswith("Not finished: round 12 of 60. Written at ")
    write_report([run("scarlet", 0, [0.1] * 60)], path, library=sweep / LIBRARY)
    until(browser, "document.readyState === 'complete' && !document.querySelector('.unfinished')")
    assert browser.evaluate("document.body.dataset.refresh") is None
