"""How far off q can be, where x_o lies among simulations, and the figure of a whole check."""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgba

from assay import plots
from assay.plots._style import CURVE, GREEN, INK
from tests.plots.cases import (
    VERDICTS,
    bounds,
    check,
    drawn_figure,
    in_one_dimension,
    interval,
    surroundings,
)


def with_widths(widths, half=0.02, **options):
    whole = bounds(len(widths), **options)
    width = np.exp(interval(np.log([widths]), half))
    return replace(whole, table={**whole.table, "width": width})


class TestForest:
    def test_numbers_and_intervals_are_coloured_where_they_are_wrong(self):
        found = bounds(sizes=(0.0, 1.0))
        pair = plots.forest(found, which=1)
        for ax, kind, right in zip(pair, ("bias", "width"), (0, 1), strict=True):
            lines, points = ax.collections
            value, lower, upper = found.table[kind][1]
            np.testing.assert_allclose(points.get_offsets()[:, 0], value)
            ends = [segment[:, 0] for segment in lines.get_segments()]
            np.testing.assert_allclose(ends, np.stack([lower, upper], 1))
            colours = [CURVE if one else INK for one in (lower > right) | (upper < right)]
            np.testing.assert_allclose(points.get_facecolors(), list(map(to_rgba, colours)))
        bias, width = pair
        assert [t.get_text() for t in bias.get_yticklabels()] == [f"theta[{j}]" for j in range(3)]
        assert bias.get_ylim() == width.get_ylim()
        # Twice as wide and half as wide are equally far from right.
        assert (bias.get_xscale(), width.get_xscale()) == ("linear", "log")
        assert np.prod(width.get_xlim()) == pytest.approx(1)
        titles = [plots.forest(found, which=i)[0].get_title("left") for i in (0, 1)]
        assert titles == ["95 % for all rows together", "● wrong; 95 % for all rows together"]

    @pytest.mark.parametrize("tolerance", [0.2, 0.5, None])
    def test_dotted_lines_are_the_tolerance(self, tolerance):
        lines = [line for ax in plots.forest(bounds(), tolerance=tolerance) for line in ax.lines]
        ends = [float(line.get_xdata()[0]) for line in lines if line.get_linestyle() == ":"]
        factor = 1 + (tolerance or 0)
        expected = [-tolerance, tolerance, 1 / factor, factor] if tolerance else []
        assert ends == pytest.approx(expected)

    @pytest.mark.parametrize("ratio", [1.05, 1.3, 1.8, 2.2, 3.0, 5.0, 8.0, 12.0, 30.0, 1e4])
    def test_widths_have_plain_numbers_at_any_range(self, ratio):
        _, ax = plots.forest(with_widths([ratio, 1.0]))
        ticks = [text.get_text() for text in ax.get_xticklabels()]
        assert 3 <= len(ticks) <= 5
        assert "1" in ticks
        drawn_figure(ax)
        boxes = [text.get_window_extent() for text in ax.get_xticklabels()]
        assert all(a.x1 + 2 < b.x0 for a, b in zip(boxes, boxes[1:], strict=False))
        low, high = ax.get_xlim()
        assert low <= float(ticks[0]) < float(ticks[-1]) <= high
        # Even the largest is drawn, at the edge.
        assert ax.collections[1].get_offsets()[0, 0] == pytest.approx(min(ratio, high))

    def test_what_is_unknown_has_no_point(self):
        _, ax = plots.forest(with_widths([np.nan, 1.2]))
        drawn_figure(ax)
        assert np.isfinite(ax.get_xlim()).all()
        assert np.ma.getmaskarray(ax.collections[1].get_offsets())[:, 0].tolist() == [True, False]

    def test_of_many_parameters_the_worst_in_their_order(self):
        widths = np.where(np.arange(60) == 3, np.e, 1.0)
        bias, _ = plots.forest(with_widths(widths, sizes=(0.0,)))
        names = [text.get_text() for text in bias.get_yticklabels()]
        # The one that is wrong, and those with the widest intervals.
        assert names == ["theta[3]", *(f"theta[{j}]" for j in range(21, 60))]

    def test_what_is_refused(self):
        with pytest.raises(IndexError, match="expected one of 1 rows; got 3"):
            plots.forest(bounds(), which=3)
        with pytest.raises(ValueError, match="result: expected bounds near x_o"):
            plots.near(replace(bounds(), near_truths=None))
        with pytest.raises(ValueError, match="two or more parameters; got 1"):
            plots.correlations(bounds(1))


