"""`scarlet.run` and `scarlet.compare`: experiments that leave a page, report.html, beside their other results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from scarlet.config import Config
from scarlet.data.federated import Data
from scarlet.experiment import comparison
from scarlet.experiment.estimate import Estimate
from scarlet.experiment.federation import Federation
from scarlet.experiment.round_log import Watcher
from scarlet.experiment.run import run as run_without_page
from scarlet.models.registry import ModelFactory, Weights
from scarlet.records import RoundRecord, RunResult
from scarlet.transport.local import LocalTransport
from scarlet.transport.transport import Transport
from scarlet.wire.ledger import Ledger


def run(
    method: object,
    config: Config,
    *,
    out: Path | None = None,
    resume: bool = False,
    data: Data | None = None,
    model: ModelFactory | None = None,
    watchers: Sequence[Watcher] = (),
    transport: Callable[..., Transport] = LocalTransport,
) -> RunResult:
    """Run one method; `method` is its config object, such as ScarletConfig(beta=2).

    With `out`, that directory holds the results and a page about them. Ctrl-C ends the run after its last whole round,
    with the results so far. `resume` continues from the last checkpoint in `out`. `transport` makes the transport; a
    benchmark may pass one that measures time.
    """
    return run_without_page(
        method,
        config,
        out=out,
        resume=resume,
        data=data,
        model=model,
        watchers=[PageWriter(), *watchers],
        transport=transport,
    )


def compare(
    methods: Sequence[object],
    config: Config,
    *,
    seeds: Sequence[int] = (0,),
    out: Path | None = None,
    data: Data | None = None,
    model: ModelFactory | None = None,
    watchers: Sequence[Watcher] = (),
) -> list[RunResult]:
    """Run each method under each seed; `methods` are config objects. Ctrl-C ends it with the results so far.

    With `out`, it holds a directory for each run, a summary.json of all and a report.html over all.
    """
    watchers = [PageWriter(), *watchers]
    results = comparison.compare(methods, config, seeds=seeds, out=out, data=data, model=model, watchers=watchers)
    if out is not None:
        write_page(results, out)
    return results


def resume_comparison(out: Path, *, workers: int | None = None, watchers: Sequence[Watcher] = ()) -> list[RunResult]:
    """Finish a comparison that was interrupted, and its pages."""
    results = comparison.resume_comparison(out, workers=workers, watchers=[PageWriter(), *watchers])
    for result in results:
        complete_page(result)
    write_page(results, out)
    return results


def write_page(results: Sequence[RunResult], directory: Path) -> None:
    """Write report.html about some runs, with the data partition of the first."""
    from scarlet.report.page import write_report  # plotly is slow to load, and only needed here

    assert results[0].directory is not None
    figure = results[0].directory / "partition.svg"
    partition = figure.read_text() if figure.exists() else None
    write_report(results, directory / "report.html", partition_svg=partition)


def complete_page(result: RunResult) -> None:
    """Write the page of a finished run that was killed before it wrote its page."""
    if result.directory is not None and not (result.directory / "report.html").exists():
        write_page([result], result.directory)


class PageWriter:
    """A watcher that writes the page of a run into its directory."""

    def start(self, config: Mapping[str, object], federation: Federation, expected: Estimate) -> None: ...

    def round(self, record: RoundRecord, ledger: Ledger) -> None: ...

    def finish(self, result: RunResult, weights: Weights | None) -> None:
        if result.directory is not None:
            write_page([result], result.directory)
