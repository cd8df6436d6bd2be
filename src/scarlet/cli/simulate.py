"""`scarlet simulate-cache`: the share of cache hits for several cache durations, without training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from typing_extensions import Doc

from scarlet.cli.main import no_positionals
from scarlet.cli.options import integers, options_of, parse, split
from scarlet.experiment.cache_simulation import IDLE_SHARE, SimulateConfig, Simulated, recommended, simulate_cache

_BLOCKS = " ▁▂▃▄▅▆▇█"
_WIDTH = 60


@dataclass(frozen=True, slots=True)
class Output:
    """What the command line adds to the simulation's own options."""

    durations: Annotated[str, Doc("the values of D to compare, with commas between")] = "25,50,100,200,400,800"
    out: Annotated[Path | None, Doc("also draw a page, such as cache.html")] = None
    json: Annotated[bool, Doc("print a list of objects, for scripts")] = False


def main(argv: Sequence[str]) -> int:
    """Print and draw the share of hits, and recommend a duration."""
    words, rest = split(argv)
    no_positionals("simulate-cache", words)
    about = "The share of cache hits in each round, for several cache durations D, without training (Algorithm 3)."
    given = parse("scarlet simulate-cache", about, options_of(Output, SimulateConfig), rest)
    out, as_json = given.pop("out", None), given.pop("json", False)
    if "durations" in given:
        given["durations"] = integers("durations", given["durations"])
    config = SimulateConfig(**given)
    simulated = simulate_cache(config)
    best = recommended(simulated)
    if out is not None:
        from scarlet.report.cache import write_cache_figure

        write_cache_figure(simulated, out)
    if as_json:
        print(json.dumps([_plain(each, best) for each in simulated]))
    else:
        _print(simulated, best)
    return 0


def _plain(each: Simulated, best: Simulated | None) -> dict[str, object]:
    return {
        "cache_duration": each.duration,
        "hit_ratio": each.hit_ratio.tolist(),
        "idle_rounds": each.idle.tolist(),
        "recommended": each is best,
    }


def _print(simulated: Sequence[Simulated], best: Simulated | None) -> None:
    rounds = len(simulated[0].hit_ratio)
    print(f"share of hits over {rounds} rounds, each bar the mean of about {max(1, rounds // _WIDTH)} (full: all hit)")
    for each in simulated:
        steady = each.hit_ratio[rounds // 2 :].mean()
        print(f"D {each.duration:>5}  {_sparkline(each.hit_ratio)}  {steady:.3f} in the second half")
    print()
    for each in simulated:
        print(f"D {each.duration:>5}: nothing would be refreshed in {_idle(each.idle, rounds)}")
    if best is None:
        print(f"\nno D here has fewer than {IDLE_SHARE:.0%} of such rounds; try smaller ones")
    else:
        print(f"\nrecommended: D = {best.duration}, the largest with fewer than {IDLE_SHARE:.0%} of such rounds")


def _sparkline(ratio: np.ndarray[tuple[int], np.dtype[np.float64]]) -> str:
    means = [part.mean() for part in np.array_split(ratio, min(_WIDTH, len(ratio)))]
    return "".join(_BLOCKS[int(mean * (len(_BLOCKS) - 1))] for mean in means)


def _idle(idle: np.ndarray[tuple[int], np.dtype[np.int64]], rounds: int) -> str:
    """The rounds as a list of ranges, such as 104-201, 312."""
    if not len(idle):
        return "no round"
    ranges = np.split(idle, np.flatnonzero(np.diff(idle) > 1) + 1)
    names = [f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in ranges]
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more ranges" if len(names) > 8 else "")
    return f"{len(idle)} rounds ({len(idle) / rounds:.1%}): {shown}"
