"""`scarlet compare METHOD...`: several methods under several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from typing_extensions import Doc

from scarlet.cli.options import Command, split
from scarlet.cli.run_options import configs, new_directory, preset_explained, run_options, whose
from scarlet.errors import ConfigError
from scarlet.methods.registry import METHODS, entry


@dataclass(frozen=True, slots=True)
class Seeds:
    """What a comparison has beside the options of a run."""

    seeds: Annotated[
        tuple[int, ...] | None, Doc("repeat every method under each of these seeds (default: the one --seed)")
    ] = None


def main(argv: Sequence[str]) -> int:
    """Run several methods on the same data and leave one page about all of them."""
    names, rest = split(argv)
    if not names and "--help" not in rest:
        raise ConfigError(f"scarlet compare takes METHOD... before the options, got none: {', '.join(METHODS)}")
    if len(set(names)) < len(names):
        raise ConfigError(f"each METHOD may be named once, got {' '.join(names)}")
    chosen = [entry(name) for name in names] or list(METHODS.values())
    about = f"Run several methods ({', '.join(METHODS)}) on the same data; an option goes to each method that has it."
    usage = f"scarlet compare {' '.join(names) or 'METHOD...'}"
    _, given = Command(usage, about, run_options(chosen, Seeds), partial(whose, chosen)).parse(rest)
    with preset_explained(chosen, given):
        config, methods = configs(chosen, given)
        seeds = given.get("seeds") or (config.seed,)

        from scarlet.cli.display import Display, show_results
        from scarlet.experiment.comparison import compare

        as_json = bool(given.get("json"))
        with (
            new_directory(given.get("out"), "compare") as out,
            Display(len(seeds) * len(methods), out, quiet=as_json) as display,
        ):
            track = given.get("track", ())
            results = compare(methods, config, seeds=seeds, out=out, watchers=[display], track=track)
    return show_results(results, out, as_json=as_json)
