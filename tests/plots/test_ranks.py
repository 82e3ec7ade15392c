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


def test_one_of_the_quantities(result):
    ours, theirs = plots.rank_histogram(result[1]), plots.rank_histogram(result, None, "theta[1]")
    assert (ours.patches[1].get_data().values == theirs.patches[1].get_data().values).all()


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
