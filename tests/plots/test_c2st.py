from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from experiments.discriminant import QDA

from assay import Exchange, c2st, lc2st, plots
from assay.classifiers.base import Classifier, Scores


@pytest.fixture(scope="module")
def result():
    p, q = torch.randn(2, 300, 2, generator=torch.Generator().manual_seed(0))
    return c2st(p, 1.1 * q, QDA(), Exchange(199))


@pytest.mark.parametrize("name", ["accuracy", "mse", "auc"])
def test_it_draws_the_null_and_the_observed_value(result, name):
    one = result[name]
    ax = plots.null_histogram(one, alpha=0.1)
    threshold, observed = (line.get_xdata()[0] for line in ax.get_lines())
    assert observed == one.statistic
    # At level 0.1 the twentieth largest of 199.
    assert threshold == np.sort(one.null)[-20]
    assert (observed > threshold) == (one.pvalue <= 0.1)
    bars = ax.patches
    assert sum(bar.get_height() for bar in bars) == 199
    assert bars[0].get_x() == pytest.approx(one.null.min())
    assert bars[-1].get_x() + bars[-1].get_width() == pytest.approx(one.null.max())
    assert ax.get_xlabel() == name
    assert ax.get_title() == f"p = {float(one.pvalue):.3g}"


@pytest.mark.parametrize("side", [1, -1])
def test_what_is_far_beyond_the_null_is_told_beside_an_arrow(result, side):
    one = result["mse"]
    low, high = one.null.min(), one.null.max()
    far = replace(one, statistic=np.array(high + side * 123.4))
    ax = plots.null_histogram(far)
    (words,) = ax.texts
    assert words.get_text() == f"observed\n{high + side * 123.4:.3g}"
    assert words.arrow_patch is not None
    # The null takes at least half of the axis, and the arrow points out of it.
    left, right = ax.get_xlim()
    assert left <= low < high <= right
    assert high - low > 0.5 * (right - left)
    assert words.xy[0] == (right if side > 0 else left)
    assert side * (words.xy[0] - words.get_position()[0]) > 0


def test_a_local_test_at_one_observation(gaussian):
    posterior = gaussian(width=1.5)
    result = lc2st(posterior.calibration(200), QDA(), Exchange(39))(posterior.draws(torch.ones(2)))
    ax = plots.null_histogram(result)
    assert f"{float(result.statistic):.3g}" in ax.texts[0].get_text()
    assert ax.get_xlabel() == "statistic"


def test_it_draws_where_it_is_told(result):
    _, ax = plt.subplots()
    assert plots.null_histogram(result["mse"], ax) is ax


def test_one_statistic_at_a_time(result):
    with pytest.raises(
        ValueError, match=r"expected one statistic; got 6. Choose one .* result\[0\]"
    ):
        plots.null_histogram(result)


def test_levels(result):
    with pytest.raises(ValueError, match="alpha: expected a number between 0 and 1"):
        plots.null_histogram(result["mse"], alpha=5)


def test_a_null_without_spread():
    class Coin(Classifier):
        def fit(self, copies, seed):
            return Half(len(copies))

    class Half(Scores):
        def __init__(self, copies):
            self.copies = copies

        def __call__(self, theta, x):
            return torch.full((len(theta), self.copies, theta.shape[1]), 0.5)

    p, q = torch.randn(2, 50, 2, generator=torch.Generator().manual_seed(0))
    ax = plots.null_histogram(c2st(p, q, Coin(), Exchange(9))["mse"])
    assert sum(bar.get_height() for bar in ax.patches) == 9
