"""`scarlet run METHOD`: one method, one seed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from scarlet.cli.options import Command, method_in, split
from scarlet.cli.run_options import configs, new_directory, preset_explained, run_options, whose
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
    usage = f"scarlet run {' '.join(names) or 'METHOD'}"
    _, given = Command(usage, about, run_options(chosen), partial(whose, chosen)).parse(rest)
    with preset_explained(chosen, given):
        config, (method,) = configs(chosen, given)

        from scarlet.cli.display import Display, show_results
        from scarlet.experiment.run import run

        as_json = bool(given.get("json"))
        with new_directory(given.get("out"), chosen[0].name) as out, Display(1, out, quiet=as_json) as display:
            result = run(method, config, out=out, watchers=[display], track=given.get("track", ()))
    return show_results([result], out, as_json=as_json, single=True)
