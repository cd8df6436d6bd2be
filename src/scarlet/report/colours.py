"""One colour for each method, in every page and picture."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle

# Okabe and Ito's colours, which colour-blind readers tell apart. A violet and a grey stand for their yellow and black,
# which vanish on a light or a dark page; both are as far from the others as those are from each other.
COLOURS = {
    "scarlet": "#0072B2",
    "dsfl": "#D55E00",
    "cfd": "#009E73",
    "comet": "#CC79A7",
    "selective-fd": "#E69F00",
    "fedavg": "#56B4E9",
    "individual": "#686868",
    "centralized": "#8A3FFC",
}


def colours_of(methods: Iterable[str]) -> dict[str, str]:
    """The colour of each method; those without one of their own take, in order, the last that are not in use."""
    names = dict.fromkeys(methods)
    free = [colour for name, colour in COLOURS.items() if name not in names] or list(COLOURS.values())
    spare = cycle(reversed(free))
    return {name: COLOURS.get(name) or next(spare) for name in names}
