"""Play random schedules of faults: `python -m tests.faults --schedules 200`."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from scarlet.protocol.codec_registry import CODECS
from tests.faults.schedule import Outcome, outcome

_SHOWN = 5  # violations that are printed
_CHUNK = 20  # schedules that a worker process is given at once


def main(argv: Sequence[str] | None = None) -> int:
    """Play the schedules; the exit code is 1 if one of them breaks an invariant."""
    options = _parser().parse_args(argv)
    began = time.perf_counter()
    events: Counter[str] = Counter()
    violations = 0
    for seed, result in _outcomes(options):
        if isinstance(result, Counter):
            events += result
            continue
        violations += 1
        if violations <= _SHOWN:
            replay = (
                f"{shlex.quote(sys.executable)} -m tests.faults --schedules 1 --seed {seed} --codec {options.codec}"
            )
            print(f"seed {seed}: {result}\n  replay: {replay}", file=sys.stderr)
    seconds = time.perf_counter() - began
    print(", ".join(f"{name} {count:,}" for name, count in sorted(events.items()) if count))
    print(f"{options.schedules:,} schedules, {violations} violations, {seconds:.0f} s")
    return 1 if violations else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults",
        description="Play simulated federations under random schedules of faults, and check their invariants.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    whole, positive = partial(_at_least, 0), partial(_at_least, 1)
    parser.add_argument("--schedules", type=positive, default=200, help="number of schedules, with consecutive seeds")
    parser.add_argument("--seed", type=whole, default=0, help="seed of the first schedule")
    parser.add_argument("--codec", choices=CODECS, default="reference", help="how messages become bytes")
    parser.add_argument("--workers", type=positive, default=1, help="worker processes")
    return parser


def _at_least(least: int, text: str) -> int:
    if not text.lstrip("-").isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"must be a whole number, {least} or more, got {text}")
    return int(text)


def _outcomes(options: argparse.Namespace) -> Iterator[tuple[int, Outcome]]:
    seeds = range(options.seed, options.seed + options.schedules)
    play = partial(outcome, codec_name=options.codec)
    if options.workers == 1:
        yield from ((seed, play(seed)) for seed in seeds)
        return
    with ProcessPoolExecutor(options.workers, mp_context=get_context("forkserver")) as pool:
        yield from zip(seeds, pool.map(play, seeds, chunksize=_CHUNK), strict=True)


if __name__ == "__main__":
    sys.exit(main())
