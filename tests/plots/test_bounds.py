"""How far off q can be: intervals of means and widths, true parameters, correlations."""

from dataclasses import replace

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

import assay
from assay import plots
from assay.plots._style import CURVE, INK
from tests.plots.cases import bounds, interval


@pytest.fixture(scope="module")
def found(gaussian_high):
    return assay.bounds(gaussian_high, [[0.0, 0.0], [1.0, 0.0]])


@pytest.fixture(scope="module")
def gaussian_high():
    """Latents of a q that is too high by 0.5 in both parameters."""
    from tests.conftest import Gaussian

    return Gaussian(shift=0.5).latents(1000)


def with_widths(widths, half=0.02):
    whole = bounds(len(widths))
    width = np.exp(interval(np.log([widths]), half))
    return replace(whole, table={**whole.table, "width": width})


class TestForest:
    def test_it_draws_numbers_and_their_intervals(self, found):
        pair = plots.forest(found, which=1)
        for ax, kind in zip(pair, ("bias", "width"), strict=True):
            lines, points = ax.collections
            np.testing.assert_allclose(points.get_offsets()[:, 0], getattr(found, kind)[1])
            ends = [segment[:, 0] for segment in lines.get_segments()]
            lower, upper = (getattr(found, f"{kind}_{end}")[1] for end in ("lower", "upper"))
            np.testing.assert_allclose(ends, np.stack([lower, upper], 1))
        bias, width = pair
        assert [t.get_text() for t in bias.get_yticklabels()] == ["latent[0]", "latent[1]"]
        assert bias.get_ylim() == width.get_ylim()
        assert (bias.get_xscale(), width.get_xscale()) == ("linear", "log")
        # Twice as wide and half as wide are equally far from right.
        low, high = width.get_xlim()
        assert low * high == pytest.approx(1)

    def test_what_is_wrong_is_coloured(self, found):
        bias, width = (ax.collections[1].get_facecolors() for ax in plots.forest(found))
        np.testing.assert_allclose(bias, [mpl.colors.to_rgba(CURVE)] * 2)
        np.testing.assert_allclose(width, [mpl.colors.to_rgba(INK)] * 2)
        titles = [plots.forest(bounds(sizes=(s,)))[0].get_title("left") for s in (1.0, 0.0)]
        assert titles == ["● wrong; 95 % for all rows together", "95 % for all rows together"]

    @pytest.mark.parametrize("tolerance", [0.2, 0.5, None])
    def test_dotted_lines_are_the_tolerance(self, tolerance):
        ends = []
        for ax in plots.forest(bounds(), tolerance=tolerance):
            dotted = [line for line in ax.get_lines() if line.get_linestyle() == ":"]
            ends.append(sorted(float(line.get_xdata()[0]) for line in dotted))
        if tolerance is None:
            assert ends == [[], []]
        else:
            expected = [-tolerance, tolerance, 1 / (1 + tolerance), 1 + tolerance]
            assert sum(ends, []) == pytest.approx(expected)

    @pytest.mark.parametrize("ratio", [1.05, 1.3, 1.8, 2.2, 3.0, 5.0, 8.0, 12.0, 30.0, 1e4])
    def test_widths_have_plain_numbers_at_any_range(self, ratio):
        _, ax = plots.forest(with_widths([ratio, 1.0]))
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

    def test_what_is_unknown_has_no_point(self):
        _, ax = plots.forest(with_widths([np.nan, 1.2]))
        ax.figure.canvas.draw()
        assert np.isfinite(ax.get_xlim()).all()
        assert np.ma.getmaskarray(ax.collections[1].get_offsets())[:, 0].tolist() == [True, False]

    def test_of_many_parameters_the_worst_in_their_order(self):
        right = bounds(60, sizes=(0.0,))
        width = np.exp(interval([[0.0] * 3 + [1.0] + [0.0] * 56], 0.02))
        bias, _ = plots.forest(replace(right, table={**right.table, "width": width}))
        names = [text.get_text() for text in bias.get_yticklabels()]
        # The one that is wrong, and those with the widest intervals.
        assert names == ["theta[3]", *(f"theta[{j}]" for j in range(21, 60))]

    def test_long_names_leave_room_for_the_panels(self):
        short, long = (plots.forest(bounds(2, names=names)) for names in ("ab", ("a" * 60, "b")))
        for pair in (short, long):
            pair[0].figure.canvas.draw()
        assert long[0].get_window_extent().width > 0.6 * short[0].get_window_extent().width
        assert long[0].get_yticklabels()[0].get_window_extent().x0 >= 0

    def test_panels_fill_the_figure(self):
        pair = plots.forest(bounds())
        pair[0].figure.canvas.draw()
        widths = [ax.get_window_extent().width for ax in pair]
        assert min(widths) > 0.25 * pair[0].figure.bbox.width

    def test_it_draws_in_the_axes_given(self):
        _, pair = plt.subplots(1, 2)
        assert list(plots.forest(bounds(), pair)) == list(pair)
        with pytest.raises(ValueError, match="ax: expected 2 axes"):
            plots.forest(bounds(), pair[0])

    def test_an_observation_that_is_not_there(self):
        with pytest.raises(IndexError, match="expected one of 1 rows; got 3"):
            plots.forest(bounds(), which=3)


