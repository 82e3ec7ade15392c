from dataclasses import replace

import numpy as np
import pytest
import torch

import assay
from assay import Suite, plots
from assay.interpret.trust import OUTSIDE, PASSED
from tests.plots.cases import check


def panels(figure):
    return {ax.get_xlabel().split("\n")[0]: ax for ax in figure.axes}


def test_a_summary_has_its_panels():
    found = panels(plots.summary(check()))
    assert list(found) == [
        "statistic",
        "probability of class 1 (truth)",
        "bias (sd of q)",
        "sd of q / true sd",
        "size detected with probability 0.8",
    ]
    without = panels(plots.summary(check(classifier=False)))
    assert [*found.keys() - without.keys()] == ["probability of class 1 (truth)"]


def test_detectable_sizes_of_one_observation():
    found = check()
    ax = panels(plots.summary(found, "x_o[1]"))["size detected with probability 0.8"]
    for line in ax.get_lines():
        curves = [c for c in found.detectable.curves if c.error.kind == line.get_label()]
        expected = np.minimum([curve.mde[1] for curve in curves], 5)
        np.testing.assert_allclose(line.get_xdata(), expected)
        np.testing.assert_array_equal(line.get_ydata(), [0, 1, 2])
    assert ax.get_xticklabels()[-1].get_text() == "≥ 5"


def test_nothing_is_said_of_an_observation_outside():
    found = check()
    outside = replace(found, trust=replace(found.trust, verdicts=(OUTSIDE, PASSED)))
    assert list(panels(plots.summary(outside))) == ["statistic", "probability of class 1 (truth)"]
    assert len(plots.summary(outside, 1).axes) == 5


def test_an_observation_by_its_label():
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
    found = assay.check(narrow, theta, theta + noise, x_o, Suite.quick(), names=["$\\mu$"])
    figure = found.plot(1)
    figure.canvas.draw()
    title = figure.get_suptitle()
    assert title.startswith(f"x_o[1]: {found.verdicts[1]}")
    assert f"corrected p = {found.local.adjusted[1]:.3g}" in title
    drawn = panels(figure)
    assert drawn["statistic"].get_title() == f"p = {found.pvalue[1]:.3g}"
    points = drawn["bias (sd of q)"].collections[1].get_offsets()
    assert points[0, 0] == found.effects[1].bias.value[0]
