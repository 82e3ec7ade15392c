"""Where x_o lies among simulations, and what a classifier is worth."""

from dataclasses import replace

import numpy as np
import pytest
from experiments.discriminant import QDA
from matplotlib.colors import to_rgba

import assay
from assay import plots
from assay.plots._canvas import CURVE, GREEN
from tests.conftest import Gaussian
from tests.plots.cases import VERDICTS, check, line, quality, surroundings


def points(ax, label):
    """Where points with a label are, (n, 2)."""
    (found,) = (c for c in ax.collections if c.get_label() == label)
    return found.get_offsets().data


@pytest.fixture(scope="module")
def result():
    return assay.lc2st(Gaussian(width=1.5).calibration(500, k=2), QDA(), 9).quality()


class TestSurroundings:
    def test_every_verdict_at_its_place(self):
        found = check(tuple(VERDICTS))
        ax = plots.surroundings(found)
        for i, word in enumerate(found.verdicts):
            np.testing.assert_allclose(points(ax, word), found.test.x[i : i + 1])
        styles = {c.get_label(): c for c in ax.collections}
        np.testing.assert_allclose(styles["passed"].get_facecolors()[0], to_rgba(GREEN))
        np.testing.assert_allclose(styles["rejected"].get_facecolors()[0], to_rgba(CURVE))
        assert len({len(styles[word].get_paths()[0].vertices) for word in VERDICTS}) == 4
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("x[0]", "x[1]")

    def test_what_is_near_and_where_q_was_tested(self):
        found = check()
        ax, around = plots.surroundings(found), found.surroundings
        near = around.near.any(0)
        np.testing.assert_allclose(points(ax, "near x_o"), around.x[near])
        np.testing.assert_allclose(points(ax, "simulated"), around.x[~near])
        rejected, others = ax.collections[2:4]
        np.testing.assert_allclose(rejected.get_offsets(), around.x[around.pvalue <= 0.05])
        np.testing.assert_allclose(others.get_offsets(), around.x[around.pvalue > 0.05])

    def test_many_entries_of_x_are_projected(self):
        found, chance = check(), np.random.default_rng(0)
        mixing = chance.normal(size=(6, 6))
        around = replace(surroundings(2, 6), x=chance.normal(size=(400, 6)) @ mixing)
        x = around.x[:2]
        ax = plots.surroundings(replace(found, surroundings=around, test=replace(found.test, x=x)))
        every = np.concatenate([around.x, x])
        table = (every - every.mean(0)) / every.std(0)
        drawn = [points(ax, label) for label in ("simulated", "near x_o", "rejected")]
        variance = np.linalg.eigvalsh(table.T @ table / len(table))[::-1]
        np.testing.assert_allclose(np.concatenate(drawn).var(0), variance[:2])
        assert ax.get_xlabel() == "first principal component of x"
        assert ax.get_ylabel() == "second principal component of x"

    def test_one_number_is_drawn_on_a_line(self):
        found = line(check())
        ax = plots.surroundings(found)
        place = points(ax, "rejected")
        np.testing.assert_allclose(place[:, 0], found.test.x[:, 0])
        assert not place[:, 1].any()
        # Simulations are spread upwards, where no number is meant.
        assert np.ptp(points(ax, "simulated")[:, 1]) > 0.9
        assert not len(ax.get_yticks())

    def test_a_check_without_simulations_around(self):
        with pytest.raises(ValueError, match="check: expected simulated observations"):
            plots.surroundings(replace(check(), surroundings=None))


class TestQuality:
    def test_reliability(self, result):
        ax = plots.reliability(result)
        predicted, observed, lower, upper = result.reliability()
        (bars,) = ax.containers
        line, _, (intervals,) = bars.lines
        np.testing.assert_array_equal(line.get_xdata(), predicted)
        np.testing.assert_array_equal(line.get_ydata(), observed)
        ends = np.array(intervals.get_segments())[:, :, 1]
        np.testing.assert_allclose(ends, np.stack([lower, upper], 1))
        diagonal = ax.get_lines()[0]
        np.testing.assert_array_equal(diagonal.get_xdata(), diagonal.get_ydata())
        low, high = ax.get_xlim()
        assert low <= min(lower.min(), 0.5) < max(upper.max(), 0.5) <= high
        assert ax.get_xlabel() == "probability of class 1 (truth)"
        assert ax.get_title() == f"AUC {result.auc:.2f}"

    def test_roc(self, result):
        ax = plots.roc(result)
        diagonal, curve = ax.get_lines()
        draws, truths = curve.get_data()
        assert (np.diff(draws) >= 0).all()
        assert (np.diff(truths) >= 0).all()
        # Nothing lies above the highest threshold, and everything above the lowest.
        assert max(draws[0], truths[0]) < 0.01
        assert (draws[-1], truths[-1]) == (1, 1)
        np.testing.assert_array_equal(diagonal.get_ydata(), [0, 1])
        # The area under it is the chance that a true parameter scores above a draw.
        area = np.trapezoid([0, *truths], [0, *draws])
        assert area == pytest.approx(result.auc, abs=0.01)
        assert f"AUC {result.auc:.2f}" in curve.get_label()

    def test_a_classifier_that_knows_nothing(self):
        half = replace(quality(), truths=np.full(500, 0.5), draws=np.full(500, 0.5))
        assert plots.reliability(half).get_title() == "AUC 0.50"
        assert "AUC 0.50" in plots.roc(half).get_lines()[1].get_label()
