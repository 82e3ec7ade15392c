import numpy as np
import pytest
import torch

import assay
from assay import plots
from tests.plots.cases import VERDICTS, check


def panels(figure):
    return {ax.get_xlabel().split("\n")[0]: ax for ax in figure.axes}


def test_a_summary_has_its_panels():
    found = panels(plots.summary(check()))
    assert list(found) == [
        "mean of q − true, in sd",
        "sd of q / true sd",
        "theta[0]",
        "theta[1]",
        "theta[2]",
        "statistic",
        "probability of class 1 (truth)",
    ]
    without = panels(plots.summary(check(classifier=False)))
    assert list(without) == [*list(found)[:-1], "x[0]"]


@pytest.mark.parametrize("which", range(len(VERDICTS)))
def test_numbers_are_those_of_the_observation(which):
    found = check(tuple(VERDICTS))
    figure = plots.summary(found, which)
    assert figure.get_suptitle() == f"x_o[{which}]: {found.verdicts[which]}"
    if found.verdicts[which] == "outside":
        return
    drawn = panels(figure)
    points = drawn["mean of q − true, in sd"].collections[1].get_offsets()
    np.testing.assert_array_equal(points[:, 0], found.bounds.bias[which])
    assert drawn["statistic"].get_title() == f"p = {found.test.pvalue[which]:.3g}"


def test_nothing_is_drawn_of_q_where_x_o_is_outside():
    figure = plots.summary(check(("outside", "passed")))
    assert list(panels(figure)) == ["x[0]"]


def test_an_observation_by_its_label():
    figures = [plots.summary(check(tuple(VERDICTS)), which) for which in (2, "x_o[2]")]
    assert len({figure.get_suptitle() for figure in figures}) == 1
    with pytest.raises(KeyError, match="expected one of"):
        plots.summary(check(), "elsewhere")
    with pytest.raises(IndexError, match="expected one of 2 rows"):
        plots.summary(check(), 2)


def test_a_check_draws_itself():
    theta, noise = torch.randn(2, 300, 1, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1)

    def narrow(x, n):
        return x / 2 + 0.3 * torch.randn(n, 1, generator=generator)

    x_o = [[0.5], [0.0]]
    found = assay.check(narrow, theta, theta + noise, x_o, names=["$\\mu$"], classifier=None)
    figure = found.plot(1)
    figure.canvas.draw()
    assert figure.get_suptitle() == "x_o[1]: rejected"
    drawn = panels(figure)
    assert drawn["statistic"].get_title() == f"p = {found.test.pvalue[1]:.3g}"
    points = drawn["sd of q / true sd"].collections[1].get_offsets()
    assert points[0, 0] == found.bounds.width[1, 0]
