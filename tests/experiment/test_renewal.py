from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

import scarlet
from scarlet.experiment import renewal
from scarlet.experiment.renewal import APART, Renewal
from scarlet.experiment.run_directory import RunDirectory
from scarlet.report.index import write_library
from tests.experiment.tiny import METHOD, TINY
from tests.experiment.watchers import CtrlC


@pytest.mark.parametrize("cost", [0.01, 0.3, 4.0])
def test_writing_takes_less_than_a_fiftieth_of_the_time_and_goes_on(cost: float) -> None:
    now, spent, written = 0.0, 0.0, list[float]()

    def write() -> None:
        nonlocal now, spent
        written.append(now)
        now, spent = now + cost, spent + cost

    pages = Renewal(lambda: now)
    while now < 5_000:
        pages.renew(write)
        now += 0.7  # a round
    assert len(written) >= 10
    assert min(after - before for before, after in pairwise(written)) >= APART
    assert spent < 0.02 * now


class Reader:
    """Reads the page after each round."""

    def __init__(self, path: Path) -> None:
        self.path, self.pages = path, list[str]()

    def start(self, *_: object) -> None: ...

    def round(self, *_: object) -> None:
        self.pages.append(self.path.read_text(encoding="utf-8"))

    def finish(self, *_: object) -> None: ...


def test_the_page_of_a_run_follows_its_rounds_also_after_it_was_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewal, "APART", 0.0)
    monkeypatch.setattr(renewal, "SHARE", 1e9)
    out, config = tmp_path / "run", replace(TINY, rounds=4)
    write_library(tmp_path)
    reader = Reader(out / "report.html")
    scarlet.run(METHOD, config, out=out, watchers=[reader, CtrlC(2)])
    halted = (out / "report.html").read_text(encoding="utf-8")
    assert "Not finished: round 2 of 4." in halted and "data-refresh=" not in halted
    result = scarlet.run(METHOD, config, out=out, watchers=[reader], resume=True)
    said = [re.findall(r"Not finished: round (\d) of 4\.", page) for page in reader.pages]
    assert said == [["1"], ["2"], ["2"], ["3"], ["4"]], "round 2 was run again"
    assert all('<body data-refresh="30">' in page for page in reader.pages)
    done = (out / "report.html").read_text(encoding="utf-8")
    assert "Not finished" not in done and "<body>" in done
    # The library is the sweep's, but a page within a notebook has its own.
    assert '<script src="../plotly.min.js"></script>' in done and len(done) < 200_000 < len(result.report().html)


def test_a_page_that_cannot_be_written_does_not_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewal, "APART", 0.0)
    out = tmp_path / "run"

    class Blocks(Reader):
        def start(self, *_: object) -> None:
            (out / "report.html").mkdir()

        def round(self, *_: object) -> None:
            assert (out / "report.html").is_dir()

        def finish(self, *_: object) -> None: ...

    class Before(RunDirectory):
        def finish(self, result: scarlet.Result) -> None:
            (out / "report.html").rmdir()
            super().finish(result)

    monkeypatch.setattr("scarlet.experiment.run.RunDirectory", Before)
    scarlet.run(METHOD, replace(TINY, rounds=2), out=out, watchers=[Blocks(out)])
    assert (out / "report.html").is_file()
