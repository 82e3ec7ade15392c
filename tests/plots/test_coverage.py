import matplotlib.pyplot as plt
import numpy as np
import pytest

import assay
from assay import plots


@pytest.fixture(params=[assay.coverage, assay.tarp])
def result(request, gaussian):
    return request.param(gaussian(width=0.6).calibration(300, k=30))


def test_it_draws_curves_intervals_and_the_band(result):
    ax = plots.coverage(result)
    curve = result.curve()
    ideal, *lines = ax.get_lines()
    assert set(ideal.get_ydata()) == {0}
    for line, expected in zip(lines, curve.coverage, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), curve.levels)
        np.testing.assert_array_equal(line.get_ydata(), expected - curve.levels)
    band, *intervals = (c.get_paths()[0].vertices[:, 1] for c in ax.collections)
    ends = (curve.null_lower - curve.levels, curve.null_upper - curve.levels)
    null = {round(v, 6) for v in np.concatenate(ends)}
    assert {round(v, 6) for v in band} <= null
    assert (curve.null_lower <= curve.levels).all()
    assert (curve.null_upper >= curve.levels).all()
    for interval, lower, upper in zip(intervals, curve.lower, curve.upper, strict=True):
        own = {round(v, 6) for v in [*(lower - curve.levels), *(upper - curve.levels)]}
        assert {round(v, 6) for v in interval} <= own
    assert result.held in ax.get_xlabel()
    assert f"p = {result.adjusted.min():.3g}" in ax.get_title()


def test_one_of_the_curves(result):
    ax = plots.coverage(result[0])
    assert len(ax.get_lines()) == 2
    assert ax.get_title() == f"p = {float(result[0].pvalue[0]):.3g}"


def test_it_draws_where_it_is_told(result):
    _, ax = plt.subplots()
    assert plots.coverage(result, ax) is ax
    assert plots.coverage(result).figure.get_figwidth() == 3.4