class TestNear:
    def test_true_parameters_over_draws_of_q_with_what_lies_beyond(self):
        whole = bounds(1)
        true, draws = np.array([[[-9.0], [np.nan]]]), np.array([[[0.1], [9.0]]])
        (panel,) = plots.near(replace(whole, near_truths=true, near_draws=draws))
        q, outline = (patch.get_data().values for patch in panel.patches)
        assert (outline[0], q[-1], q[len(q) // 2]) == (1, 0.5, 0.5)
        assert (outline.sum(), q.sum()) == (1, 1)

    def test_the_worst_come_first(self):
        (alone,) = plots.near(bounds(sizes=(0.0, 1.0)), plt.subplots()[1], which=1)
        assert alone.get_xlabel().startswith("theta[0]")
        names = [ax.get_xlabel().partition("\n")[0] for ax in plots.near(bounds(10))]
        assert names == ["theta[0]", "theta[1]", "theta[2]"]


def test_correlations_and_frames_of_wrong_ones():
    whole = bounds()
    ax = plots.correlations(whole)
    table = ax.images[0].get_array()
    assert (table[0, 0], table[1, 1]) == (whole.correlation[0, 1, 0], whole.correlation[0, 2, 1])
    assert np.ma.getmaskarray(table)[0, 1]
    assert len(ax.patches) == 2
    assert plots.correlations(bounds(60)).images[0].get_array().shape == (23, 23)


def points(ax, label):
    """Where points with a label are, (n, 2)."""
    (found,) = (c for c in ax.collections if c.get_label() == label)
    return found.get_offsets().data


class TestSurroundings:
    def test_every_verdict_at_its_place_and_where_q_was_tested(self):
        found = check(tuple(VERDICTS))
        ax, around = plots.surroundings(found), found.surroundings
        for i, word in enumerate(found.verdicts):
            np.testing.assert_allclose(points(ax, word), found.test.x[i : i + 1])
        styles = {c.get_label(): c for c in ax.collections}
        np.testing.assert_allclose(styles["passed"].get_facecolors()[0], to_rgba(GREEN))
        np.testing.assert_allclose(styles["rejected"].get_facecolors()[0], to_rgba(CURVE))
        assert len({len(styles[word].get_paths()[0].vertices) for word in VERDICTS}) == 4
        near = around.near.any(0)
        np.testing.assert_allclose(points(ax, "near x_o"), around.x[near])
        np.testing.assert_allclose(points(ax, "simulated"), around.x[~near])
        rejected, others = ax.collections[2:4]
        np.testing.assert_allclose(rejected.get_offsets(), around.x[around.pvalue <= 0.05])
        np.testing.assert_allclose(others.get_offsets(), around.x[around.pvalue > 0.05])

    def test_many_entries_of_x_are_projected(self):
        found, chance = check(), np.random.default_rng(0)
        mixing = chance.normal(size=(6, 6))
        around = replace(surroundings(2, 6), x=chance.normal(size=(400, 6)) @ mixing)
        x = around.x[:2]
        ax = plots.surroundings(replace(found, surroundings=around, test=replace(found.test, x=x)))
        every = np.concatenate([around.x, x])
        table = (every - every.mean(0)) / every.std(0)
        places = [points(ax, label) for label in ("simulated", "near x_o", "rejected")]
        variance = np.linalg.eigvalsh(table.T @ table / len(table))[::-1]
        np.testing.assert_allclose(np.concatenate(places).var(0), variance[:2])
        assert ax.get_xlabel() == "first principal component of x"

    def test_one_number_is_a_place_on_a_line(self):
        found = in_one_dimension(check())
        ax = plots.surroundings(found)
        place = points(ax, "rejected")
        np.testing.assert_allclose(place, np.pad(found.test.x, [(0, 0), (0, 1)]))
        # Simulations are spread upwards, where no number is meant.
        assert np.ptp(points(ax, "simulated")[:, 1]) > 0.9
        assert not len(ax.get_yticks())
        with pytest.raises(ValueError, match="check: expected simulated observations"):
            plots.surroundings(replace(found, surroundings=None))


def panels(figure):
    return {ax.get_xlabel().split("\n")[0]: ax for ax in figure.axes}


class TestSummary:
    BIAS = "mean of q − true, in sd"

    def test_its_panels(self):
        found = list(panels(plots.summary(check())))
        names = ["theta[0]", "theta[1]", "theta[2]"]
        assert found[:-1] == [self.BIAS, "sd of q / true sd", *names, "statistic"]
        assert found[-1] == "probability of class 1 (truth)"
        assert list(panels(plots.summary(check(classifier=False))))[-1] == "x[0]"
        assert list(panels(plots.summary(check(("outside", "passed"))))) == ["x[0]"]

    def test_numbers_are_those_of_the_observation_by_number_or_label(self):
        found = check(tuple(VERDICTS))
        for i, which in enumerate((0, "x_o[1]", 2)):
            figure = found.plot(which)
            assert figure.get_suptitle() == f"x_o[{i}]: {found.verdicts[i]}"
            points = panels(figure)[self.BIAS].collections[1].get_offsets()
            np.testing.assert_array_equal(points[:, 0], found.bounds.bias[i])
            title = panels(figure)["statistic"].get_title()
            assert title == f"p = {found.test.pvalue[i]:.3g}"
        with pytest.raises(KeyError, match="expected one of"):
            plots.summary(found, "elsewhere")
        with pytest.raises(IndexError, match="expected one of 4 rows"):
            plots.summary(found, 4)
