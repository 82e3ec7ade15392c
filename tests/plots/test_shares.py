"""Bias and width against shares of simulations, errors of correlations, predictive distances."""

import numpy as np
import pytest
import torch

import assay
from assay import plots
from tests.plots.cases import effects, local, predicted


@pytest.fixture(scope="module")
def slope():
    """What moments find at two observations of a q that is too high by x."""
    z, x = torch.randn(2, 1500, 2, generator=torch.Generator().manual_seed(0))
    return assay.moments(assay.Calibration.from_base(z - x, x))(torch.tensor([[1.0, 0], [0, 1]]))


def test_it_draws_what_was_found_near_x_o_and_at_x_o():
    told = effects(10)
    bias, width = plots.shares(told)
    lines = [line for line in bias.get_lines() if len(line.get_xdata()) == 4]
    assert [line.get_label() for line in lines] == [told.names[j] for j in told.worst[:6]]
    for line, j in zip(lines, told.worst, strict=False):
        np.testing.assert_array_equal(
            line.get_ydata(), [told.bias.at[j], *told.sizes.bias[0, :, j]]
        )
    assert [text.get_text() for text in width.get_xticklabels()] == ["x_o", "5", "10", "20"]
    ends = bias.collections[0].get_segments()
    j = told.worst[0]
    upper = [told.bias.at_upper[j], *told.sizes.bias[2, :, j]]
    np.testing.assert_allclose([e[1, 1] for e in ends], upper)
    # Marks at x_o are open.
    assert tuple(bias.collections[1].get_facecolors()[0]) == (1, 1, 1, 1)


def test_results_and_effects_are_drawn_alike(slope):
    for plot in (plots.shares, plots.effects, plots.correlations):
        with pytest.raises(ValueError, match=r"result: expected one observation.*result\[0\]"):
            plot(slope)
        with pytest.raises(ValueError, match=r"expected one observation"):
            plot(assay.effects(slope))
    one, other = (plots.shares(of)[0] for of in (slope[1], assay.effects(slope)[1]))
    for ours, theirs in zip(one.get_lines(), other.get_lines(), strict=True):
        np.testing.assert_array_equal(ours.get_ydata(), theirs.get_ydata())
    # The error is as large as x: 1 at x_o, less around it.
    at = next(line for line in one.get_lines() if line.get_label() == "latent[1]").get_ydata()
    assert at[0] == pytest.approx(1, abs=0.3)


def test_truths_near_x_o_over_draws_of_q(slope):
    panels = plots.near(slope[0])
    told = assay.effects(slope)[0]
    assert panels[0].get_xlabel().startswith(told.names[told.worst[0]])
    for panel, j in zip(panels, told.worst, strict=True):
        q, truths = (patch.get_data() for patch in panel.patches)
        for drawn, own in ((q, told.drawn), (truths, told.truths)):
            assert drawn.values.sum() == pytest.approx(1)
            middle = (drawn.values * (drawn.edges[1:] + drawn.edges[:-1]) / 2).sum()
            assert middle == pytest.approx(float(np.nanmean(own[:, j])), abs=0.1)
    (alone,) = plots.near(slope[0], panels[0])
    assert alone is panels[0]


def test_effects_of_a_ratio_have_no_shares():
    for plot in (plots.shares, plots.correlations, plots.near):
        with pytest.raises(ValueError, match="truths near x_o, such as .* got those of a density"):
            plot(local())


def test_errors_of_correlations():
    told = effects(3)
    ax = plots.correlations(told)
    table = ax.images[0].get_array()
    assert table[0, 0] == told.correlation.value[0]  # of the first and the second
    assert table[1, 1] == told.correlation.value[2]
    assert np.ma.getmaskarray(table)[0, 1]
    assert len(ax.patches) == told.correlation.wrong.sum() == 1
    assert [text.get_text() for text in ax.texts] == ["+0.40", "+0.10", "−0.20"]
    with pytest.raises(ValueError, match="two or more parameters; got 1"):
        plots.correlations(effects(1))


def test_distances_of_x_o_and_of_simulations():
    found = predicted()
    ax = plots.predictive(found)
    assert sum(bar.get_height() for bar in ax.patches) == 199
    assert ax.get_lines()[1].get_xdata()[0] == found.statistic
    assert ax.get_title() == f"p = {float(found.pvalue):.3g}"
    assert plots.predictive(predicted(9)).texts[0].get_text() == "x_o\n41.4"
