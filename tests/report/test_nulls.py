"""The exact test and tests over all x beside their nulls."""

from dataclasses import replace

import numpy as np
import pytest

from assay.report.nulls import average_figures, null


@pytest.mark.parametrize("statistic", [0.01, 5.0, 1e9])
def test_the_observed_statistic_is_inside_its_figure(check, statistic):
    test = replace(check.test, statistic=np.full(len(check), statistic))
    figure = null(replace(check, test=test), 0)
    low, high = figure.layout["xaxis"]["range"]
    lines = figure.layout["shapes"]
    assert all(low <= line["x0"] <= high for line in lines)
    assert sum(figure.data[0]["y"]) == check.test.null.shape[1]
    assert "The observed statistic is" in figure.words


def test_tests_over_all_x(check):
    figures = average_figures(check)
    assert list(figures) == ["sbc", "coverage", "tarp"]
    names = [t["name"] for t in figures["sbc"].data]
    assert names[-3:] == ["&lt;script&gt;alert(1)&lt;/script&gt;", "θ", 'a &amp; "b"']
    assert "θ p = " in figures["coverage"].words
    assert average_figures(replace(check, sbc=None, tarp=None)).keys() == {"coverage"}
