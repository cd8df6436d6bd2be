"""`scarlet run METHOD`: one method, one seed."""

from __future__ import annotations

import json
from collections.abc import Sequence

from scarlet.cli.launch import check_device, configs, new_directory, run_options
from scarlet.cli.options import method_in, parse, split
from scarlet.errors import ConfigError
from scarlet.methods.registry import METHODS, entry


def main(argv: Sequence[str]) -> int:
    """Run one method and leave its results in a directory."""
    names, rest = split(argv)
    names = names or method_in(rest)
    if len(names) != 1 and "--help" not in rest:
        raise ConfigError(f"scarlet run takes one METHOD before the options, got {len(names)}: {', '.join(METHODS)}")
    chosen = [entry(name) for name in names] or list(METHODS.values())
    about = f"Run one method ({', '.join(METHODS)}) and leave its results in a directory."
    given = parse(f"scarlet run {' '.join(names) or 'METHOD'}", about, run_options(chosen), rest)
    config, (method,) = configs(chosen, given)

    from scarlet.cli.display import Display, final_table
    from scarlet.experiment import run

    check_device(config.device)
    out = new_directory(given.get("out"), names[0])
    quiet = bool(given.get("json"))
    with Display(1, quiet=quiet) as display:
        result = run(method, config, out=out, watchers=[display])
    if quiet:
        print(json.dumps({"directory": str(out), "config": dict(result.config), **result.summary}, indent=2))
    else:
        final_table([result], out)
    return 130 if result.interrupted else 0
