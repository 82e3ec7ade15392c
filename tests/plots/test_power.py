from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from assay import Draws, KnownBase, moments, plots, power
from assay.classifiers.features import Hermite
from assay.interpret.errors import Shift, Wide
from assay.plots._interpret import log_ticks
from assay.samples.neighbourhoods import Nearest

X_O = torch.tensor([[0.0, 0.0], [1.0, 1.0]])


@pytest.fixture(scope="module")
def result():
    from tests.conftest import Gaussian

    test = moments(Gaussian().latents(300), Nearest((0.3,)), KnownBase(39), Hermite(1))
    return power(test, Draws(X_O), (Shift(), Wide()), repetitions=20)


def test_it_draws_rates_the_curve_and_the_effects(result):
    ax = plots.power(result)
    curve = result["shift"]
    target, level, *lines, effects = ax.get_lines()
    assert target.get_ydata()[0] == 0.8
    assert level.get_ydata()[0] == 0.05
    for i in range(2):
        fit, dots = lines[2 * i : 2 * i + 2]
        np.testing.assert_array_equal(dots.get_ydata(), curve.rates[i])
        np.testing.assert_array_equal(dots.get_xdata(), curve.sizes)
        assert np.interp(curve.mde[i], fit.get_xdata(), fit.get_ydata()) == pytest.approx(
            0.8, abs=0.01
        )
    np.testing.assert_array_equal(effects.get_xdata(), curve.mde)
    assert ax.get_xlabel() == "shift (sd of q)"
    low, high = ax.get_xlim()
    assert low < curve.mde.min() < curve.mde.max() < high


def test_an_error_that_is_never_seen(result):
    """The mean alone is blind to a width."""
    assert np.isinf(result["too wide"].mde).all()
    ax = plots.power(result, error="too wide")
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert "detectable, not at 2 of 2" in labels


def test_sizes_that_differ_between_observations(result):
    curve = result["shift"]
    sizes = np.stack([curve.sizes, curve.sizes])
    sizes[1, 0] = np.nan
    ax = plots.power(replace(result, curves=(replace(curve, sizes=sizes),)))
    dots = [line for line in ax.get_lines() if line.get_marker() == "o"]
    np.testing.assert_array_equal(dots[1].get_xdata(), sizes[1])
    assert np.isfinite(ax.get_xlim()).all()


def test_plain_numbers_on_a_short_axis():
    _, ax = plt.subplots()
    log_ticks(ax, 0.09, 0.3)
    assert [text.get_text() for text in ax.get_xticklabels()] == ["0.1", "0.15", "0.2", "0.3"]


def test_it_draws_where_it_is_told(result):
    _, ax = plt.subplots()
    assert plots.power(result, ax=ax) is ax


def test_an_error_that_was_not_planted(result):
    with pytest.raises(KeyError, match="expected one of"):
        plots.power(result, error="skew")
