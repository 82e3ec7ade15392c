"""Regression on x: the common scale, random waves, and ridge against fits that leave rows out."""

import math

import pytest
import torch

from assay._support.random import stream
from assay.neighbourhood import (
    DIRECTIONS,
    PENALTIES,
    RobustScale,
    random_waves,
    regression_design,
    ridge,
    standard_deviation,
)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=stream(seed, "normal"))


def test_the_common_scale():
    """Median and interquartile range; the spread where quartiles coincide, one without any."""
    rare = (torch.arange(5000) % 10 == 0).float()[:, None]
    table = torch.cat([3 * normal(5000, 1) + 5, rare, torch.full((5000, 1), 7.0)], 1)
    found = RobustScale.fit(table)
    torch.testing.assert_close(found.median, torch.tensor([5.0, 0.0, 7.0]), atol=0.2, rtol=0)
    assert found.scale.tolist() == [
        pytest.approx(3, rel=0.05),
        pytest.approx(float(rare.std())),
        1,
    ]
    far = found(torch.tensor([[1e6, 0.0, 7.0], [math.inf, 0.0, 7.0]]))
    assert torch.equal(far[:, 1:], torch.zeros(2, 2))
    assert 12 < far[0, 0] < 14  # logarithmic in the tails
    assert far.isfinite().all()
    far_off = standard_deviation(table + 1e5)
    torch.testing.assert_close(far_off, standard_deviation(table), rtol=1e-2, atol=0)


def test_waves_are_the_same_whenever_asked():
    first, again, other = (random_waves(50, 2.0, 4, key) for key in "aab")
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], other[0])
    assert first[0].norm(dim=0).mean() == pytest.approx(2.0, rel=0.1)


@pytest.mark.parametrize("d", [3, DIRECTIONS + 50])
def test_the_design_has_a_constant_directions_and_cosines(d):
    x = normal(20, d)
    design = regression_design(x, 10)
    assert design.shape == (20, 1 + min(d, DIRECTIONS) + 10)
    assert (design[:, 0] == 1).all()
    assert design[:, -10:].abs().max() <= math.sqrt(2 / 10) + 1e-6
    if d == 3:
        torch.testing.assert_close(design[:, 1:4], x.double())


def test_ridge_leaves_rows_out_one_by_one():
    """Against as many fits, with every penalty; the best of them is taken."""
    design = torch.cat([torch.ones(40, 1), normal(40, 3)], 1).double()
    targets = torch.stack([design[:, 1] + 0.3 * normal(40, seed=1), normal(40, seed=2)], 1)
    targets, rest, shares = targets - targets.mean(0), ~torch.eye(40, dtype=torch.bool), []
    for penalty in PENALTIES:
        penalties = 40 * penalty * torch.eye(4)
        grams = [design[some].mT @ design[some] + penalties for some in rest]
        products = [design[some].mT @ targets[some] for some in rest]
        fits = torch.linalg.solve(torch.stack(grams), torch.stack(products))
        missed = (targets - torch.einsum("np,npj->nj", design, fits)).square().mean(0)
        shares.append((1 - missed / targets.square().mean(0)).clamp_min(0))
    weights, explained = ridge(design, targets)
    torch.testing.assert_close(explained, max(shares, key=lambda share: float(share.mean())))
    assert explained[0] > 0.8
    assert weights[1, 0] == pytest.approx(1, abs=0.2)
