"""Curves and verdicts can be told apart with and without colour vision."""

import re
from importlib.resources import files
from itertools import combinations

import numpy as np
import pytest

# Machado, Oliveira and Fernandes 2009, severity 1.0, for linear RGB.
VISION = {
    "all colours": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.9505, 1.0, 1.089])
CURVES = ("curve", "blue", "green", "pink", "sky", "amber")
VERDICTS = ("rejected", "passed", "inconclusive", "outside")
# The smallest distance in CIE Lab, where about 2 can just be seen.
APART = 12.0


def colours(scheme):
    text = files("assay.report").joinpath("templates/style.css").read_text(encoding="utf-8")
    dark, light = text.split("{% endset %}")
    block = dark if scheme == "dark" else light.split("}")[0]
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))


def lab(colour, matrix):
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ (matrix @ linear).clip(0, 1) / WHITE
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("names", [CURVES, VERDICTS])
def test_colours_are_different_to_every_eye(scheme, vision, names):
    places = {name: lab(colours(scheme)[name], VISION[vision]) for name in names}
    distances = {
        (a, b): float(np.linalg.norm(places[a] - places[b])) for a, b in combinations(names, 2)
    }
    closest = min(distances, key=distances.get)
    assert distances[closest] > APART, (closest, distances[closest])
