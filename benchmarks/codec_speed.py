"""The time to encode and to decode soft-labels with the entropy coder of the `compact` codec, on one thread.

    python -m benchmarks.codec_speed --repeats 9

1,000 soft-labels of 10 and of 200 classes with 8 bits for each entry: some drawn from Dirichlet(0.1), others nearly
certain. The cases take turns and processor time is measured, so the outcome depends little on other processes.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from scarlet.wire.entropy import decode_labels, encode_labels
from scarlet.wire.quantise import Levels, levels

ROWS, BITS = 1_000, 8


def dirichlet(classes: int) -> Levels:
    rows = np.random.default_rng(0).dirichlet([0.1] * classes, ROWS)
    return levels(rows.astype(np.float32), BITS)


def nearly_certain(classes: int) -> Levels:
    """0.99 of the probability is on one class, the rest is drawn from Dirichlet(0.1)."""
    rng = np.random.default_rng(0)
    rows = 0.99 * np.eye(classes)[rng.integers(classes, size=ROWS)] + 0.01 * rng.dirichlet([0.1] * classes, ROWS)
    return levels(rows.astype(np.float32), BITS)


def main() -> None:
    parser = argparse.ArgumentParser(description="The time to encode and to decode soft-labels.")
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    cases = {
        f"{ROWS:,} x {classes}, {name}": made(classes)
        for classes in (10, 200)
        for name, made in (("Dirichlet(0.1)", dirichlet), ("nearly certain", nearly_certain))
    }
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    sizes: dict[str, int] = {}
    with threadpool_limits(1):
        for repeat in range(options.repeats + 1):
            for name, rows in cases.items():
                start = time.process_time()
                data = encode_labels(rows, BITS)
                between = time.process_time()
                found = decode_labels(data, len(rows), rows.shape[1], BITS)
                end = time.process_time()
                assert np.array_equal(found, rows)
                sizes[name] = len(data)
                if repeat:  # the first repeat is a warm-up
                    seconds[name].append((between - start, end - between))
    for name, times in seconds.items():
        encode, decode = (1e3 * statistics.median(each) for each in zip(*times, strict=True))
        both = [1e3 * sum(each) for each in times]
        print(
            f"{name}: {sizes[name]:,} bytes; encode {encode:.1f} ms, decode {decode:.1f} ms, together "
            f"{statistics.median(both):.1f} ms ({min(both):.1f} to {max(both):.1f}), n = {len(both)}"
        )


if __name__ == "__main__":
    main()
