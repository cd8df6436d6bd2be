"""What it costs the server to choose beta itself: its step of a round with --beta auto and with 1.5, in turn.

python -m benchmarks.sharpening_cost
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.server_step import AGREEMENT, ours_step
from scarlet.arrays import Values
from scarlet.methods.scarlet import ScarletConfig
from scarlet.protocol.agreement import Agreement

REPEATS = 9


def answers(agreement: Agreement) -> Values:
    """Labels of clients that partly agree, f32[K, n, N], so that there is a beta to be searched."""
    rng = np.random.default_rng(0)
    common = rng.dirichlet(np.full(agreement.classes, 0.2), agreement.public_per_round)
    drawn = rng.gamma(5 * common + 1e-2, size=(agreement.clients, *common.shape)) + 1e-9
    normalised: Values = (drawn / drawn.sum(axis=-1, keepdims=True)).astype(np.float32)
    return normalised


def main() -> None:
    """Print a line for each number of classes and codec."""
    auto, fixed = ScarletConfig(beta="auto"), ScarletConfig(beta=1.5)
    for classes in (10, 200):
        agreement = replace(AGREEMENT, classes=classes)
        given = answers(agreement)
        for codec in ("compact", "reference"):
            pairs = [
                [ours_step(each, given, codec, agreement).seconds for each in (fixed, auto)] for _ in range(REPEATS)
            ]
            step, with_auto = (min(times) for times in zip(*pairs, strict=True))  # the least disturbed of each
            own = with_auto - step
            print(
                f"{agreement.clients} clients x {agreement.public_per_round:,} x {classes} classes, {codec}: "
                f"server step {1e3 * step:.1f} ms with beta 1.5, {1e3 * own:+.1f} ms with auto ({own / step:+.1%})",
                flush=True,
            )


if __name__ == "__main__":
    main()
