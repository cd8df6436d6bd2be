"""`scarlet run METHOD`: one method, one seed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from scarlet.cli.launch import check_device, configs, new_directory, preset_explained, run_options, whose
from scarlet.cli.options import method_in, parse, split
from scarlet.errors import ConfigError
from scarlet.methods.registry import METHODS, Entry, entry


def main(argv: Sequence[str]) -> int:
    """Run one method and leave its results in a directory."""
    names, rest = split(argv)
    names = names or method_in(rest)
    if len(names) != 1 and "--help" not in rest:
        raise ConfigError(f"scarlet run takes one METHOD before the options, got {len(names)}: {', '.join(METHODS)}")
    chosen = [entry(name) for name in names] or list(METHODS.values())
    about = f"Run one method ({', '.join(METHODS)}) and leave its results in a directory."
    prog = f"scarlet run {' '.join(names) or 'METHOD'}"
    given = parse(prog, about, run_options(chosen), rest, partial(whose, chosen))
    with preset_explained(chosen, given):
        return _run(chosen, given)


def _run(chosen: Sequence[Entry[Any]], given: Mapping[str, Any]) -> int:
    config, (method,) = configs(chosen, given)

    from scarlet.cli.display import Display, final_table
    from scarlet.experiment.run import run

    check_device(config.device)
    out = new_directory(given.get("out"), chosen[0].name)
    quiet = bool(given.get("json"))
    with Display(1, quiet=quiet) as display:
        result = run(method, config, out=out, watchers=[display])
    if quiet:
        print(json.dumps({"directory": str(out), "config": dict(result.config), **result.summary}, indent=2))
    else:
        final_table([result], out)
    return 130 if result.interrupted else 0
