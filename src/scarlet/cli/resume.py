"""`scarlet resume DIR`: continue a run or a comparison that was interrupted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from typing_extensions import Doc

from scarlet.cli.launch import check_machine
from scarlet.cli.options import AsJson, Command, options_of, split, table_in
from scarlet.config import Config
from scarlet.errors import ConfigError
from scarlet.experiment.flat import unflatten


@dataclass(frozen=True, slots=True)
class ResumeOptions:
    """What may differ from the run that was interrupted, because it does not affect results."""

    workers: Annotated[int | None, Doc("worker processes (default: as in the interrupted run)")] = None


def main(argv: Sequence[str]) -> int:
    """Find out what is in the directory, and finish it."""
    words, rest = split(argv)
    about = "Continue an interrupted run or comparison; its results are those of one that was not interrupted."
    given = Command("scarlet resume DIR", about, options_of(ResumeOptions, AsJson)).parse(rest)
    if len(words) != 1:
        raise ConfigError(f"scarlet resume takes the one directory of a run or a comparison, got {len(words)}")
    path, workers, as_json = Path(words[0]), given.get("workers"), bool(given.get("json"))

    from scarlet.api import complete_page, resume_comparison, run
    from scarlet.cli.display import Display, show_results
    from scarlet.experiment.comparison import PLAN, read_plan
    from scarlet.experiment.run_directory import finished

    if (path / PLAN).exists():
        planned = read_plan(path)
        _resumed(planned[0], path / PLAN, workers)
        with Display(len(planned), quiet=as_json) as display:
            results = resume_comparison(path, workers=workers, watchers=[display])
    elif (done := finished(path)) is not None:
        complete_page(done)
        results = [done]
    else:
        method, config = _resumed(table_in(path / "config.json"), path / "config.json", workers)
        with Display(1, quiet=as_json) as display:
            results = [run(method, config, out=path, resume=True, watchers=[display])]
    return show_results(results, path, as_json=as_json)


def _resumed(table: Mapping[str, object], where: Path, workers: int | None) -> tuple[object, Config]:
    """The method's config object and the shared config of a run, if this machine can run it."""
    method, config = unflatten(table, str(where))
    config = config if workers is None else replace(config, workers=workers)
    check_machine(config)
    return method, config
