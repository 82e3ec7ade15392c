"""Over all x: ranks, expected coverage, recovery and contraction."""

import re

import numpy as np
import pytest
import torch

import assay
from assay import plots
from tests.plots.cases import LATEX, calibration


def numbers(ax):
    """The numbers in the second line of a title."""
    return [float(found) for found in re.findall(r"-?\d+\.\d+", ax.get_title().split("\n")[1])]


def heights(collection):
    """The ends of a band."""
    return {round(float(v), 6) for v in collection.get_paths()[0].vertices[:, 1]}


class TestCoverage:
    @pytest.fixture(params=[assay.coverage, assay.tarp])
    def result(self, request, gaussian):
        return request.param(gaussian(width=0.6).calibration(300, k=30))

    def test_it_draws_curves_intervals_and_the_band(self, result):
        ax = plots.coverage(result)
        curve = result.curve()
        ideal, *lines = ax.get_lines()
        assert set(ideal.get_ydata()) == {0}
        for line, expected in zip(lines, curve.ecdf, strict=True):
            np.testing.assert_array_equal(line.get_xdata(), curve.levels)
            np.testing.assert_array_equal(line.get_ydata(), expected - curve.levels)
        band, *intervals = map(heights, ax.collections)
        ends = (curve.null_lower - curve.levels, curve.null_upper - curve.levels)
        assert band <= {round(v, 6) for v in np.concatenate(ends)}
        assert (curve.null_lower <= curve.levels).all()
        assert (curve.null_upper >= curve.levels).all()
        for interval, lower, upper in zip(intervals, curve.lower, curve.upper, strict=True):
            own = {round(v, 6) for v in [*(lower - curve.levels), *(upper - curve.levels)]}
            assert interval <= own
        assert result.regions in ax.get_xlabel()
        assert f"p = {result.adjusted.min():.3g}" in ax.get_title()

    def test_one_of_the_curves(self, result):
        ax = plots.coverage(result[0])
        assert len(ax.get_lines()) == 2
        assert ax.get_title() == f"p = {float(result[0].pvalue[0]):.3g}"


class TestRanks:
    @pytest.fixture
    def result(self, gaussian):
        return assay.sbc(gaussian(width=0.6).calibration(300, k=30))

    def test_the_histogram_and_its_band(self, result):
        ax = plots.rank_histogram(result, quantity="theta[1]")
        band, stairs = (patch.get_data() for patch in ax.patches)
        bins = result.histogram()
        np.testing.assert_allclose(stairs.values, bins.counts[1] / bins.expected)
        np.testing.assert_array_equal(stairs.edges, bins.edges)
        np.testing.assert_allclose(band.values, bins.upper / bins.expected)
        np.testing.assert_allclose(band.baseline, bins.lower / bins.expected)
        (ideal,) = ax.get_lines()
        assert set(ideal.get_ydata()) == {1}
        labels = [text.get_text() for text in ax.get_legend().get_texts()]
        assert "theta[1]" in labels
        assert ax.get_title() == f"chi-square: p = {result.chi_square.pvalue[1]:.3g}"

    def test_one_of_the_quantities(self, result):
        ours, theirs = (
            plots.rank_histogram(result[1]),
            plots.rank_histogram(result, None, "theta[1]"),
        )
        assert (ours.patches[1].get_data().values == theirs.patches[1].get_data().values).all()

    def test_the_distribution_functions_and_their_band(self, result):
        ax = plots.rank_ecdf(result)
        curve = result.ecdf()
        ideal, *lines = ax.get_lines()
        np.testing.assert_array_equal(ideal.get_ydata(), [0, 1])
        for line, ecdf in zip(lines, curve.ecdf, strict=True):
            np.testing.assert_array_equal(line.get_ydata(), ecdf)
        ends = {round(float(v), 6) for v in [*curve.null_lower, *curve.null_upper]}
        assert heights(ax.collections[0]) <= ends

    def test_the_differences_and_their_band(self, result):
        ax = plots.rank_difference(result)
        curve = result.ecdf()
        ideal, *lines = ax.get_lines()
        assert set(ideal.get_ydata()) == {0}
        for line, ecdf in zip(lines, curve.ecdf, strict=True):
            np.testing.assert_array_equal(line.get_ydata(), ecdf - curve.levels)
        band = heights(ax.collections[0])
        assert min(band) < 0 < max(band)

    def test_a_quantity_that_is_not_there(self, result):
        with pytest.raises(ValueError, match="quantity: expected one of theta"):
            plots.rank_histogram(result, quantity="phi")


def test_recovery_is_how_means_and_true_values_agree():
    pairs = calibration()
    for j, ax in enumerate(plots.recovery(pairs)):
        true, mean = pairs.theta[:, j].numpy(), pairs.theta_q[:, :, j].mean(1).numpy()
        r, error = numbers(ax)
        assert r == pytest.approx(np.corrcoef(true, mean)[0, 1], abs=0.006)
        assert error == pytest.approx(np.sqrt(np.mean((true - mean) ** 2)), rel=0.06)
        intervals, points = ax.collections
        places = np.asarray(points.get_offsets())
        assert len(places) == 300
        some = np.unique(np.linspace(0, len(true) - 1, 300).astype(int))
        np.testing.assert_allclose(places, np.stack([true, mean], 1)[some])
        held = [
            low <= middle <= high
            for (_, middle), ((_, low), (_, high)) in zip(
                places, intervals.get_segments(), strict=True
            )
        ]
        assert all(held)


def test_contraction_is_that_of_the_variances():
    pairs = calibration(2)
    left, right = plots.contraction(pairs)
    theta, theta_q = pairs.theta[:, 1].numpy(), pairs.theta_q[:, :, 1].numpy()
    contracted = 1 - theta_q.var(1, ddof=1) / theta.var(ddof=1)
    assert numbers(right)[0] == pytest.approx(np.median(contracted), abs=0.006)
    z = (theta - theta_q.mean(1)) / theta_q.std(1, ddof=1)
    across, up = np.asarray(right.collections[0].get_offsets()).T
    low, far = right.get_xlim()[0], right.get_ylim()[1]
    some = np.unique(np.linspace(0, len(z) - 1, 300).astype(int))
    np.testing.assert_allclose(across, np.clip(contracted[some], low, None))
    np.testing.assert_allclose(up, np.clip(z[some], -far, far))
    # The first parameter is the one that is known better.
    assert numbers(left)[0] > numbers(right)[0]


@pytest.mark.parametrize("draw", [plots.recovery, plots.contraction])
def test_bad_axes_and_names(draw):
    axes = draw(calibration(), names=LATEX)
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
    places = (*plots.recovery(pairs), *plots.contraction(pairs))
    for ax in places:
        ax.figure.canvas.draw()
    assert "r = nan" in places[1].get_title()


def test_calibrations_without_a_picture(gaussian):
    with pytest.raises(
        ValueError, match="theta_q: expected at least 3 draws of q at each x; got 1"
    ):
        plots.contraction(gaussian().calibration(50))
    with pytest.raises(ValueError, match="calibration: expected draws theta_q"):
        plots.recovery(gaussian().latents(50))
