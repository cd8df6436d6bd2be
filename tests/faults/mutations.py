"""What becomes of messages of the `compact` codec that were changed on their way.

    python -m tests.faults.mutations --count 1000000

Messages of all methods, from rounds in which samples are dropped, attempts fail and clients forget, have bits flipped,
are cut, extended or have parts of them swapped; half of them get a frame that fits again, so that their body is read.
Each must be refused with a MessageError or be valid: whatever else happens ends this with a traceback.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

import numpy as np

from tests.protocol.layouts.test_mutations import cases, chosen, mutated, outcome


def main() -> None:
    """Change messages, and count what becomes of them."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.mutations",
        description="Change messages of the compact codec, and count what becomes of them.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--count", type=int, default=1_000_000, help="number of changed messages")
    parser.add_argument("--seed", type=int, default=0, help="seed of the changes")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    every = cases()
    start = time.process_time()
    found = Counter(outcome(case, mutated(case.data, rng)) for case in chosen(every, options.count, rng))
    seconds = time.process_time() - start
    for name, count in found.most_common():
        print(f"{count:9,}  {name}")
    print(f"{found.total():9,}  changes of {len(every):,} messages, {1e6 * seconds / found.total():.0f} us each")


if __name__ == "__main__":
    main()
