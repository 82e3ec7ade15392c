import json

import numpy as np
import pytest

from assay.report.average import average_figures
from assay.report.words import rounded


@pytest.fixture(scope="module")
def figures(check):
    return average_figures(check)


def test_every_figure_is_there_with_words(figures):
    assert set(figures) == {"sbc", "coverage", "tarp", "reliability", "roc"}
    json.dumps({name: figure.plain for name, figure in figures.items()}, allow_nan=False)
    words = [figure.words for figure in figures.values()]
    assert all(any(c.isdigit() for c in said) and said.endswith(".") for said in words)


def test_ranks_and_coverage_are_those_of_the_check(figures, check):
    ranks = check.sbc.ecdf(check.alpha)
    assert figures["sbc"].data[1]["y"] == rounded(ranks.difference[0])
    assert figures["sbc"].data[0]["y"][: len(ranks.levels)] == rounded(ranks.difference_upper)
    curve = check.coverage.curve(check.alpha)
    assert figures["coverage"].data[2]["y"] == rounded(curve.coverage[0])
    assert figures["tarp"].data[2]["y"] == rounded(check.tarp.curve(check.alpha).coverage[0])


def test_health_is_that_of_the_check(figures, check):
    bins = check.health.reliability
    shown = figures["reliability"].data[1]
    assert shown["y"] == rounded(bins.observed)
    assert np.allclose(np.add(shown["y"], shown["error_y"]["array"]), bins.upper, atol=2e-4)
    assert "AUC" in figures["roc"].data[1]["name"]


def test_what_is_missing_is_not_drawn(bare):
    assert average_figures(bare) == {}
