"""The page in a real browser, from disk."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from scarlet.report.page import write_report
from tests.report.runs import run

pytestmark = pytest.mark.browser

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
    *("--enable-logging=stderr", "--v=0", "--virtual-time-budget=5000", "--dump-dom"),
)
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
# What the page loaded from elsewhere, how far it is wider than the window, how many plots it shows, how many of them
# miss their column, and the first line of the table that it shows; after a click on the choice of bytes, if any.
PROBE = """<script>addEventListener("load", () => {
  document.querySelector('.choice button[value="CHOSEN"]')?.click();
  setTimeout(probe, 1000);
});
function probe() {
  const loaded = performance.getEntriesByType("resource").map((entry) => entry.name);
  const root = document.documentElement;
  const plots = [...document.querySelectorAll(".js-plotly-plot")].filter((plot) => plot.offsetParent);
  const misfits = plots.filter((plot) => {
    const drawn = plot.querySelector(".main-svg").getBoundingClientRect().width;
    const column = plot.parentElement.getBoundingClientRect().width;
    return drawn <= 250 || drawn >= innerWidth || Math.abs(drawn - column) > 2;
  });
  const overflow = root.scrollWidth - root.clientWidth;
  const table = [...document.querySelectorAll(".summary")].find((table) => table.offsetParent);
  const cells = [...table.rows[1].cells].map((cell) => cell.textContent).join("|");
  root.setAttribute("data-probe", `${loaded.length} ${overflow} ${plots.length} ${misfits.length} ${cells}`);
}</script>"""


@dataclass(frozen=True, slots=True)
class Shown:
    """What the browser made of a page."""

    dom: str
    console: list[str]
    loaded: int
    overflow: int
    plots: int
    misfits: int
    cells: list[str]


@pytest.fixture(scope="module")
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        missing = "THE REPORT WAS NOT TESTED IN A BROWSER: install chromium"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("browser") / "report.html"
    rising = [0.1 + 0.01 * step for step in range(40)]
    runs = [run(method, seed, [v + 0.02 * seed for v in rising]) for method in ("scarlet", "dsfl") for seed in range(3)]
    write_report([*runs, run("<b>hostile</b>", 0, [None] * 40)], path)
    return path


@pytest.fixture
def report(written: Path, tmp_path: Path) -> Path:
    """A copy of the page."""
    return Path(shutil.copy(written, tmp_path))


def show(chromium: str, page: Path, width: int, chosen: str = "") -> Shown:
    """Load a copy that reports on itself."""
    copy = page.with_name("probed.html")
    probe = PROBE.replace("CHOSEN", chosen) + "</body>\n</html>"
    copy.write_text(page.read_text(encoding="utf-8").replace("</body>\n</html>", probe), "utf-8")
    command = [chromium, *FLAGS, f"--user-data-dir={page.parent / 'profile'}", f"--window-size={width},900"]
    done = subprocess.run([*command, copy.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'data-probe="(\d+) (-?\d+) (\d+) (\d+) ([^"]*)"', done.stdout)
    assert found is not None, f"the page did not finish loading: {done.stderr[-2000:]}"
    loaded, overflow, plots, misfits = map(int, found.groups()[:-1])
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return Shown(done.stdout, console, loaded, overflow, plots, misfits, found.group(5).split("|"))


@pytest.mark.parametrize("width", [600, 1280])
def test_page_opens_from_disk_with_every_plot_and_a_silent_console(chromium: str, report: Path, width: int) -> None:
    shown = show(chromium, report, width)
    assert shown.console == []
    assert shown.plots == 8
    assert shown.misfits == 0
    assert shown.overflow <= 0


@pytest.mark.parametrize(
    ("width", "chosen", "up", "down"),
    [(600, "payload", 12, 8), (1280, "framed", 14, 8.4), (600, "carried", 15.2, 9.2)],
)
def test_a_choice_of_bytes_shows_their_table_and_plots(
    chromium: str, report: Path, width: int, chosen: str, up: float, down: float
) -> None:
    shown = show(chromium, report, width, chosen)
    assert shown.console == []
    assert (shown.plots, shown.misfits) == (8, 0)
    assert shown.overflow <= 0
    assert [float(cell) for cell in shown.cells[4:7]] == [up, down, up + down]


def test_page_asks_for_nothing_even_where_its_policy_would_allow_it(chromium: str, report: Path) -> None:
    report.write_text(POLICY.sub("", report.read_text(encoding="utf-8"), count=1), encoding="utf-8")
    shown = show(chromium, report, 1280)
    assert shown.loaded == 0
    assert shown.console == []


def test_a_page_that_did_load_something_would_be_noticed(chromium: str, report: Path) -> None:
    beacon = '<img src="https://nowhere.invalid/beacon.png">\n</body>\n</html>'
    page = report.read_text(encoding="utf-8").replace("</body>\n</html>", beacon)
    report.write_text(page, encoding="utf-8")
    assert any("Content Security Policy" in line for line in show(chromium, report, 1280).console)
    report.write_text(POLICY.sub("", page, count=1), encoding="utf-8")
    assert show(chromium, report, 1280).loaded == 1
