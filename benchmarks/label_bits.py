"""The effect of quantised soft-labels on accuracy: SCARLET with few bits against float32, with paired seeds.

    python -m benchmarks.label_bits                               the embedded default
    python -m benchmarks.label_bits --cifar DIR --seeds 0,1,2     CIFAR-10 and CIFAR-100, 10 clients, cnn32, 50 rounds

Accuracy is the mean of the last 10 rounds; the difference from 32 bits has its 95 % interval over seeds (Student's t).
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import stats

import scarlet

FLOAT32 = 32


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--bits", default="4,6,8,32")
    options.add_argument("--seeds", default="0,1,2,3,4")
    options.add_argument("--cifar", type=Path, help="directory of CIFAR-10 and CIFAR-100")
    options.add_argument("--workers", type=int)
    given = options.parse_args()
    seeds = [int(seed) for seed in given.seeds.split(",")]
    bits = sorted({*(int(each) for each in given.bits.split(",")), FLOAT32}, reverse=True)
    config = scarlet.Config(codec="compact", workers=given.workers, checkpoint_every=0)
    if given.cifar:
        config = replace(
            config,
            private="cifar10",
            data_dir=given.cifar,
            model="cnn32",
            samples_per_client=500,
            alpha=0.3,
            public_size=2_000,
            public_per_round=200,
            local_epochs=1,
            distil_epochs=1,
            rounds=50,
        )
    method = scarlet.ScarletConfig(cache_duration=10 if given.cifar else 30)
    found: dict[int, list[tuple[float, float, float]]] = {}
    for seed in seeds:  # all widths of one seed before the next: an interrupted run leaves whole seeds
        for width in bits:
            chosen = replace(config, seed=seed, uplink_bits=width, downlink_bits=width)
            summary = scarlet.run(method, chosen).summary
            numbers = [float(str(summary[name])) for name in ("server_accuracy", "client_accuracy", "cumulative_bytes")]
            found.setdefault(width, []).append((numbers[0], numbers[1], numbers[2] / 1e6))
            print(f"seed {seed}, {width} bits: server {numbers[0]:.4f}, client {numbers[1]:.4f}", flush=True)
    print("\nbits | server | difference, points | client | difference, points | MB")
    for width in bits:
        server, client, megabytes = np.array(found[width]).T
        base = np.array(found[FLOAT32]).T
        for_server = f"{server.mean():.3f} | {_interval(server - base[0])}"
        for_client = f"{client.mean():.3f} | {_interval(client - base[1])}"
        print(f"{width} | {for_server} | {for_client} | {megabytes.mean():.3f}")


def _interval(difference: np.ndarray[tuple[int], np.dtype[np.float64]]) -> str:
    mean, count = 100 * difference.mean(), len(difference)
    if count < 2:
        return f"{mean:+.2f}"
    half = 100 * stats.t.ppf(0.975, count - 1) * difference.std(ddof=1) / count**0.5
    return f"{mean:+.2f} ({mean - half:+.2f} to {mean + half:+.2f})"


if __name__ == "__main__":
    main()
