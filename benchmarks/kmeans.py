"""Batched k-means beside a scikit-learn fit for each sample, on one thread.

    python benchmarks/kmeans.py --repeats 5

Both part the soft-labels of 100 clients on 1,000 public samples of 10 classes into two clusters, with the same number
of starts. They take turns, and the time is that of the processor, so that whatever else the machine does cannot decide
the outcome.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time

import numpy as np
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from scarlet.methods.parts.kmeans import cluster
from scarlet.protocol.types import Values

SAMPLES, CLIENTS, CLASSES, CLUSTERS = 1_000, 100, 10, 2


def soft_labels() -> Values:
    """Of clients that each know about three classes, and are sure of a sample whose class they know."""
    rng = np.random.default_rng(0)
    known = rng.random((CLIENTS, CLASSES)) < 0.3
    true = np.eye(CLASSES)[rng.integers(0, CLASSES, SAMPLES)]
    power = np.exp(rng.normal(0, 1.5, (SAMPLES, CLIENTS, CLASSES)) + 4 * known + 5 * known * true[:, np.newaxis])
    return np.asarray(power / power.sum(axis=2, keepdims=True), np.float32)


def batched(points: Values, starts: int) -> float:
    return math.fsum(cluster(points, np.ones(points.shape[:2], np.bool_), CLUSTERS, starts).inertia)


def one_by_one(points: Values, starts: int) -> float:
    return math.fsum(KMeans(CLUSTERS, n_init=starts, random_state=0).fit(sample).inertia_ for sample in points)


def main() -> None:
    parser = argparse.ArgumentParser(description="Batched k-means beside scikit-learn.")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--starts", type=int, default=4)
    options = parser.parse_args()
    points = soft_labels()
    seconds: dict[str, list[float]] = {"batched": [], "one by one": []}
    inertia: dict[str, float] = {}
    with threadpool_limits(1):
        for method in (batched, one_by_one):
            method(points[:10], options.starts)  # what happens once only is not counted
        for _ in range(options.repeats):
            for name, method in (("batched", batched), ("one by one", one_by_one)):
                before = time.process_time()
                inertia[name] = method(points, options.starts)
                seconds[name].append(time.process_time() - before)
    for name, times in seconds.items():
        median = statistics.median(times)
        print(f"{name}: median {median:.3f} s, {min(times):.3f} to {max(times):.3f} s, n = {len(times)}")
    ratio = statistics.median(slow / fast for fast, slow in zip(*seconds.values(), strict=True))
    print(f"{ratio:.1f} times as fast, with {inertia['batched'] / inertia['one by one']:.6f} times the inertia")


if __name__ == "__main__":
    main()
