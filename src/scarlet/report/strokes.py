"""How each variant is drawn: the colour is its method's, and the variants of a method differ in shade and dash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scarlet.report.axes import axes
from scarlet.report.colours import colours_of
from scarlet.report.variants import Variant

# Each dash by its name in plotly, and as the dashes and gaps of an SVG line.
DASHES = {"solid": "none", "dash": "7 4", "dot": "2 3", "dashdot": "7 3 2 3", "longdash": "12 4"}
FAINTEST = 0.55  # opacity: fainter lines vanish


@dataclass(frozen=True, slots=True)
class Stroke:
    """How the lines of a variant are drawn in every figure."""

    colour: str
    dash: str = "solid"
    opacity: float = 1.0  # a shade that is seen on a light and on a dark page

    def rgba(self, share: float = 1.0) -> str:
        """The colour with this share of its opacity."""
        red, green, blue = (int(self.colour[start : start + 2], 16) for start in (1, 3, 5))
        return f"rgba({red}, {green}, {blue}, {self.opacity * share:.3g})"

    @property
    def sample(self) -> str:
        """A short piece of the line, as HTML."""
        line = f'stroke="{self.colour}" stroke-opacity="{self.opacity:.3g}" stroke-dasharray="{DASHES[self.dash]}"'
        return (
            '<svg class="sample" width="28" height="8" aria-hidden="true">'
            f'<line x2="28" y1="4" y2="4" stroke-width="3" {line}/></svg>'
        )


def strokes(variants: Sequence[Variant]) -> list[Stroke]:
    """The stroke of each variant.

    The option with the most values makes the shade, fainter for smaller values; what else differs makes the dash. Where
    nothing else does, each shade has a dash of its own as well.
    """
    colours = colours_of(variant.method for variant in variants)
    found: dict[int, Stroke] = {}
    for method, colour in colours.items():
        members = {at: variant.runs[0] for at, variant in enumerate(variants) if variant.method == method}
        shaded = max(axes(list(members.values())), key=lambda axis: len(axis.values), default=None)
        places = [0 if shaded is None else shaded.position(run) for run in members.values()]
        ties = [places[:at].count(place) for at, place in enumerate(places)]  # earlier variants of the same shade
        dashes = ties if any(ties) else places
        for at, place, dash in zip(members, places, dashes, strict=True):
            opacity = FAINTEST + (1 - FAINTEST) * place / max(places) if max(places) else 1.0
            found[at] = Stroke(colour, list(DASHES)[dash % len(DASHES)], opacity)
    return [found[at] for at in range(len(variants))]
