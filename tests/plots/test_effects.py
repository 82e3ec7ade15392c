import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

import assay
from assay import Draws, plots
from assay.plots._canvas import CURVE, INK


@pytest.fixture
def result(gaussian):
    test = assay.moments(gaussian(shift=0.5).latents(1000), null=assay.KnownBase(9))
    return assay.effects(test(Draws(torch.zeros(1, 2))))


def test_it_draws_estimates_over_null_bands(result):
    one = result[0]
    ax = plots.effects(one)
    bars = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in ax.patches]
    np.testing.assert_allclose(bars[:2], np.stack([one.bias.null_lower, one.bias.null_upper], 1))
    np.testing.assert_allclose(
        bars[2:], np.stack([one.dispersion.null_lower, one.dispersion.null_upper], 1) - 1
    )
    points = np.concatenate([c.get_offsets()[:, 0] for c in ax.collections[1::2]])
    np.testing.assert_allclose(points, [*one.bias.value, *(one.dispersion.value - 1)])
    lines = [s for c in ax.collections[::2] for s in c.get_segments()]
    np.testing.assert_allclose(lines[0][:, 0], [one.bias.lower[0], one.bias.upper[0]])
    assert [t.get_text() for t in ax.get_yticklabels()][:2] == ["latent[0] bias", "latent[1] bias"]


def test_what_is_wrong_is_coloured(result):
    ax = plots.effects(result[0])
    bias, width = (c.get_facecolors() for c in ax.collections[1::2])
    np.testing.assert_allclose(bias, [mpl.colors.to_rgba(CURVE)] * 2)
    np.testing.assert_allclose(width, [mpl.colors.to_rgba(INK)] * 2)


def test_it_draws_where_it_is_told(result):
    _, ax = plt.subplots()
    assert plots.effects(result[0], ax) is ax


def test_one_observation_at_a_time(result):
    with pytest.raises(ValueError, match="result: expected one observation; got 1"):
        plots.effects(result)
