import matplotlib.pyplot as plt
import numpy as np
import pytest

import assay
from assay import plots


@pytest.fixture
def result(gaussian):
    return assay.sbc(gaussian(width=0.6).calibration(300, k=30))


def heights(collection):
    return {round(float(v), 6) for v in collection.get_paths()[0].vertices[:, 1]}


def test_the_histogram_and_its_band(result):
    ax = plots.rank_histogram(result, quantity="theta[1]")
    bins = result.histogram()
    size = np.diff(bins.edges)
    bars = [bar.get_height() for bar in ax.patches]
    np.testing.assert_allclose(bars, bins.counts[1] / size)
    np.testing.assert_allclose([bar.get_x() for bar in ax.patches], bins.edges[:-1])
    (ideal,) = ax.get_lines()
    # What is expected is the same for every rank, and the band holds it.
    np.testing.assert_allclose(ideal.get_ydata(), 300 / 31)
    (band,) = ax.collections
    assert min(heights(band)) < 300 / 31 < max(heights(band))
    assert max(bars) > max(heights(band))
    assert ax.get_legend().get_texts()[-1].get_text() == "theta[1]"


def test_the_distribution_functions_and_their_band(result):
    ax = plots.rank_ecdf(result)
    curve = result.ecdf()
    ideal, *lines = ax.get_lines()
    np.testing.assert_array_equal(ideal.get_ydata(), [0, 1])
    for line, ecdf in zip(lines, curve.ecdf, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), ecdf)
    drawn = {round(float(v), 6) for v in [*curve.lower, *curve.upper]}
    assert heights(ax.collections[0]) <= drawn


def test_the_differences_and_their_band(result):
    ax = plots.rank_difference(result)
    curve = result.ecdf()
    ideal, *lines = ax.get_lines()
    assert set(ideal.get_ydata()) == {0}
    for line, difference in zip(lines, curve.difference, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), difference)
    band = heights(ax.collections[0])
    assert min(band) < 0 < max(band)


@pytest.mark.parametrize("plot", [plots.rank_histogram, plots.rank_ecdf, plots.rank_difference])
def test_it_draws_where_it_is_told(result, plot):
    _, ax = plt.subplots()
    assert plot(result, ax=ax) is ax
    assert plot(result).figure.get_figwidth() == 3.4


def test_a_quantity_that_is_not_there(result):
    with pytest.raises(ValueError, match="quantity: expected one of theta"):
        plots.rank_histogram(result, quantity="phi")
