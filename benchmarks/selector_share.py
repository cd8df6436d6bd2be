"""How much of the public set passes the clients' selectors of Selective-FD.

    python benchmarks/selector_share.py --data-dir DIR

100 clients with 500 CIFAR-10 images each at alpha 0.05, and 10,000 CIFAR-100 images as the public set. The paper's cost
table implies that 80.8 % of the samples pass (3.88 of 4.80 MB up), and that nobody accepts 1.7 % (0.08 MB less down).
One client is timed alone, on one thread if OMP_NUM_THREADS=1 is set.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from scarlet.config import Config
from scarlet.experiment.problem import Problem, prepare
from scarlet.methods.parts.kulsif import Mask, in_distribution
from scarlet.rng import stream


def papers(problem: Problem, client: int) -> Mask:
    """The mask of a client with the constants of the paper's comparison."""
    private = problem.data.private.train_images[problem.private[client]]
    rng = stream(problem.config.seed, "client", client=client, purpose="prepare")
    return in_distribution(private, problem.data.public, rng)


def originals(problem: Problem, client: int) -> Mask:
    """The mask of a client with the constants of Selective-FD's authors."""
    private = problem.data.private.train_images[problem.private[client]]
    rng = stream(problem.config.seed, "client", client=client, purpose="prepare")
    return in_distribution(
        private,
        problem.data.public,
        rng,
        threshold=0.25,
        ridge_exponent=-0.5,
        used_share=1,
        fitted_share=0.05,
        auxiliary=250,
    )


def report(name: str, mask_of: Callable[[Problem, int], Mask], problem: Problem) -> None:
    masks = np.stack([mask_of(problem, client) for client in range(problem.config.clients)])  # [K, P]
    shares = masks.mean(axis=1)
    print(
        f"{name}: {shares.mean():.1%} of the public samples pass; over {len(shares)} clients the standard deviation is "
        f"{shares.std(ddof=1):.1%}, from {shares.min():.1%} to {shares.max():.1%}; nobody accepts "
        f"{1 - masks.any(axis=0).mean():.2%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="The share of public samples that pass the selectors.")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clients", type=int, default=100)
    options = parser.parse_args()
    problem = prepare(
        Config(
            private="cifar10",
            data_dir=options.data_dir,
            clients=options.clients,
            samples_per_client=500,
            alpha=0.05,
            seed=options.seed,
        )
    )
    papers(problem, 0)  # warms up
    start = time.perf_counter()
    papers(problem, 0)
    print(f"{time.perf_counter() - start:.2f} s for one client and {len(problem.data.public):,} public samples")
    report("the paper's constants", papers, problem)
    report("the original's constants", originals, problem)


if __name__ == "__main__":
    main()
