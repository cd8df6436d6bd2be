"""The server of a federation on Flower: the round loop, checkpoints and run directory of a local run, over a Grid."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from scarlet.data.sites import ELSEWHERE, Augment, Scale, Site
from scarlet.errors import ConfigError, ScarletError
from scarlet.experiment.given import Given
from scarlet.experiment.result import Result
from scarlet.experiment.run import run_with
from scarlet.experiment.run_directory import finished
from scarlet.flower.options import AppOptions, read_options
from scarlet.flower.processes import private
from scarlet.flower.round_lines import RoundLines
from scarlet.flower.site_data import read_test
from scarlet.methods.registry import assemble, entry_of
from scarlet.models.registry import ModelFactory
from scarlet.training.optimisers import MakeOptimizer, MakeSchedule
from scarlet.transport.flower import Event, FlowerTransport


def server(
    app: ServerApp,
    *,
    model: ModelFactory | str | None = None,
    server_model: ModelFactory | str | None = None,
    augment: Augment | Scale | None = None,
    scale: Scale | None = None,
    optimizer: MakeOptimizer | None = None,
    schedule: MakeSchedule | None = None,
) -> None:
    """Let a ServerApp of Flower be the server of a federation; the arguments are those of `scarlet.run`."""
    given = Given(
        model=model, server_model=server_model, augment=augment, scale=scale, optimizer=optimizer, schedule=schedule
    )

    def main(grid: Grid, context: Context) -> None:
        _end_when_orphaned()
        try:
            serve(grid, read_options(dict(context.run_config)), given)
        except ScarletError as error:  # one line for the operator, and a run that Flower counts as failed
            print(f"scarlet: {error}", flush=True)
            sys.exit(2)

    app.main()(main)


def _end_when_orphaned() -> None:
    """End this process when the one that started it is gone: Flower's client would wait for its SuperLink for ever."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)  # as if killed with it: the checkpoint is whole at any instant

    threading.Thread(target=watch, daemon=True).start()


def serve(grid: Grid, options: AppOptions, given: Given) -> Result | None:
    """Run the rounds that are left; None where a run is finished already."""
    out = options.flower.out.absolute()
    # A SuperLink that is started again may bring back the run that it lost, beside a new one.
    with private(out.with_name(f".{out.name}.lock"), "out"):
        return _serve(grid, options, given, out)


def _serve(grid: Grid, options: AppOptions, given: Given, out: Path) -> Result | None:
    config = options.config
    if (done := finished(out) if out.exists() else None) is not None:
        print(f"scarlet: the run in {out} is finished ({len(done.records)} rounds); choose another out", flush=True)
        return None
    if options.remote:
        given = with_sites(given, options)
    lines = RoundLines()
    nodes = config.clients if options.flower.min_nodes is None else options.flower.min_nodes
    transport = partial(
        FlowerTransport,
        grid=grid,
        expected=nodes,
        least=config.min_answers,
        patience=options.flower.wait_seconds,
        tell=_recorder(out / "nodes.jsonl", lines),
    )
    result = run_with(
        given,
        options.method,
        replace(config, workers=1),
        out=out,
        resume=(out / "config.json").exists(),
        watchers=[lines],
        transport=transport,
    )
    accuracy = result.summary.get("server_accuracy")
    shown = "" if not isinstance(accuracy, float) else f", server accuracy {accuracy:.3f} over the last rounds"
    print(f"scarlet: finished {len(result.records)} rounds{shown}; see {out / 'report.html'}", flush=True)
    return result


def with_sites(given: Given, options: AppOptions) -> Given:
    """A federation whose clients keep their data to themselves."""
    flower, (_, make) = options.flower, assemble(options.method, None, None)
    if flower.class_count is None:
        raise ConfigError(
            "classes must be given where private = 'sites'; set classes or class-names in the app's config"
        )
    if make().pooled:
        name = entry_of(options.method).name
        raise ConfigError(
            f"method {name} pools the data of all clients, which sites keep to themselves; choose another"
        )
    return replace(
        given,
        sites=[Site(ELSEWHERE) for _ in range(options.config.clients)],
        test=None if flower.test is None else read_test(flower.test),
        classes=flower.class_count,
        class_names=flower.names,
    )


def _recorder(path: Path, lines: RoundLines) -> Callable[[Event], None]:
    """Writes what happens to nodes to a file of the run directory, and to the lines that the operator sees."""

    def tell(event: Event) -> None:
        lines.event(event)
        with path.open("a") as file:
            when = datetime.now(UTC).isoformat(timespec="milliseconds")
            file.write(json.dumps({"time": when, **asdict(event)}) + "\n")

    return tell
