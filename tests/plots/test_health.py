import matplotlib.pyplot as plt
import numpy as np
import pytest

from assay import plots
from assay.classifiers import QDA
from assay.interpret.health import health


@pytest.fixture
def result(gaussian):
    return health(gaussian(width=1.5).calibration(500, k=2), QDA())


def test_reliability(result):
    ax = plots.reliability(result)
    bins = result.reliability
    (bars,) = ax.containers
    line, _, (intervals,) = bars.lines
    np.testing.assert_array_equal(line.get_xdata(), bins.predicted)
    np.testing.assert_array_equal(line.get_ydata(), bins.observed)
    ends = np.array(intervals.get_segments())[:, :, 1]
    np.testing.assert_allclose(ends, np.stack([bins.lower, bins.upper], 1))
    diagonal = ax.get_lines()[0]
    np.testing.assert_array_equal(diagonal.get_xdata(), diagonal.get_ydata())
    low, high = ax.get_xlim()
    assert low <= min(bins.lower.min(), 0.5) < max(bins.upper.max(), 0.5) <= high
    assert ax.get_xlabel() == "probability of class 1 (truth)"


def test_roc(result):
    ax = plots.roc(result)
    diagonal, blind, curve = ax.get_lines()
    np.testing.assert_array_equal(curve.get_xdata(), result.roc.draws)
    np.testing.assert_array_equal(curve.get_ydata(), result.roc.truths)
    assert (np.diff(curve.get_xdata()) >= 0).all()
    assert (curve.get_ydata() >= curve.get_xdata() - 0.02).all()
    np.testing.assert_array_equal(diagonal.get_ydata(), [0, 1])
    assert str(result.auc_x) in blind.get_label()


@pytest.mark.parametrize("draw", [plots.reliability, plots.roc])
def test_they_draw_where_they_are_told(result, draw):
    _, ax = plt.subplots()
    assert draw(result, ax) is ax
