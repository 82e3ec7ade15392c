import re

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

import assay
from assay import plots
from tests.plots.cases import LATEX, calibration


def numbers(ax):
    return [float(found) for found in re.findall(r"-?\d+\.\d+", ax.get_title().split("\n")[1])]


def test_recovery_says_how_means_and_truths_agree():
    pairs = calibration()
    for j, ax in enumerate(plots.recovery(pairs)):
        truth, mean = pairs.theta[:, j].numpy(), pairs.theta_q[:, :, j].mean(1).numpy()
        r, error = numbers(ax)
        assert r == pytest.approx(np.corrcoef(truth, mean)[0, 1], abs=0.006)
        assert error == pytest.approx(np.sqrt(np.mean((truth - mean) ** 2)), rel=0.06)
        intervals, points = ax.collections
        drawn = np.asarray(points.get_offsets())
        assert len(drawn) == 300
        some = np.unique(np.linspace(0, len(truth) - 1, 300).astype(int))
        np.testing.assert_allclose(drawn, np.stack([truth, mean], 1)[some])
        held = [
            low <= middle <= high
            for (_, middle), ((_, low), (_, high)) in zip(
                drawn, intervals.get_segments(), strict=True
            )
        ]
        assert all(held)


def test_contraction_is_that_of_the_variances():
    pairs = calibration(2)
    left, right = plots.contraction(pairs)
    theta, theta_q = pairs.theta[:, 1].numpy(), pairs.theta_q[:, :, 1].numpy()
    shrunk = 1 - theta_q.var(1, ddof=1) / theta.var(ddof=1)
    assert numbers(right)[0] == pytest.approx(np.median(shrunk), abs=0.006)
    z = (theta - theta_q.mean(1)) / theta_q.std(1, ddof=1)
    across, up = np.asarray(right.collections[0].get_offsets()).T
    low, far = right.get_xlim()[0], right.get_ylim()[1]
    some = np.unique(np.linspace(0, len(z) - 1, 300).astype(int))
    np.testing.assert_allclose(across, np.clip(shrunk[some], low, None))
    np.testing.assert_allclose(up, np.clip(z[some], -far, far))
    # The first parameter is the one that is known better.
    assert numbers(left)[0] > numbers(right)[0]


@pytest.mark.parametrize("draw", [plots.recovery, plots.contraction])
def test_they_draw_where_they_are_told(draw):
    _, axes = plt.subplots(1, 3)
    assert list(draw(calibration(), axes, names=LATEX)) == list(axes)
    with pytest.raises(ValueError, match="ax: expected 3 axes"):
        draw(calibration(), axes[:2])
    with pytest.raises(ValueError, match="names: expected 3 different names"):
        draw(calibration(), names=("a",))


def test_a_q_without_any_width():
    theta = torch.randn(50, 1, generator=torch.Generator().manual_seed(0))
    x = theta + 0.1
    point = assay.Calibration(theta, x, theta[:, None].repeat(1, 4, 1) + 0.5)
    for ax in plots.contraction(point):
        ax.figure.canvas.draw()


def test_a_parameter_that_never_varies():
    pairs = calibration(2)
    pairs.theta[:, 1], pairs.theta_q[:, :, 1] = 1.0, 1.0
    drawn = (*plots.recovery(pairs), *plots.contraction(pairs))
    for ax in drawn:
        ax.figure.canvas.draw()
    assert "r = nan" in drawn[1].get_title()


def test_what_cannot_be_drawn(gaussian):
    with pytest.raises(
        ValueError, match="theta_q: expected at least 3 draws of q at each x; got 1"
    ):
        plots.contraction(gaussian().calibration(50))
    with pytest.raises(ValueError, match="calibration: expected draws theta_q"):
        plots.recovery(gaussian().latents(50))
