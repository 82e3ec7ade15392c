import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgba

from assay import plots
from assay.interpret.trust import INCONCLUSIVE, OUTSIDE, PASSED, REJECTED
from assay.plots._canvas import CURVE, GREEN
from tests.plots.cases import trust

KINDS = (PASSED, INCONCLUSIVE, OUTSIDE, REJECTED)


def at(result, points):
    """Which observations have the verdict that points are labelled by, of which there are some."""
    some = np.array([verdict == points.get_label() for verdict in result.verdicts])
    assert some.any()
    return some


def test_every_verdict_at_its_place():
    result = trust()
    ax = plots.trust_map(result)
    assert tuple(c.get_label() for c in ax.collections) == KINDS
    for points in ax.collections:
        some = at(result, points)
        np.testing.assert_allclose(points.get_offsets().data, result.x[some])
    passed, *_, rejected = ax.collections
    np.testing.assert_allclose(passed.get_facecolors()[0], to_rgba(GREEN))
    np.testing.assert_allclose(rejected.get_facecolors()[0], to_rgba(CURVE))
    shapes = {len(c.get_paths()[0].vertices) for c in ax.collections}
    assert len(shapes) == 4
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x[0] (units of x)", "x[1] (units of x)")


def test_pvalues_along_one_coordinate():
    result = trust()
    ax = plots.trust_map(result, coordinates=result.x[:, 0])
    (line,) = ax.get_lines()
    assert line.get_ydata()[0] == result.alpha
    for points in ax.collections:
        some = at(result, points)
        np.testing.assert_allclose(points.get_offsets().data[:, 1], result.pvalue[some])
    assert ax.get_ylabel() == "p-value"


def test_many_entries_of_x_are_projected():
    result = trust(d=6)
    ax = plots.trust_map(result)
    places = np.concatenate([c.get_offsets().data for c in ax.collections])
    table = (result.x - result.x.mean(0)) / result.x.std(0)
    variance = np.linalg.eigvalsh(table.T @ table / len(table))[::-1]
    np.testing.assert_allclose(places.var(0), variance[:2])
    assert ax.get_xlabel() == "first principal component of x"


def test_it_draws_where_it_is_told():
    _, ax = plt.subplots()
    assert plots.trust_map(trust(), ax) is ax
    assert plots.trust_map(trust()).figure.get_figwidth() == 3.4


def test_coordinates_of_another_shape():
    with pytest.raises(ValueError, match=r"coordinates: .* got shape \(30, 3\)"):
        plots.trust_map(trust(), coordinates=np.zeros((30, 3)))
