"""`scarlet chaos`: federations under random schedules of faults, checked after every round."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Annotated

from typing_extensions import Doc

from scarlet.cli.main import no_positionals
from scarlet.cli.options import options_of, parse, split
from scarlet.config import check_at_least
from scarlet.wire.codecs import codec
from tests.faults.judge import Violation
from tests.faults.schedule import play_schedule

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class ChaosConfig:
    """What to play."""

    schedules: Annotated[int, Doc("how many; each has the seed after the one before")] = 200
    seed: Annotated[int, Doc("of the first schedule")] = 0
    codec: Annotated[str, Doc("how messages become bytes")] = "reference"
    workers: Annotated[int, Doc("processes that play them")] = 1

    def __post_init__(self) -> None:
        check_at_least("schedules", self.schedules, 1)
        check_at_least("seed", self.seed, 0)
        check_at_least("workers", self.workers, 1)
        codec(self.codec)


def main(argv: Sequence[str]) -> int:
    """Play the schedules; exit code 1 if one of them fails."""
    words, rest = split(argv)
    no_positionals("chaos", words)
    about = "Federations under random schedules of faults, through the real server, client, codec and checkpoints."
    config = ChaosConfig(**parse("scarlet chaos", about, options_of(ChaosConfig), rest))
    began = time.perf_counter()
    events: Counter[str] = Counter()
    failures = 0
    for seed, outcome in _played(config):
        if isinstance(outcome, Counter):
            events += outcome
            continue
        failures += 1
        if failures <= _SHOWN:
            print(
                f"{outcome}\n  replay: scarlet chaos --schedules 1 --seed {seed} --codec {config.codec}",
                file=sys.stderr,
            )
    seconds = time.perf_counter() - began
    print(", ".join(f"{name} {count:,}" for name, count in sorted(events.items()) if count))
    print(f"{config.schedules:,} schedules, {failures} violations, {seconds:.0f} s")
    return 1 if failures else 0


def _played(config: ChaosConfig) -> list[tuple[int, Counter[str] | str]]:
    seeds = range(config.seed, config.seed + config.schedules)
    play = partial(_outcome, codec_name=config.codec)
    if config.workers == 1:
        return [(seed, play(seed)) for seed in seeds]
    with ProcessPoolExecutor(config.workers, mp_context=get_context("forkserver")) as pool:
        return list(zip(seeds, pool.map(play, seeds, chunksize=20), strict=True))


def _outcome(seed: int, codec_name: str) -> Counter[str] | str:
    """What happened in a schedule, or what went wrong: a violation, or an error that nobody foresaw."""
    try:
        return play_schedule(seed, codec_name)
    except Violation as violation:
        return str(violation)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
