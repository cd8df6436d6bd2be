"""The share of the public dataset that the clients' selectors of Selective-FD accept.

    python -m benchmarks.selector_share --data-dir DIR

100 clients hold 500 CIFAR-10 images each at alpha 0.05, and 10,000 CIFAR-100 images are the public dataset. The paper's
cost table implies that a client accepts 80.8 % of the samples (3.88 of 4.80 MB up), and that no client accepts 1.7 %
(0.08 MB less down). The fit of one client's selector is timed, on one thread if OMP_NUM_THREADS=1 is set.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from scarlet.arrays import Mask
from scarlet.config import Config
from scarlet.experiment.federation import Federation, prepare
from scarlet.methods.parts.kulsif import in_distribution
from scarlet.rng import stream


def papers(federation: Federation, client: int) -> Mask:
    """The mask of a client with the constants of the paper's comparison."""
    private = federation.data.train[client].arrays().inputs
    rng = stream(federation.config.seed, "client", client=federation.data.names[client], purpose="prepare")
    return in_distribution(private, federation.data.public, rng)


def originals(federation: Federation, client: int) -> Mask:
    """The mask of a client with the constants of Selective-FD's authors."""
    private = federation.data.train[client].arrays().inputs
    rng = stream(federation.config.seed, "client", client=federation.data.names[client], purpose="prepare")
    return in_distribution(
        private,
        federation.data.public,
        rng,
        threshold=0.25,
        ridge_exponent=-0.5,
        used_share=1,
        fitted_share=0.05,
        auxiliary=250,
    )


def report(name: str, mask_of: Callable[[Federation, int], Mask], federation: Federation) -> None:
    masks = np.stack([mask_of(federation, client) for client in range(federation.config.clients)])  # [K, P]
    shares = masks.mean(axis=1)
    print(
        f"{name}: {shares.mean():.1%} of the public samples are accepted; over {len(shares)} clients the standard "
        f"deviation is {shares.std(ddof=1):.1%}, from {shares.min():.1%} to {shares.max():.1%}; no client accepts "
        f"{1 - masks.any(axis=0).mean():.2%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="The share of public samples that selectors accept.")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clients", type=int, default=100)
    options = parser.parse_args()
    federation = prepare(
        Config(
            private="cifar10",
            data_dir=options.data_dir,
            clients=options.clients,
            samples_per_client=500,
            alpha=0.05,
            seed=options.seed,
        )
    )
    papers(federation, 0)  # warm-up
    start = time.perf_counter()
    papers(federation, 0)
    print(f"{time.perf_counter() - start:.2f} s for one client and {len(federation.data.public):,} public samples")
    report("the paper's constants", papers, federation)
    report("the original's constants", originals, federation)


if __name__ == "__main__":
    main()
