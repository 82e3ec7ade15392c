import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from assay import Draws, lhpd, lpit, plots
from assay.local.levels import Levels


def of(gaussian, x_o=(0.0, 0.0)):
    return lpit(gaussian(width=1.3).latents(200), null=99)(Draws(torch.tensor(x_o)))


def test_it_draws_a_curve_a_column_and_the_bands(gaussian):
    result = of(gaussian)
    ax, bands = plots.levels(result), result.bands()
    ideal, *lines = ax.get_lines()
    np.testing.assert_array_equal(ideal.get_ydata(), [0, 1])
    assert [line.get_label() for line in lines] == ["z[0]", "z[1]"]
    for line, curve in zip(lines, result.curves, strict=True):
        np.testing.assert_array_equal(line.get_xdata()[1:-1], result.alphas)
        np.testing.assert_array_equal(line.get_ydata()[1:-1], curve)
        assert line.get_ydata()[[0, -1]].tolist() == [0, 1]
    envelope, band = (c.get_paths()[0].vertices for c in ax.collections)
    middle = [v[np.isclose(v[:, 0], 0.5), 1] for v in (envelope, band)]
    at = int(np.flatnonzero(np.isclose(result.alphas, 0.5))[0])
    assert middle[0].max() == bands.envelope_upper[:, at].max()
    assert middle[1].min() == bands.lower[:, at].min()
    inside = (result.null_curves <= bands.envelope_upper).mean()
    assert inside > 0.95


def test_a_single_curve(gaussian):
    latents = gaussian().latents(100)
    result = lhpd(Levels(torch.rand(100), latents.x), null=19)(Draws(latents.x[0]))
    assert len(plots.levels(result).get_lines()) == 2


def test_it_draws_where_it_is_told(gaussian):
    _, ax = plt.subplots()
    assert plots.levels(of(gaussian), ax) is ax


def test_one_observation_at_a_time(gaussian):
    with pytest.raises(ValueError, match="result: expected one observation; got 2"):
        plots.levels(of(gaussian, ((0.0, 0.0), (1.0, 1.0))))
