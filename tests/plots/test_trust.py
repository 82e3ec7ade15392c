import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgba

from assay import plots
from assay.plots.canvas import CURVE, GREEN
from assay.trust import REJECTED, TRUSTED, UNTESTED
from tests.plots.cases import trust

KINDS = {"trusted": TRUSTED, "untested": UNTESTED, "rejected": REJECTED}


def test_every_verdict_at_its_place():
    found = trust()
    ax = plots.trust_map(found)
    assert [c.get_label() for c in ax.collections] == list(KINDS)
    for points in ax.collections:
        some = found.verdicts == KINDS[points.get_label()]
        np.testing.assert_allclose(points.get_offsets().data, found.x[some])
    trusted, _, rejected = ax.collections
    np.testing.assert_allclose(trusted.get_facecolors()[0], to_rgba(GREEN))
    np.testing.assert_allclose(rejected.get_facecolors()[0], to_rgba(CURVE))
    shapes = {len(c.get_paths()[0].vertices) for c in ax.collections}
    assert len(shapes) == 3
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x[0]", "x[1]")


def test_pvalues_along_one_coordinate():
    found = trust()
    ax = plots.trust_map(found, coordinates=found.x[:, 0])
    (line,) = ax.get_lines()
    assert line.get_ydata()[0] == found.alpha
    for points in ax.collections:
        some = found.verdicts == KINDS[points.get_label()]
        np.testing.assert_allclose(points.get_offsets().data[:, 1], found.pvalue[some])
    assert ax.get_ylabel() == "p-value"


def test_many_entries_of_x_are_projected():
    found = trust(d=6)
    ax = plots.trust_map(found)
    places = np.concatenate([c.get_offsets().data for c in ax.collections])
    table = (found.x - found.x.mean(0)) / found.x.std(0)
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
