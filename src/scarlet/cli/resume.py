"""`scarlet resume DIR`: go on with a run or a comparison that was cut off, as if it had not been."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from typing_extensions import Doc

from scarlet.cli.launch import check_device
from scarlet.cli.options import options_of, parse, split, table_in
from scarlet.errors import ConfigError
from scarlet.experiment.flat import unflatten


@dataclass(frozen=True, slots=True)
class ResumeOptions:
    """What may differ from the run that was cut off, because it never changes a result."""

    workers: Annotated[int | None, Doc("worker processes; None: as before")] = None
    json: Annotated[bool, Doc("print the summary as JSON, and nothing else")] = False


def main(argv: Sequence[str]) -> int:
    """Find out what is in the directory, and finish it."""
    words, rest = split(argv)
    about = "Go on with a run or a comparison that was cut off; the outcome is that of one that was not."
    given = parse("scarlet resume DIR", about, options_of(ResumeOptions), rest)
    if len(words) != 1:
        raise ConfigError(f"scarlet resume takes the one directory of a run or a comparison, got {len(words)}")
    path, workers, quiet = Path(words[0]), given.get("workers"), bool(given.get("json"))

    from scarlet.cli.display import Display, final_table
    from scarlet.experiment.comparison import PLAN, read_plan, resume_comparison
    from scarlet.experiment.run import run
    from scarlet.experiment.run_directory import finished

    if (path / PLAN).exists():
        with Display(len(read_plan(path)), quiet=quiet) as display:
            results = resume_comparison(path, workers=workers, watchers=[display])
    elif (done := finished(path)) is not None:
        results = [done]
    else:
        method, config = unflatten(table_in(path / "config.json"), str(path / "config.json"))
        config = config if workers is None else replace(config, workers=workers)
        check_device(config.device)
        with Display(1, quiet=quiet) as display:
            results = [run(method, config, out=path, resume=True, watchers=[display])]
    if quiet:
        runs = [{"method": each.method, "config": dict(each.config), **each.summary} for each in results]
        print(json.dumps({"directory": str(path), "runs": runs}, indent=2))
    else:
        final_table(results, path)
    return 130 if results[-1].interrupted else 0
