from __future__ import annotations

import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest

from scarlet.methods.registry import METHODS
from scarlet.report.colours import COLOURS, colours_of
from scarlet.report.strokes import strokes
from scarlet.report.variants import group
from tests.report.runs import run

# How colours look to readers without one kind of cones (Machado, Oliveira and Fernandes 2009), in linear RGB.
SEEN = {
    "all cones": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "no long ones": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "no middle ones": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "no short ones": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour: str) -> np.ndarray:
    part = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    x, y, z = np.cbrt(XYZ @ np.clip(rgb, 0, 1) / (0.9505, 1, 1.0888))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("cones", SEEN)
def test_no_two_methods_look_alike_to_any_reader(cones: str) -> None:
    looks = {name: lab(np.array(SEEN[cones]) @ linear(colour)) for name, colour in COLOURS.items()}
    distance = {pair: np.linalg.norm(looks[pair[0]] - looks[pair[1]]) for pair in combinations(looks, 2)}
    assert min(distance.values()) > 14, min(distance, key=lambda pair: distance[pair])


@pytest.mark.parametrize("page", ["#ffffff", "#15181c"])
def test_every_colour_is_seen_on_a_light_and_a_dark_page(page: str) -> None:
    for colour in COLOURS.values():
        dark, light = sorted(float(linear(each) @ XYZ[1]) for each in (colour, page))
        assert (light + 0.05) / (dark + 0.05) > 2.2, colour


def test_each_method_of_the_registry_has_a_colour_of_its_own() -> None:
    assert COLOURS.keys() == METHODS.keys() and len(set(COLOURS.values())) == len(COLOURS)


def test_another_method_has_a_colour_that_no_method_beside_it_has() -> None:
    found = colours_of(["scarlet", "mine", "centralized", "yours"])
    assert found["scarlet"] == COLOURS["scarlet"] and len(set(found.values())) == 4
    assert len(colours_of([*COLOURS, *"abcdefghij"])) == 18, "there are always enough"


def test_the_colours_need_neither_plotly_nor_torch() -> None:
    check = "import sys, scarlet.report.strokes; sys.exit(bool({'plotly', 'torch', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_variants_share_the_colour_of_their_method_and_differ_in_shade_or_dash() -> None:
    grid = [run("scarlet", 0, [0.5], alpha=alpha, beta=beta) for alpha in (0.1, 0.3, 1.0) for beta in (1.0, 2.0)]
    drawn = strokes(group([*grid, run("dsfl", 0, [0.5])]))
    assert {each.colour for each in drawn[:-1]} == {COLOURS["scarlet"]}
    assert len({(each.opacity, each.dash) for each in drawn[:-1]}) == 6
    assert [each.opacity for each in drawn[::2]] == [0.55, 0.775, 1.0, 1.0], "by alpha, which has the most values"
    assert [each.dash for each in drawn] == ["solid", "dash"] * 3 + ["solid"]


def test_where_one_option_varies_each_shade_has_a_dash_of_its_own() -> None:
    drawn = strokes(group([run("scarlet", 0, [0.5], beta=beta) for beta in (1.0, 1.5, 2.0)]))
    assert [each.dash for each in drawn] == ["solid", "dash", "dot"]
    assert [each.opacity for each in drawn] == [0.55, 0.775, 1.0]
    assert drawn[0].rgba(0.2) == "rgba(0, 114, 178, 0.11)"
