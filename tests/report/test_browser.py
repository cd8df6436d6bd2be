"""The page in a real browser, from disk."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from scarlet.report import write_report
from tests.report.runs import run

pytestmark = pytest.mark.browser

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
    *("--enable-logging=stderr", "--v=0", "--virtual-time-budget=5000", "--dump-dom"),
)
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
# What the page loaded from elsewhere, how far it is wider than the window, and which plots miss their column.
PROBE = """<script>addEventListener("load", () => {
  const loaded = performance.getEntriesByType("resource").map((entry) => entry.name);
  const root = document.documentElement;
  const plots = [...document.querySelectorAll(".js-plotly-plot")];
  const misfits = plots.filter((plot) => {
    const drawn = plot.querySelector(".main-svg").getBoundingClientRect().width;
    return Math.abs(drawn - plot.parentElement.getBoundingClientRect().width) > 2;
  });
  const overflow = root.scrollWidth - root.clientWidth;
  root.setAttribute("data-probe", `${loaded.length} ${overflow} ${misfits.length}`);
});</script>"""


@dataclass(frozen=True, slots=True)
class Shown:
    """What the browser made of a page."""

    dom: str
    console: list[str]
    loaded: int
    overflow: int
    misfits: int


@pytest.fixture(scope="module")
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        missing = "THE REPORT WAS NOT TESTED IN A BROWSER: install chromium"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return found


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "report.html"
    rising = [0.1 + 0.01 * step for step in range(40)]
    runs = [run(method, seed, [v + 0.02 * seed for v in rising]) for method in ("scarlet", "dsfl") for seed in range(3)]
    write_report([*runs, run("<b>hostile</b>", 0, [None] * 40)], path)
    return path


def show(chromium: str, page: Path, width: int) -> Shown:
    """Load a copy that reports on itself."""
    copy = page.with_name("probed.html")
    copy.write_text(page.read_text(encoding="utf-8").replace("</body>\n</html>", PROBE + "</body>\n</html>"), "utf-8")
    command = [chromium, *FLAGS, f"--user-data-dir={page.parent / 'profile'}", f"--window-size={width},900"]
    done = subprocess.run([*command, copy.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    probe = re.search(r'data-probe="(\d+) (-?\d+) (\d+)"', done.stdout)
    assert probe is not None, f"the page did not finish loading: {done.stderr[-2000:]}"
    loaded, overflow, misfits = map(int, probe.groups())
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return Shown(done.stdout, console, loaded, overflow, misfits)


@pytest.mark.parametrize("width", [600, 1280])
def test_page_opens_from_disk_with_every_plot_and_a_silent_console(chromium: str, report: Path, width: int) -> None:
    shown = show(chromium, report, width)
    assert shown.console == []
    assert len(re.findall('class="js-plotly-plot|class="plotly-graph-div js-plotly-plot', shown.dom)) == 8
    assert shown.misfits == 0
    assert shown.overflow <= 0
    drawn = [float(found) for found in re.findall(r'<svg class="main-svg"[^>]* width="([\d.]+)"', shown.dom)]
    assert drawn
    assert all(250 < size < width for size in drawn)


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
