"""`scarlet compare METHOD...`: several methods under several seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from typing_extensions import Doc

from scarlet.cli.launch import check_device, configs, new_directory, preset_explained, run_options, whose
from scarlet.cli.options import integers, options_of, parse, split
from scarlet.errors import ConfigError
from scarlet.methods.registry import METHODS, Entry, entry


@dataclass(frozen=True, slots=True)
class Seeds:
    """What a comparison has beside the options of a run."""

    seeds: Annotated[str | None, Doc("one repetition for each, such as 0,1,2; None: the one --seed")] = None


def main(argv: Sequence[str]) -> int:
    """Run several methods on the same data and leave one page about all of them."""
    names, rest = split(argv)
    if not names and "--help" not in rest:
        raise ConfigError(f"scarlet compare takes METHOD... before the options, got none: {', '.join(METHODS)}")
    if len(set(names)) < len(names):
        raise ConfigError(f"each METHOD may be named once, got {' '.join(names)}")
    chosen = [entry(name) for name in names] or list(METHODS.values())
    about = f"Run several methods ({', '.join(METHODS)}) on the same data; an option goes to each method that has it."
    options = options_of(Seeds) | run_options(chosen)
    prog = f"scarlet compare {' '.join(names) or 'METHOD...'}"
    given = parse(prog, about, options, rest, partial(whose, chosen))
    with preset_explained(chosen, given):
        return _compare(chosen, given)


def _compare(chosen: Sequence[Entry[Any]], given: Mapping[str, Any]) -> int:
    config, methods = configs(chosen, given)
    seeds = integers("seeds", given["seeds"]) if given.get("seeds") is not None else (config.seed,)

    from scarlet.cli.display import Display, final_table
    from scarlet.experiment.comparison import compare

    check_device(config.device)
    out = new_directory(given.get("out"), "compare")
    quiet = bool(given.get("json"))
    with Display(len(seeds) * len(methods), quiet=quiet) as display:
        results = compare(methods, config, seeds=seeds, out=out, watchers=[display])
    if quiet:
        runs = [{"method": each.method, "config": dict(each.config), **each.summary} for each in results]
        print(json.dumps({"directory": str(out), "runs": runs}, indent=2))
    else:
        final_table(results, out)
    return 130 if results[-1].interrupted else 0
