"""A check with every part, and one with the local test alone; names that look like markup."""

from dataclasses import replace

import pytest
import torch

import assay
from assay import Suite
from tests.conftest import Gaussian

# As given, and as they are read: TeX as Unicode.
NAMES = ("<script>alert(1)</script>", r"$\theta$", 'a & "b"')
READ = (NAMES[0], "θ", NAMES[2])
LABELS = ("<b>x</b>", "</script><script>alert(2)</script>", "far %{x} & away")
PLACES = torch.tensor([[0.5, 0.0, 0.0], [-1.0, 0.5, 0.0], [9.0, 9.0, 9.0]])


@pytest.fixture(scope="session")
def check():
    q = Gaussian(width=0.6, m=3)
    suite = Suite(classifier=assay.MLP(epochs=3), classifier_null=19, context=5, null=39)
    calibration = q.calibration(300, k=8)
    draws = q.draws(PLACES, 300)
    return assay.check(calibration, x_o=draws, suite=suite, names=NAMES, labels=LABELS)


@pytest.fixture(scope="session")
def bare(check):
    """The local test and its effects, and nothing else."""
    parts = (
        "context",
        "classifier",
        "classifier_effects",
        "health",
        "pits",
    )
    return replace(check, **dict.fromkeys((*parts, "sbc", "coverage", "tarp")))


@pytest.fixture(scope="session")
def scored():
    """One draw of q at each x: without PITs, and without tests over all x."""
    q = Gaussian(width=0.6, m=2)
    draws = q.draws(torch.tensor([0.5, 0.0]), 200)
    suite = Suite(classifier=None, null=39)
    return assay.check(q.calibration(300), x_o=draws, suite=suite)


@pytest.fixture(scope="session")
def linked():
    """A q that is right in every parameter, and links two of four that are not linked."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1000, 2, generator=generator)
    members = torch.randn(1000, 13, 4, generator=generator)
    drawn = members[:, 1:]
    drawn[..., 3] = 0.7 * drawn[..., 1] + 0.51**0.5 * drawn[..., 3]
    calibration = assay.Calibration(members[:, 0], x, drawn)
    draws = assay.Draws(torch.zeros(2), drawn[:, 0])
    names = ("a", "b < c", "d", "e")
    return assay.check(calibration, x_o=draws, suite=Suite.quick(null=99), names=names)


def trace(figure, name):
    """The one trace of a figure that has a name."""
    (only,) = [t for t in figure.data if t["name"] == name]
    return only
