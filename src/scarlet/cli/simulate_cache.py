"""`scarlet simulate-cache`: the cache hit ratio for several cache durations, without training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from typing_extensions import Doc

from scarlet.cli.options import AsJson, Command, options_of
from scarlet.experiment.cache_simulation import IDLE_SHARE, SimulateConfig, Simulated, recommended, simulate_cache

_BLOCKS = " ▁▂▃▄▅▆▇█"
_WIDTH = 60


@dataclass(frozen=True, slots=True)
class Output:
    """What the command line adds to the simulation's own options."""

    out: Annotated[Path | None, Doc("also write the figure to this page, such as cache.html (default: no page)")] = None


def main(argv: Sequence[str]) -> int:
    """Print and draw the hit ratios, and recommend a duration."""
    about = "The cache hit ratio of each round, for several cache durations D, without training (Algorithm 3)."
    _, given = Command("scarlet simulate-cache", about, options_of(SimulateConfig, Output, AsJson)).parse(argv)
    out, as_json = given.pop("out", None), given.pop("json", False)
    simulated = simulate_cache(SimulateConfig(**given))
    best = recommended(simulated)
    if out is not None:
        from scarlet.report.figures import write_cache_figure

        write_cache_figure([(each.duration, each.hit_ratio) for each in simulated], out)
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
    print(f"hit ratio over {rounds} rounds; each bar is the mean of about {max(1, rounds // _WIDTH)} (full bar: 1)")
    for each in simulated:
        means = [part.mean() for part in np.array_split(each.hit_ratio, min(_WIDTH, rounds))]
        bars = "".join(_BLOCKS[int(mean * (len(_BLOCKS) - 1))] for mean in means)
        print(f"D {each.duration:>5}  {bars}  {each.hit_ratio[rounds // 2 :].mean():.3f} over the second half")
    print()
    for each in simulated:
        print(f"D {each.duration:>5}: no label is requested in {_idle(each.idle, rounds)}")
    if best is None:
        print(f"\nno D of these has fewer than {IDLE_SHARE:.0%} such rounds; try smaller ones")
    else:
        print(f"\nrecommended: D = {best.duration}, the largest with fewer than {IDLE_SHARE:.0%} such rounds")


def _idle(idle: np.ndarray[tuple[int], np.dtype[np.int64]], rounds: int) -> str:
    """The rounds as a list of ranges, such as 104-201, 312."""
    if not len(idle):
        return "no round"
    ranges = np.split(idle, np.flatnonzero(np.diff(idle) > 1) + 1)
    names = [f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in ranges]
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more ranges" if len(names) > 8 else "")
    return f"{len(idle)} rounds ({len(idle) / rounds:.1%}): {shown}"
