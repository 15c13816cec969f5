"""Colours and markers that every reader can tell apart, and a style that leaves nothing behind."""

from itertools import combinations

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from figures import style
from lab.heads.config import LABELS

# Machado, Oliveira and Fernandes (IEEE TVCG 15, 2009), full severity, on linear RGB.
COLOUR_BLINDNESS = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
LMS = [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
       [0.0883024619, 0.2817188376, 0.6299787005]]  # fmt: skip
OKLAB = [[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
         [0.0259040371, 0.7827717662, -0.8086757660]]  # fmt: skip


def oklab(colour, seen=None):
    """Perceptual coordinates of a colour, as seen with a colour blindness."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    if seen:
        linear = np.clip(np.array(COLOUR_BLINDNESS[seen]) @ linear, 0, 1)
    return np.array(OKLAB) @ np.cbrt(np.array(LMS) @ linear)


@pytest.mark.parametrize("seen", [None, *COLOUR_BLINDNESS])
def test_families_differ_for_every_reader(seen):
    for one, other in combinations(style.FAMILY_COLOURS.values(), 2):
        assert np.linalg.norm(oklab(one, seen) - oklab(other, seen)) > 0.06, (one, other)


def test_the_measure_of_colours_can_fail():
    """Red and green of equal lightness: the pair that deuteranopia confuses."""
    red, green = "#C0504D", "#7F7F30"
    assert np.linalg.norm(oklab(red) - oklab(green)) > 0.1
    assert np.linalg.norm(oklab(red, "deuteranopia") - oklab(green, "deuteranopia")) < 0.06


def test_every_head_of_the_lab_has_a_name_and_its_own_marker():
    looks = [style.look(label) for label in LABELS]
    assert len({(look.shape, look.filling) for look in looks}) == len(looks)
    assert {look.label for look in looks} == set(style.HEAD_NAMES)
    for look in looks:
        assert look.colour == style.FAMILY_COLOURS[look.family]


def test_heads_unknown_to_the_style_are_drawn_after_the_known():
    assert style.in_order(["zeta", "softmax-none", "fpa-walk-tied"]) == ["fpa-walk-tied", "softmax-none", "zeta"]
    assert style.look("zeta").name == "zeta"
    assert style.look("fox-gate2").colour == style.FAMILY_COLOURS["fox"]


def test_the_style_is_left_behind_nowhere():
    before = dict(matplotlib.rcParams)
    with style.paper():
        assert matplotlib.rcParams["pdf.fonttype"] == 42
    assert dict(matplotlib.rcParams) == before


def test_importing_the_registry_is_light():
    import subprocess
    import sys

    code = "import figures, sys; print(sorted({'numpy', 'torch', 'pandas', 'matplotlib'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
