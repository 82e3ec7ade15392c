from dataclasses import replace

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

import assay
from assay import Draws, plots
from assay.plots._canvas import CURVE, INK
from tests.plots.cases import check, effects, estimate


@pytest.fixture
def result(gaussian):
    test = assay.moments(gaussian(shift=0.5).latents(1000), null=assay.KnownBase(9))
    return assay.effects(test(Draws(torch.zeros(1, 2))))


def test_it_draws_estimates_over_null_bands(result):
    one = result[0]
    pair = plots.effects(one)
    for ax, own in zip(pair, (one.bias, one.dispersion), strict=True):
        bars = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in ax.patches]
        np.testing.assert_allclose(bars, np.stack([own.null_lower, own.null_upper], 1))
        lines, points = ax.collections
        np.testing.assert_allclose(points.get_offsets()[:, 0], own.value)
        ends = [segment[:, 0] for segment in lines.get_segments()]
        np.testing.assert_allclose(ends, np.stack([own.lower, own.upper], 1))
    bias, width = pair
    assert [t.get_text() for t in bias.get_yticklabels()] == ["latent[0]", "latent[1]"]
    assert bias.get_ylim() == width.get_ylim()
    assert (bias.get_xscale(), width.get_xscale()) == ("linear", "log")
    # Twice as wide and half as wide are equally far from right.
    low, high = width.get_xlim()
    assert low * high == pytest.approx(1)


@pytest.mark.parametrize("ratio", [1.05, 1.3, 1.8, 2.2, 3.0, 5.0, 8.0, 12.0, 30.0, 1e4])
def test_widths_have_plain_numbers_at_any_range(ratio):
    one = effects(2)
    wide = replace(one, dispersion=estimate([ratio, 1.0], [0.02, 0.02], 1))
    _, ax = plots.effects(wide)
    ticks = [text.get_text() for text in ax.get_xticklabels()]
    assert 3 <= len(ticks) <= 5
    assert "1" in ticks
    ax.figure.canvas.draw()
    boxes = [text.get_window_extent() for text in ax.get_xticklabels()]
    assert all(a.x1 + 2 < b.x0 for a, b in zip(boxes, boxes[1:], strict=False))
    low, high = ax.get_xlim()
    assert low <= float(ticks[0]) < float(ticks[-1]) <= high
    # Even the largest is drawn, at the edge.
    assert ax.collections[1].get_offsets()[0, 0] == pytest.approx(min(ratio, high))


def test_what_is_not_identifiable_is_not_drawn():
    unknown = estimate([np.nan, 1.2], [np.inf, 0.1], 1)
    unknown = replace(unknown, null_lower=np.full(2, 0.9), null_upper=np.full(2, 1.1))
    bias, width = plots.effects(replace(effects(2), bias=unknown, dispersion=unknown))
    for ax in (bias, width):
        ax.figure.canvas.draw()
        assert np.isfinite(ax.get_xlim()).all()
        assert np.ma.getmaskarray(ax.collections[1].get_offsets())[:, 0].tolist() == [True, False]


def test_long_names_leave_room_for_the_panels():
    short, long = (plots.effects(effects(2, names)) for names in (("a", "b"), ("a" * 60, "b")))
    for pair in (short, long):
        pair[0].figure.canvas.draw()
    assert long[0].get_window_extent().width > 0.6 * short[0].get_window_extent().width
    assert long[0].get_yticklabels()[0].get_window_extent().x0 >= 0


def test_what_is_wrong_is_coloured(result):
    bias, width = (ax.collections[1].get_facecolors() for ax in plots.effects(result[0]))
    np.testing.assert_allclose(bias, [mpl.colors.to_rgba(CURVE)] * 2)
    np.testing.assert_allclose(width, [mpl.colors.to_rgba(INK)] * 2)


def test_it_draws_where_it_is_told(result):
    _, pair = plt.subplots(1, 2)
    assert list(plots.effects(result[0], pair)) == list(pair)
    with pytest.raises(ValueError, match="ax: expected 2 axes"):
        plots.effects(result[0], pair[0])


def test_one_observation_at_a_time(result):
    assert len(plots.effects(result)) == 2
    with pytest.raises(ValueError, match="result: expected one observation; got 2"):
        plots.effects(check().effects)
