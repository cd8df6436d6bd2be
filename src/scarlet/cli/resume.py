"""`scarlet resume DIR`: continue a run, a comparison or a sweep that was interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typing_extensions import Doc

from scarlet.cli.options import AsJson, Command, options_of, table_in
from scarlet.errors import ConfigError
from scarlet.experiment.config_json import unflatten
from scarlet.trackers.registry import chosen, found_in


@dataclass(frozen=True, slots=True)
class ResumeOptions:
    """What may differ from the run that was interrupted, because it does not affect results."""

    workers: Annotated[int | None, Doc("worker processes (default: as in the interrupted run)")] = None
    track: Annotated[
        str | None, Doc("trackers, as in scarlet run; none: no tracker (default: those of the interrupted run)")
    ] = None


def main(argv: Sequence[str]) -> int:
    """Find out what is in the directory, and finish it."""
    about = "Continue an interrupted run, comparison or sweep; its results are those of one that was not interrupted."
    words, given = Command("scarlet resume DIR", about, options_of(ResumeOptions, AsJson)).parse(argv)
    if len(words) != 1:
        raise ConfigError(f"scarlet resume takes the one directory of a run, a comparison or a sweep, got {len(words)}")
    path, as_json = Path(words[0]), given.pop("json", False)
    asked = given.pop("track", None)
    track = chosen(found_in(path) if asked is None else asked)
    changed = {name: value for name, value in given.items() if value is not None}

    from scarlet.cli.display import Display, show_results
    from scarlet.cli.sweep import SweepDisplay
    from scarlet.cli.sweep import finish as finish_sweep
    from scarlet.experiment import sweep
    from scarlet.experiment.comparison import PLAN, run_all
    from scarlet.experiment.planned import read_plan
    from scarlet.experiment.run import run
    from scarlet.experiment.run_directory import complete, finished

    if (path / PLAN).exists():
        planned = read_plan(path / PLAN, changed)
        with Display(len(planned), path, quiet=as_json) as display:
            results = run_all(planned, path, watchers=[display], track=track)
    elif (path / sweep.PLAN).exists():
        if asked is not None:
            raise ConfigError(f"track is for runs and comparisons, and {path} is a sweep; leave --track out")
        planned = read_plan(path / sweep.PLAN, changed)
        with SweepDisplay(quiet=as_json) as sweep_display:
            count = sweep.process_count(None, planned)
            results = sweep.run_side_by_side(planned, path, count, sweep_display.watch)
        return finish_sweep(sweep_display, results, path, as_json=as_json)
    elif (done := finished(path)) is not None:
        complete(done)
        results = [done]
    else:
        method, config = unflatten({**table_in(path / "config.json"), **changed}, str(path / "config.json"))
        with Display(1, path, quiet=as_json) as display:
            results = [run(method, config, out=path, resume=True, watchers=[display], track=track)]
    return show_results(results, path, as_json=as_json)