class TestNear:
    def test_true_parameters_over_draws_of_q(self, found):
        for panel, j in zip(plots.near(found), (0, 1), strict=True):
            assert panel.get_xlabel().startswith(f"latent[{j}]")
            q, truths = (patch.get_data() for patch in panel.patches)
            for shares, own in ((q, found.near_draws[0]), (truths, found.near_truths[0])):
                assert shares.values.sum() == pytest.approx(1)
                middle = (shares.values * (shares.edges[1:] + shares.edges[:-1]) / 2).sum()
                assert middle == pytest.approx(float(np.nanmean(own[:, j])), abs=0.1)

    def test_what_lies_beyond_is_in_the_outermost_bins_and_nan_in_none(self):
        whole = bounds(1)
        true, draws = np.array([[[-9.0], [np.nan]]]), np.array([[[0.1], [9.0]]])
        (panel,) = plots.near(replace(whole, near_truths=true, near_draws=draws))
        q, outline = (patch.get_data().values for patch in panel.patches)
        assert (outline[0], q[-1], q[len(q) // 2]) == (1, 0.5, 0.5)
        assert (outline.sum(), q.sum()) == (1, 1)

    def test_the_worst_come_first(self):
        (alone,) = plots.near(bounds(sizes=(0.0, 1.0)), plt.subplots()[1], which=1)
        assert alone.get_xlabel().startswith("theta[0]")
        first, second, third = plots.near(bounds(10))
        names = [ax.get_xlabel().partition("\n")[0] for ax in (first, second, third)]
        assert names == ["theta[0]", "theta[1]", "theta[2]"]

    def test_at_x_o_there_is_no_picture(self, found):
        """There are no true parameters at x_o itself."""
        with pytest.raises(ValueError, match="result: expected bounds near x_o"):
            plots.near(found.at)


class TestCorrelations:
    def test_errors_and_frames(self):
        whole = bounds()
        ax = plots.correlations(whole)
        table = ax.images[0].get_array()
        assert table[0, 0] == whole.correlation[0, 1, 0]
        assert table[1, 1] == whole.correlation[0, 2, 1]
        assert np.ma.getmaskarray(table)[0, 1]
        assert len(ax.patches) == 2
        with pytest.raises(ValueError, match="two or more parameters; got 1"):
            plots.correlations(bounds(1))

    def test_of_many_parameters_some(self):
        ax = plots.correlations(bounds(60))
        assert ax.images[0].get_array().shape == (23, 23)
